"""What differs from frame to frame, as data on the device: positions, block tables, slots.

With it may go what a frame brings, token ids or hidden states, so that one copy does for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from poolhouse_node.engine.kernels.delta import SLOTS, Slots
from poolhouse_node.engine.paged.pages import blocks_for
from poolhouse_node.engine.pinned import Upload, pinned_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.engine.paged.sequence import RoomState

__all__ = ["FrameInputs"]

_WORD_BYTES = 4
_ADDRESS_WORDS = 2 * SLOTS * 2
_POSITION_AT = _ADDRESS_WORDS
_TABLE_AT = _POSITION_AT + 4
"""Words of 32 bits before the table; what follows begins at a multiple of 16 bytes."""


class FrameInputs:
    """One page of the host and its copy on the device: words, then what a frame brings."""

    def __init__(
        self, context_size: int, page_rows: int, payload_bytes: int, device: torch.device
    ) -> None:
        self._page_rows = page_rows
        words = -(-(_TABLE_AT + blocks_for(context_size, page_rows)) // 4) * 4
        self._words_bytes = words * _WORD_BYTES
        self._page = pinned_page(self._words_bytes + payload_bytes, device)
        self._buffer = torch.zeros_like(self._page, device=device)
        self._upload = Upload(self._words_bytes, device)
        noted = self._page.numpy()
        self._words = noted[: self._words_bytes].view(np.int32)
        self._addresses = self._words[:_ADDRESS_WORDS].view(np.int64).reshape(2, SLOTS)
        self._payload = noted[self._words_bytes :]
        on_device = self._buffer[: self._words_bytes].view(torch.int32)
        addresses = on_device[:_ADDRESS_WORDS].view(torch.int64).view(2, SLOTS)
        self.slots = Slots(addresses[0], addresses[1])
        self.position = on_device[_POSITION_AT : _POSITION_AT + 1]
        self.table = on_device[_TABLE_AT:]
        self.payload = self._buffer[self._words_bytes :]
        """What the frame brought, bytes."""

    @property
    def held_bytes(self) -> int:
        return self._buffer.nbytes

    def note(self, room: RoomState, position: int, columns: int, *, keeps: bool) -> None:
        """A frame of ``room``, with its snapshot slots if it ``keeps`` states. On the host only:
        :meth:`send` or :meth:`copy_in` follows."""
        self._words[_POSITION_AT] = position
        blocks = room.blocks[: blocks_for(position + columns, self._page_rows)]
        self._words[_TABLE_AT : _TABLE_AT + len(blocks)] = blocks
        self._note_slots(room, room.snapshot_slots if keeps else ())

    def note_payload(self, data: bytes) -> None:
        """What the frame brings."""
        self._payload[: len(data)] = np.frombuffer(data, np.uint8)

    def send(self) -> None:
        """What was noted of the room is on the device when the stream gets there. The page is
        free again at once."""
        noted = self._words.view(np.uint8)
        self._upload.send(noted, self._buffer[: self._words_bytes])

    def copy_in(self, payload_bytes: int) -> None:
        """The same, and the payload, always from the same page: a graph repeats it. Nothing may be
        noted before the copy is done."""
        size = self._words_bytes + payload_bytes
        self._buffer[:size].copy_(self._page[:size], non_blocking=True)

    def _note_slots(self, room: RoomState, kept: Sequence[int]) -> None:
        recurrent = room.pool.recurrent
        if recurrent is None or room.recurrent_slot is None:
            return
        for place, slot in enumerate([room.recurrent_slot, *kept]):
            self._addresses[:, place] = recurrent.addresses(slot)
