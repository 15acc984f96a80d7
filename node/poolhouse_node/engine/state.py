"""What layers need of a room's state, whoever keeps it: one pass of columns over it.

A model part (``engine.models``) is weights only and serves any number of rooms. For every pass it
is handed a :class:`RoomPass`, which writes new keys and values, attends over the old ones, and
gives recurrent layers their state. How that is paged, shared and saved is ``engine.paged``'s
business.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AttentionShape", "RecurrentShape", "RecurrentState", "RoomPass", "StateShape"]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Keys and values of ``layers`` layers: ``kv_heads`` by ``head_size`` per position, each."""

    layers: int
    kv_heads: int
    head_size: int
    value_bytes: int = 4
    """Of a key's or value's number: 4 for float32, 2 for half floats."""


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """State of ``layers`` recurrent layers (engine, sections 4 and 7), float32.

    Per layer a memory [heads, key_size, value_size] and the last ``taps - 1`` inputs of the
    convolution, a window [taps - 1, channels].
    """

    layers: int
    heads: int
    key_size: int
    value_size: int
    channels: int
    taps: int


@dataclass(frozen=True, slots=True)
class StateShape:
    """The state of one room in one model part. Either kind of layer may be missing."""

    context_size: int
    attention: AttentionShape | None = None
    recurrent: RecurrentShape | None = None

    def in_halves(self) -> StateShape:
        """With keys and values as half floats, which is what kernels read."""
        if self.attention is None:
            return self
        return replace(self, attention=replace(self.attention, value_bytes=2))


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """Views of one layer's state, to be updated in place. See :class:`RecurrentShape`."""

    memory: Tensor
    window: Tensor


class RoomPass(Protocol):
    """``columns`` new columns of one room at ``position ..``.

    Layers are counted by kind: attention layer 0 is the first one of this part that attends.
    """

    position: int
    columns: int
    keeps_snapshots: bool
    """The state after every column but the last must be kept (generation, section 11)."""

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Store keys and values of the new columns, then attend causally over all rows.

        ``queries`` [n, heads, size], rotated already; ``keys``, ``values`` [n, kv heads, size].
        Scores are scaled by ``1 / sqrt(size)``. Returns [n, heads * size].
        """
        ...

    def recurrent(self, layer: int) -> RecurrentState:
        """The state before the first new column; after the call of the layer, after the last."""
        ...

    def snapshot(self, layer: int, column: int) -> RecurrentState:
        """Where the state after ``column`` is kept, to be written by the layer.

        Only for columns but the last, and only when :attr:`keeps_snapshots`.
        """
        ...
