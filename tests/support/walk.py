"""Do what a page says, on machines of the test's own: its commands, in its order, as it shows them.

A machine is a network namespace with processes, a home folder and an ``/etc`` of its own, names for
the others, and a copy of the repository as ``poolhouse``. A terminal keeps its folder and its
variables from block to block. Nothing here knows what a page is about.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from poolhouse_node.weights.cache import default_cache
from tests.support.screen import Screen
from tests.support.shown import ROOT, Block, blocks, pattern_of, with_what_was_shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.namespaces import Namespace

__all__ = ["Machine", "Walk", "clone", "lend_packages", "set_up"]

CODE = "4TK-G9P"
"""The code of every room in the pages."""
MODEL = "smollm2-135m"
"""In the cache of every machine, as nothing can be fetched."""
MOST_TOKENS = 24
"""Answers are cut short, to save time."""

_RUN = """\
set -e
if [ -f "$1/variables" ]; then . "$1/variables"; cd "$(cat "$1/folder")"; fi
trap 'export -p > "$1/variables"; pwd > "$1/folder"' EXIT
. "$2"
"""
_ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""A life of its own: when its first process is killed, so is everything that was started there."""
_ETC = """\
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/etc,workdir=$1/overlay" /etc
echo on
exec sleep infinity
"""


@dataclass(slots=True)
class Machine(AbstractContextManager["Machine"]):
    """Where commands are typed. It is switched on while it is open.

    What is written to ``/etc`` there stays in its folder.
    """

    namespace: Namespace
    folder: Path
    names: dict[str, str]
    """Addresses by host name."""
    _first: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        for folder in (self.home, self.etc, self.folder / "overlay"):
            folder.mkdir(parents=True)
        cache = self.home / ".cache" / "poolhouse" / "models"
        cache.mkdir(parents=True)
        (cache / MODEL).symlink_to(default_cache(os.environ).root / MODEL)
        lines = ["127.0.0.1 localhost", *(f"{host} {name}" for name, host in self.names.items())]
        (self.etc / "hosts").write_text("\n".join([*lines, ""]))
        room = f'code = "{CODE}"\nmax_tokens = {MOST_TOKENS}\n'
        (self.folder / "poolhouse.toml").write_text(f"[host]\n{room}[up]\n{room}")
        (self.folder / "run.sh").write_text(_RUN)
        command = [*_ALONE, "bash", "-ec", _ETC, "_", str(self.folder)]
        with self.namespace.entered():
            self._first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._first.stdout is not None
        assert self._first.stdout.readline() == "on\n", "it cannot be switched on: see above"
        return self

    def __exit__(self, *_: object) -> None:
        if self._first is not None:
            self._first.kill()
            self._first.communicate()

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def etc(self) -> Path:
        """What was written to ``/etc``."""
        return self.folder / "etc"

    def start(self, script: Path, terminal: Path, at: Path) -> Screen:
        """Run a script in a terminal; ``at`` is the folder in which a new one opens."""
        assert self._first is not None
        (first,) = (
            Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split()
        )
        inside = ("nsenter", f"--target={first}", "--mount", "--pid", f"--wd={at}", "--")
        with self.namespace.entered():
            run = ("bash", str(self.folder / "run.sh"), str(terminal), str(script))
            return Screen.start([*inside, *run], self._variables())

    def _variables(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            # What multiplies packed weights is compiled at the first start of every clone.
            "POOLHOUSE_PRECISION": "exact",
            "POOLHOUSE_CONFIG": str(self.folder / "poolhouse.toml"),
            **_of_setup(),
        }


def _of_setup() -> dict[str, str]:
    """Variables for `make setup`: what it would download lies in the folder that was lent."""
    return {
        "PATH": _path(),
        "POOLHOUSE_PYTHON": sys.executable,
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # this is how pip spells "without"
    }


def _path() -> str:
    """Where programs are, but for those of this Python: a page says itself how to get at them."""
    own = {str(Path(sys.prefix) / "bin"), str(Path(sys.executable).parent)}
    return os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part not in own)


