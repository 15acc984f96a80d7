"""A peer that dials into a simulated room and says what a test wants, however wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from poolhouse_node.rtc.network import Network

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.rtc.link import Link
    from tests.support.simulation import SimRoom

__all__ = ["HELLO", "Stranger"]

HELLO: Mapping[str, Any] = {
    "t": "hello",
    "name": "stranger",
    "v": 4,
    "meta": {"ua": "Device", "webgpu": False},
}


class Stranger:
    """Real links, no manners. Keeps every message it is sent."""

    def __init__(self, room: SimRoom) -> None:
        self.room = room
        self.network = Network(room.net.dialer())
        self.network.listen(self)
        self.heard: list[Mapping[str, Any]] = []
        self.closed: list[str] = []

    async def dial(self, peer_id: str) -> Link:
        """A link on which nothing was said yet; frames may be sent at once."""
        link = await self.network.dial(peer_id, timeout_s=20)
        link.admit()
        return link

    async def enter(self, peer_id: str, **hello: Any) -> Link:
        """A link to a host with a hello on it."""
        link = await self.dial(peer_id)
        link.send({**HELLO, **hello})
        return link

    async def reach(self, peer_id: str) -> Link:
        """A link to another device of the room, proved as links are without a mesh key."""
        link = await self.enter(peer_id)
        link.send({"t": "mesh", "v": 1, "none": 1})
        return link

    def said(self, message_type: str) -> list[Mapping[str, Any]]:
        """The messages of one type that came."""
        return [message for message in self.heard if message["t"] == message_type]

    # NetworkListener.

    def link_opened(self, link: Link) -> None: ...

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        self.heard.append(message)

    def frame(self, link: Link, frame: Any) -> None: ...

    def link_closed(self, link: Link, reason: str) -> None:
        self.closed.append(reason)

    def signaling_changed(self, *, connected: bool) -> None: ...
