"""One room's state: the live conversation, and saved ones that share its blocks.

Saving notes which blocks there are and copies no keys and values. A block that somebody else holds
is never written: whoever writes next gets a block of its own, which is one copy at most, because
every block but the last is full. Which of the two stays in place is chosen so that the live
conversation lies side by side in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from poolhouse_node.engine.paged.pages import blocks_for
from poolhouse_node.engine.paged.pool import RoomShare
from poolhouse_node.engine.paged.recurrent import SNAPSHOTS_MAX
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.engine.paged.pool import StatePool
    from poolhouse_node.engine.state import StateShape

__all__ = ["RoomState", "Saved"]


@dataclass(frozen=True, slots=True)
class Saved:
    """A conversation as it was: its blocks, how many columns they hold, its recurrent slot."""

    blocks: tuple[int, ...]
    length: int
    recurrent_slot: int | None


@dataclass(frozen=True, slots=True)
class _Frame:
    """The last frame with snapshots: columns ``[position, position + columns)``."""

    position: int
    columns: int


class RoomState:
    """State of one room in one pool. Raises :class:`ShardError` for what cannot be.

    Whatever is computed is computed inside :meth:`frame`.
    """

    def __init__(self, pool: StatePool, shape: StateShape, saved_states: int) -> None:
        """``saved_states``: for so many full conversations memory is reserved."""
        self.pool = pool
        self.length = 0
        """Columns in the live conversation: the next position to write."""
        self.blocks: list[int] = []
        self.saved: dict[int, Saved] = {}
        self.snapshot_slots: list[int] = []
        self.recurrent_slot: int | None = None
        self._context_size = shape.context_size
        self._attends = shape.attention is not None
        self._share = RoomShare.of(shape, saved_states, pool.page_rows)
        self._frame: _Frame | None = None
        self._is_broken = False
        pool.admit(self, self._share)
        if pool.recurrent is not None:
            self.recurrent_slot = pool.recurrent.take()
            pool.recurrent.clear(self.recurrent_slot)

    @property
    def live_blocks(self) -> Sequence[int]:
        return self.blocks

    def frame(self, position: int, columns: int, *, snapshots: bool) -> _Writing:
        """Inside, rows ``position ..`` can be written; those that were there are gone.

        If computing fails, the conversation ends where the frame began, and a room with recurrent
        layers must be reset or loaded before anything else.
        """
        return _Writing(self, position, columns, snapshots=snapshots)

    def begin(self, position: int, columns: int, *, snapshots: bool) -> None:
        """For :meth:`frame`."""
        self._check(position, columns, snapshots=snapshots)
        # Snapshots of an earlier frame stay good for as long as its columns do.
        if snapshots or (self._frame and position < self._frame.position + self._frame.columns):
            self._frame = None
        self._cut(position)
        try:
            self._make_room(position, columns, snapshots=snapshots)
        except BaseException:
            self._cut(position)
            raise
        self._is_broken = self.pool.recurrent is not None

    def end(self, position: int, columns: int, *, snapshots: bool, failed: bool) -> None:
        """For :meth:`frame`."""
        if failed:
            self._cut(position)
            return
        self._is_broken = False
        self.length = position + columns
        if snapshots:
            self._frame = _Frame(position, columns)

    def rollback(self, column: int) -> None:
        """Go back to the state after ``column`` of the last frame with snapshots."""
        frame = self._frame
        if frame is None or not 0 <= column < frame.columns:
            raise ShardError(f"There is no snapshot after column {column}.")
        length = frame.position + column + 1
        self._restore_snapshot(frame, column)
        self._cut(length)
        self._frame = _Frame(frame.position, column + 1)
        self._is_broken = False

    def save(self, slot: int) -> None:
        """Keep the conversation as ``slot``, replacing any."""
        self._require_whole()
        # Whatever the live conversation does next, it must find its blocks.
        held = set(self.blocks).union(*(s.blocks for n, s in self.saved.items() if n != slot))
        if len(held) > self._share.saved_blocks:
            raise ShardError("There is no memory reserved for another saved state.")
        self.drop([slot])
        copy = None
        if self.pool.recurrent is not None and self.recurrent_slot is not None:
            copy = self.pool.recurrent.take()
            self.pool.recurrent.copy(self.recurrent_slot, copy)
        self.pool.ledger.share(self.blocks)
        self.saved[slot] = Saved(tuple(self.blocks), self.length, copy)

    def load(self, slot: int) -> None:
        """Go on from a saved conversation, which stays saved."""
        saved = self.saved.get(slot)
        if saved is None:
            raise ShardError(f"There is no saved state {slot}.")
        self.pool.ledger.share(saved.blocks)
        self.pool.ledger.release(self.blocks)
        self.blocks, self.length = list(saved.blocks), saved.length
        if self.pool.recurrent is not None and self.recurrent_slot is not None:
            self.pool.recurrent.copy(saved.recurrent_slot or 0, self.recurrent_slot)
        self._frame = None
        self._is_broken = False

    def drop(self, slots: Sequence[int]) -> None:
        """Forget saved conversations; unknown slots are ignored."""
        for slot in slots:
            saved = self.saved.pop(slot, None)
            if saved is None:
                continue
            self.pool.ledger.release(saved.blocks)
            if self.pool.recurrent is not None and saved.recurrent_slot is not None:
                self.pool.recurrent.release(saved.recurrent_slot)

    def drop_all(self) -> None:
        self.drop(list(self.saved))

    def reset(self) -> None:
        """Start a new conversation. Saved ones stay."""
        self._cut(0)
        if self.pool.recurrent is not None and self.recurrent_slot is not None:
            self.pool.recurrent.clear(self.recurrent_slot)
        self._frame = None
        self._is_broken = False

    def close(self) -> None:
        """Give everything back. Nothing may be called afterwards."""
        self.drop_all()
        self._cut(0)
        recurrent = self.pool.recurrent
        if recurrent is not None:
            for held in (self.recurrent_slot, *self.snapshot_slots):
                if held is not None:
                    recurrent.release(held)
        self.recurrent_slot, self.snapshot_slots = None, []
        self.pool.dismiss(self, self._share)

    def replace_saved(self, block: int, copy: int) -> int:
        """See :class:`~poolhouse_node.engine.paged.pool.BlockHolder`."""
        holders = [slot for slot, saved in self.saved.items() if block in saved.blocks]
        for slot in holders:
            saved = self.saved[slot]
            blocks = tuple(copy if held == block else held for held in saved.blocks)
            self.saved[slot] = replace(saved, blocks=blocks)
        return len(holders)

    def _check(self, position: int, columns: int, *, snapshots: bool) -> None:
        if columns < 1:
            raise ShardError("A frame without columns cannot be computed.")
        if not 0 <= position <= self.length:
            raise ShardError(f"Position {position} leaves a gap after {self.length} columns.")
        if position + columns > self._context_size:
            raise ShardError(
                f"Position {position + columns} is past the context of {self._context_size} tokens."
            )
        if self.pool.recurrent is None:
            return
        self._require_whole()
        if position != self.length:
            raise ShardError(
                f"Recurrent layers cannot go back from position {self.length} to {position}."
            )
        if snapshots and columns > SNAPSHOTS_MAX + 1:
            raise ShardError(f"A frame with snapshots has at most {SNAPSHOTS_MAX + 1} columns.")

    def _make_room(self, position: int, columns: int, *, snapshots: bool) -> None:
        if self._attends:
            if position % self.pool.page_rows:
                self._own_last_block()
            needed = blocks_for(position + columns, self.pool.page_rows)
            while len(self.blocks) < needed:
                self.blocks.append(self.pool.take_next(self.blocks[-1] if self.blocks else None))
        if snapshots and self.pool.recurrent is not None:
            while len(self.snapshot_slots) < columns - 1:
                self.snapshot_slots.append(self.pool.recurrent.take())

    def _require_whole(self) -> None:
        if self._is_broken:
            raise ShardError("A frame failed halfway: the state must be reset or loaded first.")

    def _cut(self, length: int) -> None:
        keep = blocks_for(length, self.pool.page_rows) if self._attends else 0
        self.pool.ledger.release(self.blocks[keep:])
        del self.blocks[keep:]
        self.length = length

    def _own_last_block(self) -> None:
        """Let nobody else hold the block that is about to be written."""
        ledger, block = self.pool.ledger, self.blocks[-1]
        others = ledger.references(block) - 1
        if not others:
            return
        before = self.blocks[-2] if len(self.blocks) > 1 else None
        if before is not None and self.pool.can_follow(before, block):
            self.blocks[-1] = self.pool.take_copy(block, before + 1)
            ledger.release([block])
            return
        copy = self.pool.take_copy(block)
        ledger.hand_over(block, copy, self.replace_saved(block, copy))

    def _restore_snapshot(self, frame: _Frame, column: int) -> None:
        recurrent, slot = self.pool.recurrent, self.recurrent_slot
        if recurrent is None or slot is None:
            return
        if column < frame.columns - 1:
            recurrent.copy(self.snapshot_slots[column], slot)
        elif self.length != frame.position + frame.columns or self._is_broken:
            raise ShardError(f"There is no snapshot after column {column}.")


class _Writing:
    """A frame that is being computed. A class and not a generator, as every token passes here."""

    __slots__ = ("_columns", "_position", "_room", "_snapshots")

    def __init__(self, room: RoomState, position: int, columns: int, *, snapshots: bool) -> None:
        self._room, self._position, self._columns = room, position, columns
        self._snapshots = snapshots

    def __enter__(self) -> None:
        self._room.begin(self._position, self._columns, snapshots=self._snapshots)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._room.end(
            self._position, self._columns, snapshots=self._snapshots, failed=error is not None
        )
