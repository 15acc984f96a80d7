"""Rooms that share a compute thread take turns, a frame each (design, decision 9)."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.generate.ports import Compute

__all__ = ["RoomTurns", "Turns"]


class Turns:
    """Hands one compute thread round: a call of this room, then one of the next that waits.

    However many calls a room has waiting, another one waits for the call that runs and for no more
    than one of each room.
    """

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self._is_taken = False
        self._queue: deque[RoomTurns] = deque()
        """Rooms that wait, each once, in the order of their turns."""

    def for_room(self) -> RoomTurns:
        """The thread as one room sees it."""
        return RoomTurns(self)

    async def begin(self, room: RoomTurns) -> None:
        """Wait for a turn of ``room``. Each is ended by :meth:`end`."""
        if not self._is_taken:
            self._is_taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        room.waiting.append(turn)
        if room not in self._queue:
            self._queue.append(room)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came in the moment of the cancelling
                self.end()
            raise

    def end(self) -> None:
        """The next room's turn."""
        while self._queue:
            room = self._queue.popleft()
            turn = room.next_turn()
            if room.waiting:
                self._queue.append(room)
            if turn is not None:
                turn.set_result(None)
                return
        self._is_taken = False


@dataclass(slots=True, eq=False)
class RoomTurns:
    """Satisfies ``generate.ports.Compute`` for one room."""

    turns: Turns
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    async def run[T](self, call: Callable[[], T]) -> T:
        """Run ``call`` on the thread when it is this room's turn.

        A cancelled caller does not stop a call that has begun: the next one waits for its end on
        the thread.
        """
        await self.turns.begin(self)
        try:
            return await self.turns.compute.run(call)
        finally:
            self.turns.end()

    def next_turn(self) -> asyncio.Future[None] | None:
        """The longest waiting call that nobody gave up."""
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                return turn
        return None