def lend_packages(folder: Path) -> Path:
    """A folder with all packages of this Python but poolhouse itself."""
    folder.mkdir()
    for packages in site.getsitepackages():
        for entry in Path(packages).iterdir():
            if "poolhouse" not in entry.name:
                (folder / entry.name).symlink_to(entry)
    return folder


def clone(target: Path, lent: Path) -> Path:
    """The repository as a person clones it, with an environment that has what was lent."""
    shown = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(shown, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in files.rstrip("\0").split("\0"):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    environment = target / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "lent.pth").write_text(f"{lent}\n")
    return target


def set_up(cloned: Path) -> None:
    """`make setup`."""
    subprocess.run(["make", "-s", "setup"], cwd=cloned, env=_of_setup(), check=True)


@dataclass
class Walk:
    """Follows pages on some machines. Close it when they are off: what was started runs on them."""

    machines: dict[str, Machine]
    at: str = "."
    """Where a new terminal opens, below the home folder."""
    before: str = ""
    """What is typed first in every terminal that a page opens."""
    _screens: dict[tuple[str, str], Screen] = field(default_factory=dict)
    _all: list[Screen] = field(default_factory=list)
    _latest: tuple[str, str] = ("", "1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for screen in self._all:
            screen.kill()

    def type(self, text: str, *, on: str = "", terminal: str = "1", until: str = "") -> None:
        """Type commands that no page shows, to set the scene for one."""
        options = {"on": on, "terminal": terminal} | ({"until": until} if until else {})
        self._try(Block("the test itself", len(self._all), "sh", "run", text, options=options))

    def through(self, page: str) -> list[Block]:
        """Do everything that a page says; what was done."""
        done = [block for block in blocks(page) if block.verb not in {"", "not-run"}]
        for block in done:
            self._try(block)
        return done

    def screen(self, on: str = "", terminal: str = "1") -> Screen:
        """What was started last there."""
        return self._screens[on, terminal]

    def _try(self, block: Block) -> None:
        try:
            self._do(block)
        except (AssertionError, ValueError) as error:
            scene = "\n".join(self._scene())
            error.add_note(f"while following {block}:\n{block.text}\n{scene}")
            raise

    def _do(self, block: Block) -> None:
        match block.verb:
            case "run":
                for place in block.places:
                    self._run(block, place)
            case "types":
                for line in block.text.splitlines():
                    self._at(block).type(line)
                self._wait(self._at(block), block)
            case "shows":
                for line in filter(str.strip, block.text.splitlines()):
                    pattern = pattern_of(line.strip())
                    self._at(block).until(lambda text, p=pattern: bool(p.search(text)), line)

    def _run(self, block: Block, place: tuple[str, str]) -> None:
        on, terminal = self._latest = place
        machine = self.machines[on]
        folder = machine.folder / f"terminal-{terminal}"
        new = place not in self._screens
        folder.mkdir(exist_ok=True)
        script = folder / f"{Path(block.page).stem}-{block.line}.sh"
        text = with_what_was_shown(block.text, self.shown())
        script.write_text(self.before + text if new else text)
        if (before := self._screens.get(place)) is not None:
            before.interrupt()
        screen = machine.start(script, folder, machine.home / self.at)
        self._screens[on, terminal] = screen
        self._all.append(screen)
        if "until" in block.options:
            self._wait(screen, block)
        else:
            status = screen.end()
            assert status == int(block.options.get("status", "0")), f"it ended with {status}"

    def _wait(self, screen: Screen, block: Block) -> None:
        if words := block.options.get("until"):
            screen.until(lambda text: words in text, words)

    def _at(self, block: Block) -> Screen:
        said = {"on", "terminal"} & set(block.options)
        return self._screens[block.places[0] if said else self._latest]

    def shown(self) -> str:
        """All that any terminal showed."""
        return "\n".join(screen.text for screen in self._all)

    def _scene(self) -> Iterator[str]:
        for (on, terminal), screen in self._screens.items():
            yield f"---- {on or 'here'}, terminal {terminal}\n{screen.text}"
