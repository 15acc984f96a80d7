"""Services of a compose file as plain processes, each in a network namespace of its name.

What the file says is used as it is: command, variables, secrets, volumes, other services' names.
Instead of an image each service gets its own view of a few paths: its secrets, its volumes, and a
table of the others' addresses.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tests.support.compose import DEPLOY
from tests.support.program import PATIENCE_S, Program

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.compose import Compose
    from tests.support.namespaces import Networks

__all__ = ["POOLHOUSE", "ComposeProcesses"]

POOLHOUSE = (sys.executable, "-m", "poolhouse_node")
_HEALTH = ("CMD", *POOLHOUSE, "health")
_ENTRY_POINTS = {"relay": ("turnserver",), "redis": (), "prometheus": ("prometheus",)}
"""Of images; those of our own run the program."""
_INSIDE = """
made=" "
while [ "$1" != -- ]; do
  if ! [ -e "$2" ]; then
    parent=${2%/*}
    case $made in
      *" $parent "*) ;;
      *) mount --types tmpfs tmpfs "$parent"; made="$made$parent " ;;
    esac
    mkdir "$2"
  fi
  mount --bind "$1" "$2"; shift 2
done; shift
exec "$@"
"""


@dataclass(slots=True)
class ComposeProcesses:
    """Services are started by name; what is left of them at the end is killed."""

    compose: Compose
    net: Networks
    folder: Path
    env: dict[str, str]
    """Variables of this machine that every service gets."""
    _ending: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        subprocess.run(
            [DEPLOY / "make-secrets", self.net["relay"].address, self.folder],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        lines = ["127.0.0.1 localhost"]
        lines += [f"{self.net[name].address} {name}" for name in self.compose.services]
        (self.folder / "hosts").write_text("\n".join([*lines, ""]))
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def start(self, service: str) -> Program:
        """The service as its container would run it."""
        return self._run(service, self._words(service))

    def execute(self, service: str, command: str) -> Program:
        """A shell's command where the service runs, to its end."""
        program = self._run(service, ["sh", "-euc", command])
        program.end(PATIENCE_S)
        return program

    def until_healthy(self, service: str) -> None:
        """Wait until its health check succeeds where it runs: the file's, else its image's."""
        test = self.compose.services[service].get("healthcheck", {"test": _HEALTH})["test"]
        assert test[0] == "CMD"
        deadline = time.monotonic() + PATIENCE_S
        while self.execute(service, shlex.join(test[1:])).process.returncode != 0:
            assert time.monotonic() < deadline, f"{service} is not well"

    def volume(self, name: str) -> Path:
        """A named volume, or a folder beside the file."""
        path = DEPLOY / name if "/" in name else self.folder / "volumes" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _run(self, service: str, words: list[str]) -> Program:
        binds = [(self.folder / "hosts", "/etc/hosts"), (self.folder / "secrets", "/run/secrets")]
        binds += [
            (self.volume(name), path)
            for name, path in self.compose.volumes(service)
            if not _is_at_the_root(path)
        ]
        pairs = [str(word) for bind in binds for word in bind]
        inside = ["unshare", "--mount", "sh", "-euc", _INSIDE, "sh", *pairs, "--"]
        with self.net[service].entered():
            program = Program.of([*inside, *words], env=self.env | self._environment(service))
        self._ending.callback(program.kill)
        return program

    def _words(self, service: str) -> list[str]:
        first, *rest = [*_ENTRY_POINTS.get(service, POOLHOUSE), *self.compose.command(service)]
        for name, path in self.compose.volumes(service):
            if _is_at_the_root(path):  # no mount point can be made there
                rest = [re.sub(rf"={path}$", f"={self.volume(name)}", word) for word in rest]
        found = shutil.which(first)
        assert found, f"the test needs {first}"
        return [found, *rest]

    def _environment(self, service: str) -> dict[str, str]:
        return self.compose.image_environment(service) | self.compose.environment(service)


def _is_at_the_root(path: str) -> bool:
    return path.count("/") == 1
