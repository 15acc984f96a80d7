"""One pledge for the rooms of this process, which take from it in threads of their own."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.room.lending import Lending, Taken
from poolhouse_node.room.pledge import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

__all__ = ["RoomBudget", "SharedPledge"]


class SharedPledge:
    """Make it on the event loop, which is where rooms hear how much is left for them."""

    def __init__(self, pledge_gb: float) -> None:
        self._lending = Lending(math.ceil(pledge_gb * GIB))
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[str, Callable[[float], None]] = {}

    def room(self, code: str) -> RoomBudget:
        """The pledge as one room sees it."""
        return RoomBudget(self, code)

    def offer_gb(self, code: str) -> float:
        """What this room's host may deal now."""
        with self._lock:
            return self._lending.offer_gb(code)

    @contextlib.contextmanager
    def telling(self, code: str, listener: Callable[[float], None]) -> Iterator[None]:
        """Call ``listener`` with what is left for a room whenever another one takes or gives."""
        self._listeners[code] = listener
        listener(self.offer_gb(code))
        try:
            yield
        finally:
            del self._listeners[code]

    def left_bytes(self) -> int:
        """What no room took."""
        with self._lock:
            return self._lending.left_bytes

    def change(self, code: str, taken: Taken | None) -> None:
        """A room holds this now. From any thread."""
        with self._lock:
            if taken is None:
                self._lending.give_back(code)
            else:
                self._lending.take(code, taken)
        self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        for code, listener in self._listeners.items():
            listener(self.offer_gb(code))


@dataclass(frozen=True, slots=True)
class RoomBudget:
    """Satisfies ``engine.loading.Budget`` for one room."""

    pledge: SharedPledge
    code: str

    def left_bytes(self) -> int:
        """What no room took."""
        return self.pledge.left_bytes()

    def take(self, part: Hashable, weights_bytes: int, state_bytes: int) -> None:
        """This room holds so much from now on."""
        self.pledge.change(self.code, Taken(part, weights_bytes, state_bytes))

    def give_back(self) -> None:
        """This room holds nothing any more."""
        self.pledge.change(self.code, None)
