"""A GGUF file on disk, memory-mapped: opened in milliseconds, read where it is used."""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, Self

import numpy as np

from poolhouse_node.weights.errors import GgufError
from poolhouse_node.weights.gguf_header import GgufHeader, LazyArray, TensorInfo, parse_header

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from poolhouse_node.weights.gguf_header import Scalar

__all__ = ["GgufFile", "open_gguf"]


class GgufFile:
    """An open file. Close it, or use it in ``with``.

    Views from :meth:`tensor_data` stay valid after :meth:`close`: the pages are unmapped, and the
    file descriptor is freed, when the last view is gone.
    """

    __slots__ = ("_map", "header", "path")

    def __init__(self, path: Path, mapped: mmap.mmap, header: GgufHeader) -> None:
        self.path = path
        self.header = header
        self._map: mmap.mmap | None = mapped

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
        if self._map is None:
            raise GgufError("The GGUF file is closed.")
        return np.frombuffer(self._map, np.uint8, info.size_bytes, info.offset)

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
        mapped, self._map = self._map, None
        if mapped is not None:
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
    """Map a file and read its header.

    Raises :class:`GgufError` when it cannot be opened or is not a sound GGUF file.
    """
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:  # an empty file cannot be mapped
        raise GgufError(f"{path.name} is empty.", truncated=True) from None
    except OSError as error:
        raise GgufError(f"{path} cannot be opened: {error.strerror}.") from error
    try:
        return GgufFile(path, mapped, parse_header(mapped, file_size=len(mapped)))
    except GgufError as error:
        mapped.close()
        sentence = f"{path.name} cannot be used. {error}"
        raise GgufError(sentence, truncated=error.truncated) from error
