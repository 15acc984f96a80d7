"""States of recurrent layers, in slots: they change with every column, so nobody shares one.

A slot keeps its place in memory for as long as it is held. Slot 0 is for padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.state import RecurrentState
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.state import RecurrentShape

__all__ = ["SNAPSHOTS_MAX", "RecurrentPool", "recurrent_slot_bytes"]

SNAPSHOTS_MAX = 15
"""States kept of one frame with snapshots: a frame has at most 16 columns, the last needs none."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """Memory [layers, heads, key size, value size] and window [layers, taps - 1, channels]."""

    memory: Tensor
    window: Tensor


class RecurrentPool:
    """Slots are made when first needed, up to ``limit``, and used again."""

    def __init__(self, shape: RecurrentShape, device: torch.device) -> None:
        self.shape = shape
        self.limit = 0
        """Slots that may be held; rooms add their share to it."""
        self._device = device
        self._slots: list[_Slot | None] = [None]
        self._free: list[int] = []

    @property
    def held_bytes(self) -> int:
        made = sum(slot is not None for slot in self._slots)
        return made * recurrent_slot_bytes(self.shape)

    @property
    def held(self) -> int:
        """Slots in use."""
        return len(self._slots) - 1 - len(self._free)

    def take(self) -> int:
        """A slot with anything in it. Raises :class:`ShardError` when all are held."""
        if self.held >= self.limit:
            raise ShardError("There is no memory reserved for another recurrent state.")
        if self._free:
            return self._free.pop()
        self._slots.append(self._make())
        return len(self._slots) - 1

    def release(self, slot: int) -> None:
        if not 0 < slot < len(self._slots) or slot in self._free:
            raise ValueError(f"nobody holds the recurrent slot {slot}")
        self._free.append(slot)

    def clear(self, slot: int) -> None:
        """The state of a room that has seen nothing: zeros."""
        found = self._slot(slot)
        found.memory.zero_()
        found.window.zero_()

    def copy(self, source: int, to: int) -> None:
        found, target = self._slot(source), self._slot(to)
        target.memory.copy_(found.memory)
        target.window.copy_(found.window)

    def layer(self, slot: int, layer: int) -> RecurrentState:
        """Views of one layer's state."""
        found = self._slot(slot)
        return RecurrentState(found.memory[layer], found.window[layer])

    def addresses(self, slot: int) -> tuple[int, int]:
        """Where memory and window of a slot are: they stay as long as it is held."""
        found = self._slot(slot)
        return found.memory.data_ptr(), found.window.data_ptr()

    def shrink(self) -> None:
        """Give the memory of trailing free slots back."""
        while len(self._slots) > 1 and len(self._slots) - 1 in self._free:
            self._free.remove(len(self._slots) - 1)
            self._slots.pop()

    def _slot(self, slot: int) -> _Slot:
        found = self._slots[slot]
        if found is None:
            found = self._slots[slot] = self._make()
        return found

    def _make(self) -> _Slot:
        shape = self.shape
        sizes = (shape.layers, shape.heads, shape.key_size, shape.value_size)
        return _Slot(
            torch.zeros(sizes, device=self._device),
            torch.zeros((shape.layers, shape.taps - 1, shape.channels), device=self._device),
        )


def recurrent_slot_bytes(shape: RecurrentShape) -> int:
    """Memory of one slot, float32."""
    memory = shape.heads * shape.key_size * shape.value_size
    window = (shape.taps - 1) * shape.channels
    return 4 * shape.layers * (memory + window)
