"""A worker's link to the next device: opened, lost, opened again (liveness, sections 5 and 7)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.device.events import NextLinked
from poolhouse_node.room.links import LinkFailed
from poolhouse_node.room.returning import REDIAL_S, redial_delay_s
from poolhouse_node.wire.messages.loading import Linked, LinkLost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.ports import Link
    from poolhouse_node.device.tasks import Tasks
    from poolhouse_node.wire.messages import Message

__all__ = ["HOST", "LinkOpener", "NextLink"]

HOST = "host"
"""``next`` of the last device in the chain."""
STAND_S = 60.0
AGAIN_S = 1.0
RELINK_S = 14.0
"""The host waits 15 s for the answer to ``ai-next`` (section 7)."""


class LinkOpener(Protocol):
    """Gives a link that frames may use."""

    async def __call__(self, peer_id: str, *, fresh: bool = False) -> Link:
        """The link there is, or a new one; always a new one when ``fresh``.

        Raises :class:`LinkFailed <poolhouse_node.room.links.LinkFailed>`.
        """
        ...


@dataclass(slots=True)
class NextLink:
    """Where a worker's results go. One attempt to open the link runs at a time."""

    open_link: LinkOpener
    tell_host: Callable[[Message], None]
    name_of: Callable[[str], str]
    tasks: Tasks
    notify: Notify
    target: str = HOST
    link: Link | None = None
    _stands: asyncio.Event = field(default_factory=asyncio.Event)
    _attempt: asyncio.Task[None] | None = None

    def point(self, target: str) -> None:
        """Results go to ``target`` from now on; the link to it is opened when there is none."""
        if target != self.target or not (self._stands.is_set() or self._is_trying):
            self._begin(target)
            if target != HOST:
                self._try(self._open())

    def relink(self, target: str) -> None:
        """Open a fresh link, and tell the host what came of it."""
        self._begin(target)
        if target != HOST:
            self._try(self._open_afresh())

    async def stand(self) -> None:
        """Wait until the link stands. Raises :class:`LinkFailed` after a minute."""
        if self.target == HOST:
            return
        try:
            async with asyncio.timeout(STAND_S):
                await self._stands.wait()
        except TimeoutError:
            name = self.name_of(self.target)
            raise LinkFailed(
                "timeout",
                f"the next device of the chain, {name}, did not answer in {STAND_S:.0f} s",
            ) from None

    def lost(self, peer_id: str) -> None:
        """A link closed: when it was this one, the host is told and it is dialed again."""
        if self.link is None or peer_id != self.target:
            return
        self._begin(self.target)
        self.tell_host(LinkLost(name=self.name_of(peer_id), up=0))
        self._try(self._open_again())

    def close(self) -> None:
        """No link is wanted any more."""
        self._begin(HOST)

    # ---- inside --------------------------------------------------------------------------------

    @property
    def _is_trying(self) -> bool:
        return self._attempt is not None and not self._attempt.done()

    def _begin(self, target: str) -> None:
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        self.target, self.link = target, None
        if target == HOST:
            self._stands.set()
        else:
            self._stands.clear()

    def _try(self, attempt: Coroutine[None, None, None]) -> None:
        self._attempt = self.tasks.spawn(attempt, "link to next")

    async def _open(self) -> None:
        """As long as it takes: who needs the link has a limit of its own."""
        while True:
            if await self._opened(REDIAL_S, fresh=False):
                return
            await asyncio.sleep(AGAIN_S)

    async def _open_afresh(self) -> None:
        if await self._opened(RELINK_S, fresh=True):
            self.tell_host(Linked(next=self.target, ok=1))
            return
        self.tell_host(Linked(next=self.target, ok=0))
        await self._open_again()

    async def _open_again(self) -> None:
        """Dial a link that died; the host hears when it stands again."""
        tries = 0
        while (delay_s := redial_delay_s(tries)) is not None:
            await asyncio.sleep(delay_s)
            if await self._opened(REDIAL_S, fresh=True):
                self.tell_host(LinkLost(name=self.name_of(self.target), up=1))
                return
            tries += 1

    async def _opened(self, timeout_s: float, *, fresh: bool) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                link = await self.open_link(self.target, fresh=fresh)
        except (LinkFailed, TimeoutError):
            return False
        if not link.is_open:
            return False
        self.link = link
        self.notify(NextLinked(self.name_of(self.target), link.transport))
        self._stands.set()
        return True
