"""A device's stay in somebody's room: at the gate, inside, on the way back, out (liveness, 10)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poolhouse_node.device.events import HostFound, HostLost, RoomOver
from poolhouse_node.device.returning import come_back

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.tasks import Tasks

__all__ = ["RoomEnd", "Stay"]

HOST_HELLO_S = 15.0
NOT_BACK = "The host did not come back; the room is over for this device."


@dataclass(frozen=True, slots=True)
class RoomEnd:
    """Why this device is out of the room; ``orderly`` when its host closed it for good."""

    why: str
    orderly: bool = False
    was_refused: bool = True
    """Somebody said no; else the host is just not there (any more)."""


@dataclass(slots=True)
class Stay:
    """Knows whether this device is in, and brings it back when the link to the host is lost.

    ``dial`` opens a link to the host or raises ``LinkFailed``; ``is_in_lobby`` and ``has_host``
    tell how things are now; ``over`` is called once, when a stay that had begun is over.
    """

    tasks: Callable[[], Tasks]
    dial: Callable[[float], Awaitable[object]]
    is_in_lobby: Callable[[], bool]
    has_host: Callable[[], bool]
    over: Callable[[], None]
    notify: Notify
    has_begun: bool = False
    """It was inside, and is or comes back."""
    end: asyncio.Future[RoomEnd] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    _inside: asyncio.Event = field(default_factory=asyncio.Event)
    _turned_away: asyncio.Event = field(default_factory=asyncio.Event)
    """The link to the host ended while this device waited at the gate."""
    _returning: asyncio.Task[None] | None = None

    @property
    def is_inside(self) -> bool:
        """The host let this device in, and the link to it stands."""
        return self._inside.is_set()

    @property
    def is_over(self) -> bool:
        """This device is out, for good."""
        return self.end.done()

    def went_in(self) -> None:
        """The host let this device in."""
        self.has_begun = True
        self._inside.set()

    async def until_let_in(self) -> bool:
        """Wait at the gate; False when the host says nothing, ends the link, or refuses."""
        inside = asyncio.ensure_future(self._inside.wait())
        turned_away = asyncio.ensure_future(self._turned_away.wait())
        waited: set[asyncio.Future[Any]] = {inside, turned_away, self.end}
        try:
            done: set[asyncio.Future[Any]] = set()
            while not done:
                done, _ = await asyncio.wait(
                    waited, timeout=HOST_HELLO_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not done and not self.is_in_lobby():
                    return False
            return inside.done() and not self.is_over
        finally:
            inside.cancel()
            turned_away.cancel()

    async def until(self, event: asyncio.Event) -> bool:
        """Wait for something in the room; False when this device is out, also by then."""
        happened = asyncio.ensure_future(event.wait())
        waited: set[asyncio.Future[Any]] = {happened, self.end}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            happened.cancel()
        return not self.is_over

    def host_gone(self, verb: str, *, path_broke: bool) -> bool:
        """The link to the host ended; True when this device sets out to come back."""
        self._inside.clear()
        self._turned_away.set()
        if not self.has_begun:
            self.finish(f"The host {verb}; the room is over for this device.", was_refused=False)
        elif not self.is_over and self._returning is None:
            self.notify(HostLost(verb))
            self._set_out(path_broke=path_broke)
            return True
        return False

    def finish(self, why: str, *, orderly: bool = False, was_refused: bool = True) -> None:
        """It is over; only the first reason counts."""
        if self.is_over:
            return
        self.end.set_result(RoomEnd(why, orderly, was_refused))
        if self.has_begun:  # before, whoever joins is told
            self.notify(RoomOver(why))
            self.over()
        if self._returning is not None and self._returning is not asyncio.current_task():
            self._returning.cancel()

    # ---- coming back ---------------------------------------------------------------------------

    def _set_out(self, *, path_broke: bool) -> None:
        self._returning = self.tasks().spawn(self._come_back(path_broke=path_broke), "coming back")
        self._returning.add_done_callback(self._arrived)

    async def _come_back(self, *, path_broke: bool) -> None:
        async def dial(timeout_s: float) -> None:
            self._turned_away.clear()
            await self.dial(timeout_s)

        if await come_back(dial, self.until_let_in, path_broke=path_broke):
            self.notify(HostFound())
        else:
            self.finish(NOT_BACK, was_refused=False)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        self._returning = None
        if not task.cancelled() and not self.is_over and not self.has_host():
            # The link was lost again between being let in and the end of the task.
            self._inside.clear()
            self._set_out(path_broke=False)
