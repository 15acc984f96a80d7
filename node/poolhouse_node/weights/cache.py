"""Where model files live. A file has its final name only when it is whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poolhouse_node.weights.errors import PullCancelled, PullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["CacheEntry", "ModelCache", "default_cache"]

_PART = ".part"
_LOCK = ".lock"
_LOCK_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file in the cache. ``whole`` is False for a download that was cut short."""

    key: str
    path: Path
    size_bytes: int
    whole: bool


@dataclass(frozen=True, slots=True)
class ModelCache:
    """A folder per model key, the model's files in it, ``.part`` files beside them."""

    root: Path

    def path(self, key: str, file_name: str) -> Path:
        """Where a whole file lies, or will."""
        return self.root / key / file_name

    def part_path(self, key: str, file_name: str) -> Path:
        """Where it is put together."""
        return self.root / key / (file_name + _PART)

    def folder(self, key: str) -> Path:
        """The model's folder, made now. Raises :class:`PullError` when it cannot be."""
        folder = self.root / key
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PullError(f"The cache {folder} cannot be made: {error.strerror}.") from error
        return folder

    def entries(self) -> list[CacheEntry]:
        """All files, by key and name."""
        found = [
            CacheEntry(folder.name, path, path.stat().st_size, whole=path.suffix != _PART)
            for folder in _visible(self.root)
            if folder.is_dir()
            for path in _visible(folder)
            if path.is_file()
        ]
        return sorted(found, key=lambda entry: entry.path)

    def finish(self, key: str, file_name: str) -> Path:
        """Give a whole ``.part`` file its final name, in one step."""
        final = self.path(key, file_name)
        part = self.part_path(key, file_name)
        with part.open("rb+") as file:
            os.fsync(file.fileno())  # a power cut must not leave a hole under the final name
        part.replace(final)
        return final

    @contextlib.contextmanager
    def lock(self, key: str, cancelled: Callable[[], bool]) -> Iterator[None]:
        """Only one process at a time fetches a model: others wait here, then find it done.

        Raises :class:`PullCancelled` when ``cancelled`` says so while waiting.
        """
        with (self.folder(key) / _LOCK).open("w") as file:
            while not _try_lock(file.fileno()):
                if cancelled():
                    raise PullCancelled("Waiting for another download of this model was stopped.")
                time.sleep(_LOCK_POLL_S)
            yield  # closing the file lets the lock go, also when this process dies


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _visible(folder: Path) -> list[Path]:
    """Entries of a folder, none when it is not there."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def default_cache(environment: Mapping[str, str]) -> ModelCache:
    """``$POOLHOUSE_CACHE``, else ``poolhouse/models`` in the user's cache folder."""
    own = environment.get("POOLHOUSE_CACHE")
    if own:
        return ModelCache(Path(own).expanduser())
    shared = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return ModelCache(Path(shared).expanduser() / "poolhouse" / "models")
