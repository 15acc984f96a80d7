"""Who owns an id, and what waits for those who are not there.

One protocol with one test suite: ``presence_memory`` keeps everything in this process. Whatever
keeps it must decide each call in one step: between "the id is free" and "it is mine", or "he is
absent" and "the message waits", nothing else may happen.

``now`` is in seconds of the caller's steady clock. Messages of one sender are routed one at a
time, so that their order holds.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

import msgspec

from poolhouse_control.signaling.messages import wire_size
from poolhouse_control.signaling.tally import RelayKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "Claimed",
    "Dropped",
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
    took_over: bool = False
    """It was owned, by the same token."""
    waiting: tuple[Parcel, ...] = ()
    """What had waited for it, in order. The store has let go of it."""


class Taken(msgspec.Struct, frozen=True):
    """Another token owns the id."""


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


type RouteResult = Queued | QueueFull | Dropped


class Presence(Protocol):
    """A store of owners and waiting parcels."""

    async def claim(self, peer_id: str, token: str) -> Claimed | Taken:
        """Register an id. The same token takes it over; another token gets ``Taken``."""
        ...

    async def release(self, peer_id: str, epoch: int) -> bool:
        """Free an id, if ``epoch`` is still that of its owner. True when it was."""
        ...

    async def route(self, parcel: Parcel, now: float, *, may_wait: bool) -> RouteResult:
        """Take a parcel for a peer that has no socket in this process."""
        ...

    async def touch(self, owned: Iterable[tuple[str, int]]) -> Sequence[str]:
        """Confirm ids with their epochs; return those that are no longer the caller's."""
        ...

    async def expire(self, peer_id: str, tickets: Iterable[int]) -> Sequence[int]:
        """Take waiting parcels back; return the tickets of those that still waited."""
        ...

    @property
    def queued(self) -> int:
        """Parcels that wait."""
        ...


def token_digest(token: str) -> bytes:
    """Shorten a token to what a store keeps: enough to compare, useless to present."""
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=16).digest()
