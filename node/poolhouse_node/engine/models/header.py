"""Sizes of a model out of its file's header, each checked where it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["HeaderReader", "check_layer_tensors"]


class HeaderReader:
    """Keys of the file's own architecture, without its name in front.

    Methods raise ``GgufError`` for a missing key or one of another type and :class:`ShardError`
    for a value that cannot be.
    """

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self._prefix = file.architecture

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self._file.integer(f"{self._prefix}.{key}", default)
        if value < 1:
            raise ShardError(f"The model file's header says {value} for {key}.")
        return value

    def count_or_none(self, key: str) -> int:
        """A whole number; 0 when the file does not say."""
        return self._file.integer(f"{self._prefix}.{key}", 0)

    def number(self, key: str, default: float | None = None) -> float:
        return self._file.number(f"{self._prefix}.{key}", default)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._file.metadata.get(f"{self._prefix}.{key}", default)
        if not isinstance(value, bool):
            raise ShardError(f"The model file's header says neither yes nor no for {key}.")
        return value

    def rotated(self, head_size: int) -> int:
        """Values of a head that rotate: an even number, at most the whole head."""
        rotated = self.count("rope.dimension_count", head_size)
        scaling = self._file.text(f"{self._prefix}.rope.scaling.type", "none")
        if scaling != "none":
            raise ShardError(f"This engine cannot stretch positions ({scaling} rope scaling).")
        self.fits(rotated % 2 == 0 and rotated <= head_size)
        return rotated

    def fits(self, condition: bool) -> None:
        """Raise unless sizes go together."""
        if not condition:
            raise ShardError("The sizes in the model file's header do not fit each other.")


def check_layer_tensors(file: GgufFile, layers: Iterable[int], expected: Iterable[str]) -> None:
    """Raise :class:`ShardError` when a layer has a tensor besides the expected ones.

    Leaving one out (a bias, an adapter) would compute nonsense.
    """
    prefixes = tuple(f"blk.{layer}." for layer in layers)
    known = set(expected)
    for name in file.tensors:
        if name.startswith(prefixes) and name not in known:
            raise ShardError(
                f"This engine does not know the tensor {name} of a {file.architecture} model."
            )
    if "rope_freqs.weight" in file.tensors:
        raise ShardError("This engine cannot stretch positions (rope_freqs.weight).")
