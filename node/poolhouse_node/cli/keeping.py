"""Keeps the record of a hosted room on disk while its host runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Self

from poolhouse_node.room.record import RoomRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.cli.state import RoomState
    from poolhouse_node.room.record import RecordedOptions, RoomMemory

__all__ = ["RecordKeeper"]

REFRESH_S = 60.0
"""A room in which nothing happens is alive all the same: its record must not grow old."""


class RecordKeeper:
    """Writes the newest memory of a room, in a thread. An async context manager.

    The record is on disk when the context is entered, and at its end it is as new as the room
    was. A room that is over for good leaves none, and one that ``is_passing`` leaves nothing at
    all. A disk that does not take it is said once and stops nothing.
    """

    def __init__(
        self,
        state: RoomState,
        options: RecordedOptions,
        memory: RoomMemory,
        say: Callable[[str], None],
        *,
        is_passing: bool = False,
        now: Callable[[], float] = time.time,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._state, self._options, self._newest = state, options, memory
        self._delete = state.forget if is_passing else state.delete_record
        self._say, self._now, self._refresh_s = say, now, refresh_s
        self._changed = asyncio.Event()
        self._ends = self._is_over = self._said = False

    def save(self, memory: RoomMemory) -> None:
        """Write this soon, unless something newer comes first. Its lists must not change later."""
        self._newest = memory
        self._changed.set()

    def room_is_over(self) -> None:
        """The room was closed for good: nothing is to be resumed."""
        self._is_over = True

    async def __aenter__(self) -> Self:
        await self._write()
        self._task = asyncio.create_task(self._work(), name="record")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ends = True
        self._changed.set()
        await self._task
        await (self._forget() if self._is_over else self._write())

    async def _work(self) -> None:
        while not self._ends:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._refresh_s)
            self._changed.clear()
            if not self._ends:
                await self._write()

    async def _forget(self) -> None:
        try:
            await asyncio.to_thread(self._delete)
        except OSError as error:
            self._say(f"The record of this room could not be deleted ({error}).")

    async def _write(self) -> None:
        record = RoomRecord(saved_at=self._now(), options=self._options, memory=self._newest)
        try:
            await asyncio.to_thread(self._state.save_record, record)
        except (OSError, ValueError) as error:  # a full disk; a text that is no Unicode
            if not self._said:
                self._said = True
                self._say(f"This room could not be resumed: its record is not kept ({error}).")
