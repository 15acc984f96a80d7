"""Claims that the store has not answered yet, and what comes in for their ids meanwhile.

A shared store decides a claim before its answer is here. In between other replicas act on it:
they send parcels for the new owner, or take the id over again. Both must find it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poolhouse_control.signaling.commands import Claim, SocketId
    from poolhouse_control.signaling.presence import Parcel

__all__ = ["Claims", "Settled"]


@dataclass(slots=True)
class _Pending:
    answers_due: int = 0
    void_to: int = 0
    held: list[Parcel] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Settled:
    """What is known of a claim when its answer is here."""

    vanished: bool
    """Its socket ended meanwhile."""
    void_to: int
    """Claims of the id up to this epoch were taken over meanwhile."""


class Claims:
    """One entry an id that is being claimed, by however many sockets."""

    def __init__(self, max_held: int) -> None:
        self._max_held = max_held
        self._sockets: set[SocketId] = set()
        self._pending: dict[str, _Pending] = {}

    def __len__(self) -> int:
        """Ids that are being claimed."""
        return len(self._pending)

    def begin(self, claim: Claim) -> None:
        """Enter a claim that is put to the store now."""
        self._sockets.add(claim.socket)
        self._pending.setdefault(claim.peer_id, _Pending()).answers_due += 1

    def settle(self, claim: Claim) -> Settled:
        """Strike a claim out: its answer is here. ``take_held`` is to be called afterwards."""
        vanished = claim.socket not in self._sockets
        self._sockets.discard(claim.socket)
        pending = self._pending[claim.peer_id]
        pending.answers_due -= 1
        return Settled(vanished, pending.void_to)

    def vanish(self, socket: SocketId) -> None:
        """Take notice that a socket ended, whether it claims or not."""
        self._sockets.discard(socket)

    def hold(self, parcel: Parcel) -> bool:
        """Keep a parcel until the claim of its receiver is answered; False if there is none."""
        pending = self._pending.get(parcel.dst)
        if pending is None or len(pending.held) >= self._max_held:
            return False
        pending.held.append(parcel)
        return True

    def take_held(self, peer_id: str, *, owned: bool) -> list[Parcel]:
        """Take what was held, once the id is ``owned`` or no claim of it is left."""
        pending = self._pending[peer_id]
        if pending.answers_due and not owned:
            return []
        held, pending.held = pending.held, []
        if not pending.answers_due:
            del self._pending[peer_id]
        return held

    def void(self, peer_id: str, epoch: int) -> None:
        """Remember that claims up to ``epoch`` were taken over elsewhere."""
        pending = self._pending.get(peer_id)
        if pending is not None:
            pending.void_to = max(pending.void_to, epoch)
