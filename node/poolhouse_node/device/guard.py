"""Drop detection while an answer runs: who of the chain has stopped responding (liveness, 3)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import DeviceStalled, Notice
from poolhouse_node.room.liveness import BUSY_TICK_S, AnswerWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.events import Notify

__all__ = ["ChainGuard"]


@dataclass(slots=True)
class ChainGuard:
    """Pings the chain while ``watches`` says so, and tells the person who is silent."""

    chain: Callable[[], list[Peer]]
    watches: Callable[[], bool]
    ping: Callable[[Peer], None]
    name_of: Callable[[str], str]
    notify: Notify
    _watch: AnswerWatch = field(default_factory=AnswerWatch)

    async def work(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(BUSY_TICK_S)
            if self.watches():
                self._watch.arm(loop.time())
                self._judge(loop.time())
            else:
                self._watch.disarm()

    def answered(self, peer_id: str, ping_sent_at: float) -> None:
        """A ping of ours came back."""
        if self._watch.answered(peer_id, ping_sent_at):
            self.notify(Notice(f"{self.name_of(peer_id)} responds again."))

    def is_stalled(self, name: str) -> bool:
        """The device of that name was reported and is not back."""
        return name in {self.name_of(peer_id) for peer_id in self._watch.held}

    def silent(self, now: float) -> list[tuple[str, float]]:
        """Devices that were reported and are not back, with the seconds of their silence."""
        return [(self.name_of(who), now - since) for who, since in self._watch.held.items()]

    def _judge(self, now: float) -> None:
        chain = self.chain()
        heard_at = {peer.link.peer_id: peer.link.heard_at for peer in chain}
        rtt_s = {peer.link.peer_id: peer.rtt_s for peer in chain}
        for stalled in self._watch.tick(now, heard_at, rtt_s):
            self.notify(DeviceStalled(self.name_of(stalled.peer_id), stalled.silent_s))
        if self._watch.ping_due(now):
            for peer in chain:
                self.ping(peer)
