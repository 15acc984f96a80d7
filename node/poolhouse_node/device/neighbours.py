"""Links between joined devices: proved by the room's key, then used for frames (joining, 6)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.room.links import LinkFailed
from poolhouse_node.room.mesh import MESH_WAIT_S, MeshGreeting
from poolhouse_node.room.returning import LINK_STALE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.ports import Link, Network
    from poolhouse_node.room.mesh import MeshVerdict
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.messages.joining import Mesh

__all__ = ["Neighbours"]

DIAL_S = 40.0
PROOF_PING_S = 0.5


@dataclass(slots=True)
class Neighbours:
    """The links to other devices of the room, but for its host.

    ``peers`` are the owner's open links; ``admit`` and ``drop`` say what a proof was worth.
    """

    network: Network
    peers: Mapping[str, Peer]
    send: Callable[[Peer, Message], None]
    ping: Callable[[Peer], None]
    admit: Callable[[Peer], None]
    drop: Callable[[Peer, str], None]
    _greetings: dict[str, MeshGreeting] = field(default_factory=dict)
    _proved: dict[str, asyncio.Future[Link]] = field(default_factory=dict)
    _dialing: defaultdict[str, asyncio.Lock] = field(
        default_factory=lambda: defaultdict(asyncio.Lock)
    )

    def greet(self, peer: Peer) -> None:
        """A link to a device opened, dialed by either side: prove this end."""
        mesh = self._greetings[peer.link.peer_id] = MeshGreeting(
            self.network.mesh,
            peer_id=peer.link.peer_id,
            my_id=self.network.peer_id,
            dialed=peer.link.dialed,
            binding=peer.link.binding(),
        )
        self.send(peer, mesh.greeting())
        asyncio.get_running_loop().call_later(MESH_WAIT_S, self._waited, peer, mesh)

    def mesh_came(self, peer: Peer, message: Mesh) -> None:
        """The other end's proof."""
        mesh = self._greetings.get(peer.link.peer_id)
        if mesh is not None and not peer.admitted:
            self._judged(peer, mesh.on_message(message))

    def roster_changed(self) -> None:
        """A device that proved nothing may be known now."""
        self.network.roster_changed()
        for peer_id, mesh in list(self._greetings.items()):
            peer = self.peers.get(peer_id)
            if peer is not None and not peer.admitted:
                self._judged(peer, mesh.again())

    def answered(self, peer: Peer) -> None:
        """A ping of ours came back."""
        proved = self._proved.get(peer.link.peer_id)
        if proved is not None and peer.admitted and not proved.done():
            proved.set_result(peer.link)

    def gone(self, peer_id: str) -> None:
        """A link ended."""
        self._greetings.pop(peer_id, None)

    async def link_to(self, peer_id: str, *, fresh: bool = False) -> Link:
        """A link over which that device takes frames: the one there is, if it is heard, or a new
        one; with ``fresh`` always a new one.

        Both ends must have admitted it. Our proof went out before the pings below on the same
        ordered channel, so their answer shows that the other end has seen the proof. Raises
        :class:`LinkFailed <poolhouse_node.room.links.LinkFailed>`.
        """
        async with self._dialing[peer_id]:  # one dial, however many wait for the link
            if fresh or not self._is_good(peer_id):
                await self.network.dial(peer_id, timeout_s=DIAL_S)
            return await self._until_proved(peer_id)

    def _is_good(self, peer_id: str) -> bool:
        peer = self.peers.get(peer_id)
        if peer is None or not peer.link.is_open:
            return False
        quiet_s = asyncio.get_running_loop().time() - peer.link.heard_at
        return quiet_s <= LINK_STALE_S

    async def _until_proved(self, peer_id: str) -> Link:
        proved: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        self._proved[peer_id] = proved
        try:
            while not proved.done():
                peer = self.peers.get(peer_id)
                if peer is None:
                    raise LinkFailed("closed", "The link to the next device closed at once.")
                self.ping(peer)
                await asyncio.wait({proved}, timeout=PROOF_PING_S)
            return proved.result()
        finally:
            self._proved.pop(peer_id, None)

    def _waited(self, peer: Peer, mesh: MeshGreeting) -> None:
        if self.peers.get(peer.link.peer_id) is peer and not peer.admitted:
            self._judged(peer, mesh.on_time())

    def _judged(self, peer: Peer, verdict: MeshVerdict) -> None:
        if verdict == "accept":
            self.admit(peer)
        elif verdict == "close":  # it is not told why
            self.drop(peer, "did not prove itself")
