"""A GGUF model on disk, memory-mapped: opened in milliseconds, read where it is used."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

import numpy as np

from poolhouse_node.weights.errors import GgufError
from poolhouse_node.weights.gguf_header import GgufHeader, LazyArray, TensorInfo, parse_header
from poolhouse_node.weights.parts import expected_parts, map_file, merge_parts, split_count

if TYPE_CHECKING:
    import mmap
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from poolhouse_node.weights.gguf_header import Scalar

__all__ = ["GgufFile", "open_gguf"]


class GgufFile:
    """An open model, of one file or several. Close it, or use it in ``with``.

    Views from :meth:`tensor_data` stay valid after :meth:`close`: the pages are unmapped, and the
    file descriptor is freed, when the last view is gone.
    """

    __slots__ = ("_maps", "header", "path")

    def __init__(self, path: Path, maps: Sequence[mmap.mmap], header: GgufHeader) -> None:
        """``maps`` are the whole files, in the order of :attr:`TensorInfo.part`."""
        self.path = path
        self.header = header
        self._maps: Sequence[mmap.mmap] | None = maps

    @property
    def metadata(self) -> Mapping[str, Scalar | LazyArray]:
        return self.header.metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self.header.tensors

    @property
    def architecture(self) -> str:
        """``general.architecture``; raises :class:`GgufError` when it is missing."""
        return self.text("general.architecture")

    def tensor_data(self, name: str) -> NDArray[np.uint8]:
        """The raw bytes of a tensor: a read-only view, nothing is copied."""
        info = self.header.tensors.get(name)
        if info is None:
            raise GgufError(f"The model file has no tensor {name!r}.")
        if self._maps is None:
            raise GgufError("The model file is closed.")
        return np.frombuffer(self._maps[info.part], np.uint8, info.size_bytes, info.offset)

    def text(self, key: str, default: str | None = None) -> str:
        """A text of the metadata; raises :class:`GgufError` for other types."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise GgufError(f"The metadata {key!r} of the model file is not a text.")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer of the metadata, not negative."""
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise GgufError(f"The metadata {key!r} of the model file is not a whole number.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number of the metadata."""
        value = self._get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise GgufError(f"The metadata {key!r} of the model file is not a number.")
        return float(value)

    def _get(self, key: str, default: Scalar | None) -> Scalar | LazyArray:
        value = self.header.metadata.get(key, default)
        if value is None:
            raise GgufError(f"The model file lacks the metadata {key!r}.")
        return value

    def close(self) -> None:
        """Let the file go. May be called twice."""
        maps, self._maps = self._maps or (), None
        for mapped in maps:
            # Views still alive keep the map; their end unmaps it.
            with contextlib.suppress(BufferError):
                mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_gguf(path: Path) -> GgufFile:
    """Map a file and read its header; of a model in several files, ``path`` is the first.

    Raises :class:`ModelFileError` (nearly always :class:`GgufError`) when one cannot be opened or
    is not a sound GGUF file.
    """
    with contextlib.ExitStack() as opened:
        maps = [opened.enter_context(map_file(path, GgufError))]
        header = _header(path, maps[0])
        if split_count(header) > 1:
            headers = [header]
            for part in expected_parts(path, split_count(header))[1:]:
                maps.append(opened.enter_context(map_file(part, GgufError)))
                headers.append(_header(part, maps[-1]))
            header = merge_parts(headers)
        opened.pop_all()
        return GgufFile(path, maps, header)


def _header(path: Path, mapped: mmap.mmap) -> GgufHeader:
    try:
        return parse_header(mapped, file_size=len(mapped))
    except GgufError as error:
        sentence = f"{path.name} cannot be used. {error}"
        raise GgufError(sentence, truncated=error.truncated) from error
