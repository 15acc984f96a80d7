"""The way of a parcel to its receiver: its replica's channel, or its queue in the store."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from poolhouse_control.signaling.places import Places
from poolhouse_control.signaling.presence import (
    Away,
    Dropped,
    Forwarded,
    Here,
    Parcel,
    Queued,
    QueueFull,
    RouteResult,
)
from poolhouse_control.signaling.redis_entries import entry_name, pack_entry
from poolhouse_control.signaling.redis_mail import Mail, Sent
from poolhouse_control.signaling.store_tally import StoreOp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from poolhouse_control.signaling.limits import Limits
    from poolhouse_control.signaling.redis_keys import Keys
    from poolhouse_control.signaling.redis_store import RedisStore

__all__ = ["Routing"]

_TRIES: Final = 3


@dataclass(slots=True)
class Routing:
    """Finds the replica of a receiver, and remembers it for the next parcel."""

    replica: str
    store: RedisStore
    mail: Mail
    keys: Keys
    limits: Limits
    queue_ms: int
    """How long a parcel waits in the store."""
    clock: Callable[[], float]
    places: Places = field(default_factory=Places)
    _tickets: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def route(self, parcel: Parcel, *, may_wait: bool, hop: int) -> RouteResult:
        """Send a parcel to the replica of its receiver, or let it wait.

        Raises:
            StoreAway: nobody can tell where it is.
        """
        # A parcel that came from another replica is not here, whatever the store says.
        unreachable = self.replica if hop else ""
        if not hop and (place := self.places.get(parcel.dst, self.clock())):
            if await self.mail.send(place, Sent.of(parcel)):
                return Forwarded()
            self.places.drop(parcel.dst)
            unreachable = place
        for left in reversed(range(_TRIES)):
            must_wait = hop > 1 or not left
            reply = await self._find(parcel, unreachable, may_wait=may_wait, must_wait=must_wait)
            if not isinstance(reply, str):
                return reply
            if reply == self.replica:
                return Here()
            if await self.mail.send(reply, Sent.of(parcel, hop)):
                self.places.put(parcel.dst, reply, self.clock())
                return Forwarded()
            unreachable = reply
        return Dropped()

    def post(self, parcel: Parcel, answered: Callable[[RouteResult | None], None]) -> bool:
        """Send a parcel to where its receiver was found last, if that is known."""
        place = self.places.get(parcel.dst, self.clock())
        if not place:
            return False

        def carried(listened: bool | None) -> None:
            if listened is None:
                answered(Away())
            elif listened:
                answered(Forwarded())
            else:
                self.places.drop(parcel.dst)
                answered(None)

        self.mail.post(place, Sent.of(parcel), carried)
        return True

    async def _find(
        self, parcel: Parcel, unreachable: str, *, may_wait: bool, must_wait: bool
    ) -> str | RouteResult:
        """Say at which replica the receiver is, or what became of the parcel."""
        ticket = next(self._tickets)
        limits = self.limits
        reply = await self.store.script(
            StoreOp.ROUTE,
            "route",
            self.keys.of_id(parcel.dst),
            (
                unreachable,
                int(may_wait),
                int(must_wait),
                pack_entry(entry_name(self.replica, ticket), parcel),
                parcel.size_bytes,
                limits.max_queued_per_peer,
                limits.max_queued_bytes_per_peer,
                self.queue_ms,
            ),
        )
        match reply:
            case [b"owner", replica]:
                return str(replica.decode())
            case [b"queued", number, age_ms]:
                return Queued(ticket, int(number), int(age_ms) / 1000)
            case [b"full"]:
                return QueueFull()
            case _:
                return Dropped()
