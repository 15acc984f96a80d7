"""Images built by buildah from a base that debootstrap made, and containers without an engine.

A container has the image's root, read-only, and its own mounts, processes and network namespace. It
has no capability and any uid. Needs root, like the tests of network namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.compose import DEPLOY
from tests.support.program import PATIENCE_S, Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.namespaces import Namespace

__all__ = ["Container", "Image", "Images", "first_process", "images", "kill_container"]

_BASE = "localhost/base"
_CERTIFICATES = "/etc/ssl/certs"
_INSIDE = """
root=$1; shift
mount --bind "$root" "$root"
while [ "$1" != -- ]; do mount --bind "$1" "$root$2"; shift 2; done; shift
mount --options remount,bind,ro "$root"
mount --types proc proc "$root/proc"
mount --types tmpfs --options mode=1777,noexec,nosuid,nodev tmpfs "$root/tmp"
mount --rbind /dev "$root/dev"
exec chroot "$root" "$@"
"""


@dataclass(slots=True)
class Images:
    """A store of a test's own."""

    folder: Path

    def build(self, name: str, target: str | None = None) -> Image:
        """Build deploy/NAME.Dockerfile. What was built before is used again."""
        tag = f"localhost/{name}-{target or 'last'}"
        command = ["build-using-dockerfile", "--isolation", "chroot", "--format", "docker"]
        command += ["--layers", "--build-arg", f"BASE={_BASE}", "--tag", tag]
        if Path(_CERTIFICATES).is_dir():  # this machine's authorities, for its package index
            command += ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
        command += ["--target", target] if target else []
        self.run(*command, "--file", str(DEPLOY / f"{name}.Dockerfile"), str(DEPLOY.parent))
        self.run("rm", "--all")  # every step left a container, as large as what it added
        return Image(self, tag)

    def run(self, *arguments: str) -> str:
        """Run buildah on this store; what it prints."""
        store = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        done = subprocess.run(
            ["buildah", *store, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"buildah {arguments[0]}: {done.stdout[-3000:]}{done.stderr}"
        return done.stdout.strip()

    def add_base(self) -> None:
        """A Debian with Python, as the base of every image."""
        root = self.folder / "base"
        packages = "--include=ca-certificates,python3,python3-venv"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, "trixie", str(root)],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        container = self.run("from", "scratch")
        self.run("add", "--quiet", container, str(root), "/")
        self.run("commit", "--quiet", "--rm", container, _BASE)
        shutil.rmtree(root)


@dataclass(frozen=True, slots=True)
class Image:
    """A built image."""

    store: Images
    tag: str

    @property
    def config(self) -> dict[str, Any]:
        """How its containers run."""
        return json.loads(self.store.run("inspect", "--type", "image", self.tag))["Docker"][
            "config"
        ]

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """Its files, as long as the context is open."""
        container = self.store.run("from", self.tag)
        try:
            yield Path(self.store.run("mount", container))
        finally:
            self.store.run("umount", container)
            self.store.run("rm", container)


@dataclass(slots=True)
class Container:
    """One container of an image whose files are at ``root``."""

    config: Mapping[str, Any]
    root: Path
    folder: Path
    """Where its volumes are."""
    place: Namespace
    uid: int
    env: Mapping[str, str] = field(default_factory=dict)
    binds: Mapping[Path, str] = field(default_factory=dict)
    """Files and folders of this machine, and where they are inside."""

    def volume(self, target: str) -> Path:
        """A volume, begun with what the image has there, owners and all."""
        path = self.folder / target.strip("/").replace("/", "-")
        if not path.exists():
            shutil.copytree(self.root / target.strip("/"), path, symlinks=True)
            shutil.copystat(self.root / target.strip("/"), path)
            owner = (self.root / target.strip("/")).stat()
            os.chown(path, owner.st_uid, owner.st_gid)
        return path

    def start(self, *command: str) -> Program:
        """Run it with these words behind its entry point, or with its own."""
        mounts = {self.volume(target): target for target in self.config.get("Volumes") or {}}
        pairs = [str(word) for pair in (mounts | dict(self.binds)).items() for word in pair]
        words = [*self.config["Entrypoint"], *(command or self.config["Cmd"] or ())]
        isolated = ["unshare", "--mount", "--pid", "--fork", "sh", "-euc", _INSIDE]
        with self.place.entered():
            return Program.of(
                [*isolated, "sh", str(self.root), *pairs, "--", *self._as_user(words)]
            )

    def is_well(self, program: Program, within_s: float = PATIENCE_S) -> bool:
        """Whether its own health check succeeds in time."""
        check = self.config["Healthcheck"]
        kind, *words = check["Test"]
        assert kind == "CMD"
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and program.process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                if self.execute(program, *words, timeout_s=check["Timeout"] / 1e9).returncode == 0:
                    return True
        return False

    def execute(
        self, program: Program, *words: str, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess:
        """Another process in a running container."""
        target = ["nsenter", "--target", str(first_process(program)), "--mount", "--pid", "--net"]
        command = [*target, "--root", "--wd=/", *self._as_user(words)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_s
        )

    def _as_user(self, words: list[str] | tuple[str, ...]) -> list[str]:
        env = {pair.split("=", 1)[0]: pair.split("=", 1)[1] for pair in self.config["Env"]}
        said = [f"{name}={value}" for name, value in (env | dict(self.env)).items()]
        rights = ["--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        user = ["setpriv", f"--reuid={self.uid}", "--regid=0", *rights]
        return [*user, "env", "--ignore-environment", *said, *words]


def first_process(program: Program) -> int:
    """The process that is number 1 in the container, as this machine counts."""
    children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children")
    deadline = time.monotonic() + PATIENCE_S
    while not (found := children.read_text().split()):
        if program.process.poll() is not None:
            raise ProcessLookupError
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(found[0])


def kill_container(program: Program) -> None:
    """Whatever is left of it. A process that changed its user no longer dies with its parent."""
    with suppress(OSError):  # it ended by itself
        os.kill(first_process(program), signal.SIGKILL)
    program.kill()


@contextmanager
def images(folder: Path) -> Iterator[Images]:
    """A store with the base, as long as the context is open; nothing is left of it."""
    assert os.geteuid() == 0, "these tests mount file systems: run them as root"
    for program in ("buildah", "debootstrap", "unshare", "nsenter"):
        assert shutil.which(program), f"the image tests need {program}"
    store = Images(folder)
    try:
        store.add_base()
        yield store
    finally:
        store.run("rm", "--all")
        store.run("rmi", "--all", "--force")
