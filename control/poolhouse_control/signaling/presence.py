"""Who owns an id, and what waits for those who are not there.

One protocol with one test suite: ``presence_memory`` keeps everything in this process,
``presence_redis`` shares it between replicas. Whatever keeps it must decide each call in one step:
between "the id is free" and "it is mine", or "he is absent" and "the message waits", nothing else
may happen. A store that cannot be asked answers ``Away``: it refuses, it never guesses.

``now`` is in seconds of the caller's steady clock. Messages of one sender are routed one at a
time, so that their order holds.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

import msgspec

from poolhouse_control.signaling.messages import wire_size
from poolhouse_control.signaling.tally import RelayKind, TakeoverKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

__all__ = [
    "Away",
    "Claimed",
    "Dropped",
    "Forwarded",
    "Here",
    "Local",
    "Owned",
    "Parcel",
    "Presence",
    "QueueFull",
    "Queued",
    "RouteResult",
    "Taken",
    "token_digest",
]


class Parcel(msgspec.Struct, frozen=True):
    """One message on its way: ``text`` is the finished frame for ``dst``."""

    kind: RelayKind
    src: str
    dst: str
    text: str

    @property
    def size_bytes(self) -> int:
        """Bytes on the wire."""
        return wire_size(self.text)


class Claimed(msgspec.Struct, frozen=True):
    """The id is the caller's."""

    epoch: int
    """Fencing number: greater than that of every earlier claim of this id."""
    took_over: TakeoverKind | None = None
    """By what right, if it had an owner."""
    waiting: tuple[Parcel, ...] = ()
    """What had waited for it, in order. The store has let go of it."""


class Taken(msgspec.Struct, frozen=True):
    """Another token owns the id."""


class Away(msgspec.Struct, frozen=True):
    """The store cannot be asked now. Nothing was decided."""


class Queued(msgspec.Struct, frozen=True):
    """The receiver is absent; the parcel waits."""

    ticket: int
    """Names the parcel in ``Presence.expire``."""
    queue: int
    """Names one life of the receiver's queue: from its first parcel to its delivery or end."""
    waited_s: float
    """Age of that queue. Its parcels expire together (signaling, 4.3)."""


class QueueFull(msgspec.Struct, frozen=True):
    """The receiver is absent and no room is left to wait in."""


class Dropped(msgspec.Struct, frozen=True):
    """The receiver is absent and the parcel may not wait."""


class Forwarded(msgspec.Struct, frozen=True):
    """The receiver is at another replica, which has the parcel now."""


class Here(msgspec.Struct, frozen=True):
    """The store says that the receiver is at this process: it came while the store was asked."""


type RouteResult = Queued | QueueFull | Dropped | Forwarded | Here | Away
type Owned = tuple[str, int]
"""An id and the epoch of its claim."""


class Local(Protocol):
    """What a shared store tells the process it serves."""

    async def arrived(self, parcel: Parcel, hop: int) -> None:
        """Another replica sent a parcel here. ``hop`` counts how often it was sent on."""
        ...

    async def kicked(self, peer_id: str, epoch: int) -> None:
        """Another replica took an id over; claims up to ``epoch`` are void."""
        ...

    async def lost(self, owned: Sequence[Owned]) -> None:
        """These claims are void."""
        ...


class Presence(Protocol):
    """A store of owners and waiting parcels."""

    @property
    def is_open(self) -> bool:
        """Whether a claim would be decided now."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether this process was away so long that others may own its ids: ``confirm`` first."""
        ...

    async def confirm(self) -> None:
        """Learn which ids are still this process's. Returns at once when nothing is stale."""
        ...

    async def claim(self, peer_id: str, token: str) -> Claimed | Taken | Away:
        """Register an id. The same token takes it over; another token gets ``Taken``."""
        ...

    async def release(self, peer_id: str, epoch: int, *, hand_over: bool = False) -> bool:
        """Free an id, if ``epoch`` is still that of its owner. True when it was.

        With ``hand_over`` a shared store keeps it for its token for a moment: the client is about
        to come back at another replica.
        """
        ...

    async def route(
        self, parcel: Parcel, now: float, *, may_wait: bool, hop: int = 0
    ) -> RouteResult:
        """Take a parcel for a peer that has no socket in this process.

        ``hop`` is 0 for a parcel from a socket of ours, and one more than it came with for one
        that arrived from another replica. Above 1 it is not sent on again: it waits.
        """
        ...

    def post(self, parcel: Parcel, answered: Callable[[RouteResult | None], None]) -> bool:
        """Send a parcel to where its receiver was found last, without a task that waits for it.

        False: nobody knows where, use ``route``. Else ``answered`` is called later: with what
        became of it, or with None when the receiver's replica is not there and ``route`` has to
        be used after all.
        """
        ...

    async def touch(self, owned: Iterable[Owned]) -> Sequence[Owned]:
        """Confirm ids with their epochs; return those that are no longer the caller's."""
        ...

    async def expire(self, peer_id: str, tickets: Iterable[int]) -> Sequence[int]:
        """Take waiting parcels back; return the tickets of those that still waited.

        A store that is away returns them all: a notice too many is better than none.
        """
        ...

    async def holds(self, peer_id: str, token: str) -> bool:
        """Tell whether the id is registered now, with this token. Nothing changes.

        Raises:
            StoreAway: a shared store does not answer.
        """
        ...

    def running(self, local: Local) -> AbstractAsyncContextManager[None]:
        """Work while open: hear from other replicas, keep the lease."""
        ...

    async def opened(self) -> None:
        """Wait until claims can be decided for the first time."""
        ...

    async def leave(self) -> None:
        """Tell others that this process drains."""
        ...


def token_digest(token: str) -> bytes:
    """Shorten a token to what a store keeps: enough to compare, useless to present."""
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=16).digest()
