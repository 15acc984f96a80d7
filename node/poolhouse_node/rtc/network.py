"""This device's links, by peer id, over a dialer (wire, section 1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from poolhouse_node.room.links import LinkFailed
from poolhouse_node.room.mesh import MeshKey
from poolhouse_node.rtc.connection import STRIPE_LABEL
from poolhouse_node.rtc.counts import LinkCounts
from poolhouse_node.rtc.link import Link, LinkSettings
from poolhouse_node.rtc.stripes import Stripes
from poolhouse_node.rtc.tasks import TaskSet
from poolhouse_node.wire.codes import is_host_peer_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.rtc.connection import ConnectionPort
    from poolhouse_node.rtc.dialer import Dialer
    from poolhouse_node.wire.slices import Frame

__all__ = ["Network", "NetworkListener"]

MAX_LINKS: Final = 256
CLOSING_S: Final = 6.0
"""Links flush, then wait for the other end, each within its own limits: this is the sum."""

REPLACED_S: Final = 5.0

_log = logging.getLogger(__name__)


class NetworkListener(Protocol):
    """Satisfied by :class:`poolhouse_node.device.ports.NetworkEvents`, which says more."""

    def link_opened(self, link: Link, /) -> None: ...
    def message(self, link: Link, message: Mapping[str, Any], /) -> None: ...
    def frame(self, link: Link, frame: Frame, /) -> None: ...
    def link_closed(self, link: Link, reason: str, /) -> None: ...
    def signaling_changed(self, *, connected: bool) -> None: ...


class Network:
    """Links over a :class:`Dialer`. Satisfies :class:`poolhouse_node.device.ports.Network`."""

    def __init__(self, dialer: Dialer, settings: LinkSettings | None = None) -> None:
        self._dialer = dialer
        self._settings = settings or LinkSettings()
        self.mesh = MeshKey()
        self._events: NetworkListener | None = None
        self._links: dict[str, Link] = {}
        self._stripes: dict[Link, Stripes] = {}
        self._dialing: Counter[str] = Counter()
        self._held_ends: dict[str, tuple[Link, str]] = {}
        self._tasks = TaskSet()
        self._ended_links = LinkCounts()
        self._closed = False
        self._leaving = asyncio.Event()
        dialer.on_incoming = self._incoming
        dialer.on_signaling = self._signaling_changed

    @property
    def peer_id(self) -> str:
        return self._dialer.peer_id

    @property
    def links(self) -> Mapping[str, Link]:
        return MappingProxyType(self._links)

    def counts(self) -> LinkCounts:
        """What links carried, those that are over among them."""
        return sum((link.counts() for link in self._links.values()), self._ended_links)

    def roster_changed(self) -> None:
        for stripes in list(self._stripes.values()):
            stripes.roster_changed()

    def hurry(self) -> None:
        self._dialer.hurry()

    def listen(self, events: NetworkListener) -> None:
        self._events = events

    async def dial(self, peer_id: str, *, timeout_s: float) -> Link:
        if self._closed:
            raise LinkFailed("closed", "This device is leaving.")
        self._dialing[peer_id] += 1
        try:
            connection = await self._dialer.connect(peer_id, timeout_s=timeout_s)
            if self._closed:
                connection.close()
                raise LinkFailed("closed", "This device is leaving.")
            self._held_ends.pop(peer_id, None)
            return self._add(connection)
        finally:
            self._dialing[peer_id] -= 1
            self._tell_held_end(peer_id)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._leaving.set()
        links = list(self._links.values())
        for link in links:
            link.close()
        await self._tasks.finish(CLOSING_S)
        await self._dialer.close()

    # Connections.

    def _incoming(self, connection: ConnectionPort) -> None:
        if self._closed or self._events is None or len(self._links) >= MAX_LINKS:
            self._refuse(connection)
        elif connection.label == STRIPE_LABEL:
            self._incoming_stripe(connection)
        elif is_host_peer_id(connection.peer_id):
            # Hosts dial nobody (wire, section 1). A signaling server that calls in a host's name
            # would take the place of the link to the real one.
            self._refuse(connection)
        else:
            self._add(connection)

    def _incoming_stripe(self, connection: ConnectionPort) -> None:
        link = self._links.get(connection.peer_id)
        if link is None or not self._stripes[link].incoming(connection):
            self._refuse(connection)

    def _refuse(self, connection: ConnectionPort) -> None:
        connection.close()
        self._tasks.spawn(connection.wait_closed(), "connection-closing")

    def _add(self, connection: ConnectionPort) -> Link:
        """A link stands. One that there was to the same device gives way without a notice."""
        older = self._links.get(connection.peer_id)
        if older is not None:
            _log.info("link.replaced: to %.8s", connection.peer_id)
            older.retire()
        link = Link(connection, self, self._settings)
        self._links[link.peer_id] = link
        self._stripes[link] = Stripes(link, self._dialer, self._settings.associations, self.mesh)
        if self._events is not None:
            self._events.link_opened(link)
        link.start()
        return link

    def _signaling_changed(self, connected: bool) -> None:
        if self._events is not None and not self._closed:
            self._events.signaling_changed(connected=connected)

    # What links tell.

    def admitted(self, link: Link) -> None:
        self._stripes[link].admitted()

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        if self._events is not None:
            self._events.message(link, message)

    def frame(self, link: Link, frame: Frame) -> None:
        if self._events is not None:
            self._events.frame(link, frame)

    def closed(self, link: Link, reason: str | None) -> None:
        if self._links.get(link.peer_id) is link:
            del self._links[link.peer_id]
        self._ended_links += link.counts()
        self._tasks.spawn(self._shut(link, self._stripes.pop(link)), "link-closing")
        if reason is not None:
            # The other end may have the new link before this one, and close the old: whether
            # that is a departure shows when the dial ends.
            self._held_ends[link.peer_id] = link, reason
            self._tell_held_end(link.peer_id)

    def _tell_held_end(self, peer_id: str) -> None:
        if self._dialing[peer_id] > 0:
            return
        del self._dialing[peer_id]
        held = self._held_ends.pop(peer_id, None)
        if held is not None and self._events is not None and not self._closed:
            self._events.link_closed(*held)

    async def _shut(self, link: Link, stripes: Stripes) -> None:
        """See a link that is over to its end."""
        await stripes.stop()
        newer = self._links.get(link.peer_id)
        if newer is not None and newer.dialed:
            # The accepting end may not have the new link yet, and would take this one's close
            # for a departure. It closes this one itself when it has.
            await self._leave_open()
        link.close_main()
        await link.wait_closed()

    async def _leave_open(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLACED_S):
                await self._leaving.wait()
