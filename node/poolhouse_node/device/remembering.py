"""Handing out what a host must remember, at most once a second (liveness, section 11)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.room.record import RoomMemory

__all__ = ["Remembering"]

SAVE_S = 1.0


@dataclass(slots=True)
class Remembering:
    """Saves while something changes: every second of an answer, and after it."""

    memory: Callable[[], RoomMemory]
    save: Callable[[RoomMemory], None]
    is_answering: Callable[[], bool]
    _changed: bool = False

    def changed(self) -> None:
        """Something happened that a restarted host must know."""
        self._changed = True

    async def work(self) -> None:
        """Save until cancelled."""
        while True:
            await asyncio.sleep(SAVE_S)
            answering = self.is_answering()
            if answering or self._changed:
                self.now()
                self._changed = answering  # its end is saved too

    def now(self) -> None:
        """Save what is known at this moment."""
        self._changed = False
        self.save(self.memory())
