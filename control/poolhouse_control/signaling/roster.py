"""The registered sockets of one process: by socket, by id, and by how long they have been quiet."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poolhouse_control.signaling.commands import SocketId
    from poolhouse_control.signaling.presence import Owned

__all__ = ["Peer", "Roster"]


@dataclass(slots=True)
class Peer:
    """A registered socket."""

    socket: SocketId
    peer_id: str
    epoch: int
    heard_at: float
    bad_frames: int = 0
    is_dismissed: bool = False
    """Asked to go elsewhere. It may still speak; what is for it waits in the store."""


class Roster:
    """Sockets with an id. A dismissed one has its socket still, and owns its id no more."""

    def __init__(self) -> None:
        self._owners: dict[str, Peer] = {}
        # In the order of their last sign of life: a sweep looks at the quiet end only.
        self._peers: OrderedDict[SocketId, Peer] = OrderedDict()

    def __len__(self) -> int:
        """Ids that are owned here."""
        return len(self._owners)

    def __contains__(self, peer_id: str) -> bool:
        """Tell whether an id is owned here."""
        return peer_id in self._owners

    def owner(self, peer_id: str) -> Peer | None:
        """Who owns an id here."""
        return self._owners.get(peer_id)

    def at(self, socket: SocketId) -> Peer | None:
        """Who speaks on a socket."""
        return self._peers.get(socket)

    def ids(self) -> list[str]:
        """Owned ids, oldest registration first."""
        return list(self._owners)

    def owned(self) -> list[Owned]:
        """Owned ids and the epochs of their claims."""
        return [(peer.peer_id, peer.epoch) for peer in self._owners.values()]

    def sockets(self) -> list[SocketId]:
        """Sockets of owned ids."""
        return [peer.socket for peer in self._owners.values()]

    def add(self, peer: Peer) -> None:
        """Enter a peer. The former owner of its id must be gone."""
        self._owners[peer.peer_id] = peer
        self._peers[peer.socket] = peer

    def remove(self, peer: Peer) -> None:
        """Strike a peer out."""
        del self._peers[peer.socket]
        if not peer.is_dismissed:
            del self._owners[peer.peer_id]

    def dismiss(self, peer: Peer) -> None:
        """Take the id from a peer, but let it speak."""
        peer.is_dismissed = True
        del self._owners[peer.peer_id]

    def heard(self, peer: Peer, now: float) -> None:
        """Note a sign of life."""
        peer.heard_at = now
        self._peers.move_to_end(peer.socket)

    def quietest(self) -> Peer | None:
        """Who has said nothing for longest."""
        return next(iter(self._peers.values()), None)
