"""The pool of one model part on one device: memory for all its rooms, and each room's share.

Nothing is evicted. A room is let in with a share that covers what its host may use (decision 14),
and inside its share it always finds room; memory is taken as it is needed, up to all the shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.engine.paged.ledger import TRASH_BLOCK, BlockLedger
from poolhouse_node.engine.paged.pages import (
    PAGE_ROWS,
    KeyValuePages,
    attention_block_bytes,
    blocks_for,
)
from poolhouse_node.engine.paged.recurrent import (
    SNAPSHOTS_MAX,
    RecurrentPool,
    recurrent_slot_bytes,
)
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import torch

    from poolhouse_node.engine.state import StateShape

__all__ = ["BlockHolder", "RoomShare", "StatePool", "share_bytes"]

_FIRST_BLOCKS = 2  # the trash block and one


@dataclass(frozen=True, slots=True)
class RoomShare:
    """What one room may take: its live conversation in full, and room for saved ones."""

    live_blocks: int
    saved_blocks: int
    recurrent_slots: int

    @classmethod
    def of(cls, shape: StateShape, saved_states: int, page_rows: int = PAGE_ROWS) -> RoomShare:
        """Enough for ``saved_states`` full conversations besides the live one."""
        blocks = blocks_for(shape.context_size, page_rows) if shape.attention else 0
        slots = 1 + saved_states + SNAPSHOTS_MAX if shape.recurrent else 0
        return cls(blocks, blocks * saved_states, slots)


def share_bytes(shape: StateShape, share: RoomShare, page_rows: int = PAGE_ROWS) -> int:
    """Memory of a share when it is used in full."""
    block = attention_block_bytes(shape.attention, page_rows) if shape.attention else 0
    slot = recurrent_slot_bytes(shape.recurrent) if shape.recurrent else 0
    return block * (share.live_blocks + share.saved_blocks) + slot * share.recurrent_slots


class BlockHolder(Protocol):
    """A room, as the pool needs to know it."""

    @property
    def live_blocks(self) -> Collection[int]:
        """Blocks of the conversation that grows."""
        ...

    def replace_saved(self, block: int, copy: int) -> int:
        """Let saved states hold ``copy`` instead of ``block``; how many did."""
        ...


class StatePool:
    """Blocks of keys and values and slots of recurrent state, for rooms of one model part."""

    def __init__(
        self,
        shape: StateShape,
        device: torch.device,
        *,
        page_rows: int = PAGE_ROWS,
        heads_first: bool | None = None,
    ) -> None:
        """``heads_first``: see ``pages``; by default as whoever reads them likes it."""
        reads_tables = shape.attention is not None and shape.attention.value_bytes == 2
        if heads_first is None:
            heads_first = device.type == "cpu" and not reads_tables
        # Kernels with block tables run in graphs, which know addresses: nothing moves in a
        # conversation when its room has all its blocks from the start.
        self._takes_all = reads_tables
        self.page_rows = page_rows
        self.ledger = BlockLedger(_FIRST_BLOCKS)
        self.pages = (
            KeyValuePages(
                shape.attention,
                _FIRST_BLOCKS,
                device,
                page_rows=page_rows,
                heads_first=heads_first,
            )
            if shape.attention
            else None
        )
        self.recurrent = RecurrentPool(shape.recurrent, device) if shape.recurrent else None
        self.block_limit = TRASH_BLOCK + 1
        """Blocks there may be: all shares together."""
        self._rooms: list[BlockHolder] = []
        self._live_blocks = 0

    @property
    def held_bytes(self) -> int:
        return sum(part.held_bytes for part in (self.pages, self.recurrent) if part is not None)

    def admit(self, room: BlockHolder, share: RoomShare) -> None:
        """Let a room in. Whether the device has the memory was asked before."""
        self._rooms.append(room)
        self.block_limit += share.live_blocks + share.saved_blocks
        if self.recurrent is not None:
            self.recurrent.limit += share.recurrent_slots
        if self._takes_all:
            self._live_blocks += share.live_blocks
            try:
                self._grow(TRASH_BLOCK + 1 + self._live_blocks)
            except ShardError:
                self.dismiss(room, share)
                raise

    def dismiss(self, room: BlockHolder, share: RoomShare) -> None:
        """Take a room's share back; it holds nothing any more."""
        self._rooms.remove(room)
        self.block_limit -= share.live_blocks + share.saved_blocks
        self._live_blocks -= share.live_blocks if self._takes_all else 0
        if self.recurrent is not None:
            self.recurrent.limit -= share.recurrent_slots
            self.recurrent.shrink()

    def take_next(self, after: int | None) -> int:
        """A block for a conversation to go on in, right ``after`` its last one if that can be."""
        if after is not None:
            if after + 1 == self.ledger.size:
                self._grow()
            if self._runs_matter and not self.ledger.is_free(after + 1):
                self._clear_the_way(after + 1)
            if self.ledger.is_free(after + 1):
                return self.ledger.take(after + 1)
        return self._take(self._free_block(self.ledger.gap_start))

    def take_copy(self, source: int, near: int | None = None) -> int:
        """Copy a block: to ``near`` if given (it is free), else out of everybody's way."""
        if near is None:
            near = self._free_block(self.ledger.spare)
        copy = self._take(near)
        if self.pages is not None:
            self.pages.copy_block(source, copy)
        return copy

    def can_follow(self, before: int | None, block: int) -> bool:
        """Whether a copy of ``block`` right after ``before`` would mend a broken run."""
        return (
            self._runs_matter
            and before is not None
            and block != before + 1
            and self.ledger.is_free(before + 1)
        )

    @property
    def _runs_matter(self) -> bool:
        return self.pages is not None and self.pages.heads_first

    def _clear_the_way(self, block: int) -> None:
        """Move a block that only saved states hold, so that a run can go on."""
        if block >= self.ledger.size or any(block in room.live_blocks for room in self._rooms):
            return
        to = self._free_block(self.ledger.spare)
        if to is None:
            return
        copy = self.take_copy(block, to)
        holders = sum(room.replace_saved(block, copy) for room in self._rooms)
        self.ledger.hand_over(block, copy, holders)

    def _take(self, block: int | None) -> int:
        if block is None:
            raise ShardError("There is no memory reserved for more of this conversation.")
        return self.ledger.take(block)

    def _free_block(self, choose: Callable[[], int | None]) -> int | None:
        found = choose()
        if found is None:
            self._grow()
            found = choose()
        return found

    def _grow(self, wanted: int = 0) -> None:
        """Twice the blocks, or as many as ``wanted``; at most all shares. Tensors move."""
        size = min(self.block_limit, wanted or 2 * self.ledger.size)
        if size <= self.ledger.size:
            return
        if self.pages is not None:
            try:
                self.pages.grow(size)
            except RuntimeError as error:
                rows = size * self.page_rows
                raise ShardError(f"There is no memory for a context of {rows} tokens.") from error
        self.ledger.grow(size)
