"""Two devices, one name: is the one that holds it still there? (joining, section 9)"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.room.roster import NAME_PROBE_S, namesake_to_probe, silent_namesakes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from poolhouse_node.device.device import Peer
    from poolhouse_node.room.roster import Roster

__all__ = ["Namesakes"]


@dataclass(slots=True)
class Namesakes:
    """Probes the holder of a name before a newcomer gets that name, or a number behind it."""

    roster: Roster
    peers: Mapping[str, Peer]
    ping: Callable[[Peer], None]
    drop: Callable[[Peer, str], None]

    def settle(self, peer_id: str, name: str, *, is_back: bool, enter: Callable[[], None]) -> None:
        """Call ``enter`` once it is clear who keeps ``name``: now, or after one probe."""
        loop = asyncio.get_running_loop()
        members = self.roster.members.values()
        probed = namesake_to_probe(
            members, name, peer_id, self._heard_at(), loop.time(), is_back=is_back
        )
        if probed is None or probed not in self.peers:
            enter()
            return
        self.ping(self.peers[probed])
        loop.call_later(NAME_PROBE_S, self._look_again, peer_id, name, loop.time(), enter)

    def _look_again(
        self, peer_id: str, name: str, pinged_at: float, enter: Callable[[], None]
    ) -> None:
        members = list(self.roster.members.values())
        for silent in silent_namesakes(members, name, peer_id, self._heard_at(), pinged_at):
            if silent in self.peers:
                self.drop(self.peers[silent], "stopped responding")
        enter()

    def _heard_at(self) -> dict[str, float]:
        return {peer_id: peer.link.heard_at for peer_id, peer in self.peers.items()}
