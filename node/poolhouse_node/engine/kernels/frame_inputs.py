"""What differs from frame to frame, as data on the device: positions, block tables, slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from poolhouse_node.engine.kernels.delta import SLOTS, Slots
from poolhouse_node.engine.paged.pages import blocks_for
from poolhouse_node.engine.pinned import Upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from poolhouse_node.engine.paged.sequence import RoomState

__all__ = ["FrameInputs"]

_ADDRESS_WORDS = 2 * SLOTS * 2
_POSITION_AT = _ADDRESS_WORDS
_TABLE_AT = _POSITION_AT + 4
"""Words of 32 bits before the table; what follows begins at a multiple of 16 bytes."""


class FrameInputs:
    """One buffer with all of it, filled by one copy a frame."""

    def __init__(self, context_size: int, page_rows: int, device: torch.device) -> None:
        self._page_rows = page_rows
        words = _TABLE_AT + blocks_for(context_size, page_rows)
        self._words = np.zeros(words, np.int32)
        self._addresses = self._words[:_ADDRESS_WORDS].view(np.int64).reshape(2, SLOTS)
        self._buffer = torch.zeros(words, dtype=torch.int32, device=device)
        self._upload = Upload(self._buffer.nbytes, device)
        addresses = self._buffer[:_ADDRESS_WORDS].view(torch.int64).view(2, SLOTS)
        self.slots = Slots(addresses[0], addresses[1])
        self.position = self._buffer[_POSITION_AT : _POSITION_AT + 1]
        self.table = self._buffer[_TABLE_AT:]

    @property
    def held_bytes(self) -> int:
        return self._buffer.nbytes

    def put(self, room: RoomState, position: int, columns: int, *, keeps: bool) -> None:
        """A frame of ``room``, with its snapshot slots if it ``keeps`` states. The buffer holds it
        when the stream gets there."""
        self._words[_POSITION_AT] = position
        blocks = room.blocks[: blocks_for(position + columns, self._page_rows)]
        self._words[_TABLE_AT : _TABLE_AT + len(blocks)] = blocks
        self._put_slots(room, room.snapshot_slots if keeps else ())
        used = self._words[: _TABLE_AT + len(blocks)]
        self._upload.send(_bytes_of(used), _bytes_in(self._buffer, used.size))

    def _put_slots(self, room: RoomState, kept: Sequence[int]) -> None:
        recurrent = room.pool.recurrent
        if recurrent is None or room.recurrent_slot is None:
            return
        for place, slot in enumerate([room.recurrent_slot, *kept]):
            self._addresses[:, place] = recurrent.addresses(slot)


def _bytes_of(words: NDArray[np.int32]) -> NDArray[np.uint8]:
    return words.view(np.uint8)


def _bytes_in(buffer: torch.Tensor, words: int) -> torch.Tensor:
    return buffer[:words].view(torch.uint8)
