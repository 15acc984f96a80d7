"""Keys and values of one room on one device, in plain buffers that grow.

Rows are overwritten in place, and attention reads rows ``[0, position]`` only, so going back is a
matter of the caller's position alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["CacheShape", "DenseCache", "SavedRows"]

_FIRST_ROWS = 256


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a cache holds: ``layers`` times keys and values of ``kv_heads`` by ``head_size``."""

    layers: int
    kv_heads: int
    head_size: int
    context_size: int


@dataclass(frozen=True, slots=True)
class SavedRows:
    """A copy of the first ``rows`` rows of every layer: [2, layers, kv heads, rows, size]."""

    rows: int
    data: Tensor

    @property
    def held_bytes(self) -> int:
        return self.data.nbytes


class DenseCache:
    """One buffer [2, layers, kv heads, capacity, size]; capacity doubles up to the context."""

    __slots__ = ("_buffer", "_shape")

    def __init__(self, shape: CacheShape, device: torch.device) -> None:
        self._shape = shape
        self._buffer = self._empty(min(_FIRST_ROWS, shape.context_size), device)

    @property
    def held_bytes(self) -> int:
        return self._buffer.nbytes

    @property
    def capacity(self) -> int:
        """Rows there is memory for now."""
        return self._buffer.shape[3]

    def reserve(self, rows: int) -> None:
        """Make room for ``rows``. Raises :class:`ShardError` past the context or the memory."""
        if rows > self._shape.context_size:
            raise ShardError(
                f"Position {rows} is past the context of {self._shape.context_size} tokens."
            )
        if rows <= self.capacity:
            return
        capacity = self.capacity
        while capacity < rows:
            capacity *= 2
        grown = self._empty(min(capacity, self._shape.context_size), self._buffer.device)
        grown[:, :, :, : self.capacity] = self._buffer
        self._buffer = grown

    def write(self, layer: int, position: int, keys: Tensor, values: Tensor) -> None:
        """Store rows [n, kv heads, size] of columns at ``position ..``; room was reserved."""
        rows = slice(position, position + keys.shape[0])
        self._buffer[0, layer, :, rows] = keys.transpose(0, 1)
        self._buffer[1, layer, :, rows] = values.transpose(0, 1)

    def read(self, layer: int, rows: int) -> tuple[Tensor, Tensor]:
        """Keys and values [kv heads, rows, size]: views, good until the next :meth:`reserve`."""
        return self._buffer[0, layer, :, :rows], self._buffer[1, layer, :, :rows]

    def save(self, rows: int) -> SavedRows:
        """Copy the first ``rows`` rows."""
        return SavedRows(rows, self._buffer[:, :, :, :rows].clone())

    def load(self, saved: SavedRows) -> None:
        """Put saved rows back at the start."""
        self.reserve(saved.rows)
        self._buffer[:, :, :, : saved.rows] = saved.data

    def _empty(self, rows: int, device: torch.device) -> Tensor:
        shape = self._shape
        sizes = (2, shape.layers, shape.kv_heads, rows, shape.head_size)
        try:
            # Zeros, not empty: a masked row may still hold a NaN, and 0 * NaN is NaN.
            return torch.zeros(sizes, dtype=torch.float32, device=device)
        except RuntimeError as error:
            raise ShardError(f"There is no memory for a context of {rows} tokens.") from error
