"""The parcels of our senders that wait for absent peers, and when they are due (signaling, 4.3)."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_control.signaling.commands import Expire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poolhouse_control.signaling.presence import Parcel, Queued

__all__ = ["Waits"]


@dataclass(slots=True)
class _Wait:
    """Parcels from here that wait in one life of an absent peer's queue."""

    queue: int
    senders: dict[int, str] = field(default_factory=dict)


class Waits:
    """A book with one entry an absent peer, kept by the replica of the senders.

    Whoever claims the id gets the parcels from the store. If that happens at another replica,
    nobody tells: the entry stays until it is due, and the store then has nothing to give back.
    """

    def __init__(self, expire_after_s: float) -> None:
        self._expire_after_s = expire_after_s
        self._waits: dict[str, _Wait] = {}
        self._due: list[tuple[float, str, int]] = []
        self._of_sender: Counter[str] = Counter()
        self.count = 0
        """Parcels in the book."""

    def of_sender(self, peer_id: str) -> int:
        """Parcels of one sender."""
        return self._of_sender[peer_id]

    def add(self, parcel: Parcel, queued: Queued, now: float) -> None:
        """Enter a parcel that the store has queued."""
        wait = self._waits.get(parcel.dst)
        if wait is None or wait.queue != queued.queue:
            self.end(parcel.dst)  # an earlier queue was delivered elsewhere
            wait = self._waits[parcel.dst] = _Wait(queued.queue)
            due_at = now - queued.waited_s + self._expire_after_s
            heapq.heappush(self._due, (due_at, parcel.dst, queued.queue))
        wait.senders[queued.ticket] = parcel.src
        self._of_sender[parcel.src] += 1
        self.count += 1

    def end(self, peer_id: str) -> None:
        """Strike out a peer's entry: its parcels were delivered, or are being taken back."""
        wait = self._waits.pop(peer_id, None)
        if wait is None:
            return
        self.count -= len(wait.senders)
        for sender in wait.senders.values():
            self._of_sender[sender] -= 1
            if not self._of_sender[sender]:
                del self._of_sender[sender]

    def due(self, now: float) -> Iterator[Expire]:
        """Take out what is due."""
        while self._due and self._due[0][0] <= now:
            _, peer_id, queue = heapq.heappop(self._due)
            wait = self._waits.get(peer_id)
            if wait is not None and wait.queue == queue:
                self.end(peer_id)
                yield Expire(peer_id, wait.senders)
