"""How a parcel finds its receiver's replica, by a store and a mail that say what a test wants."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.presence import (
    Away,
    Dropped,
    Forwarded,
    Here,
    Parcel,
    Queued,
    QueueFull,
)
from poolhouse_control.signaling.redis_keys import Keys
from poolhouse_control.signaling.redis_routing import Routing
from poolhouse_control.signaling.tally import RelayKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_control.signaling.presence import RouteResult
    from poolhouse_control.signaling.redis_mail import Sent

OWN = "0a" * 8
"""This replica; the others have names of their own."""
OFFER = Parcel(RelayKind.OFFER, "A", "Z", "{}")


class Replicas:
    """This replica among others, of which those of ``deaf`` do not listen."""

    def __init__(self, *replies: list[Any], deaf: tuple[str, ...] = ()) -> None:
        self.replies, self.deaf = list(replies), deaf
        self.asked: list[tuple[str, int, int]] = []
        """Of each question: who is known not to have it, and whether it may or must wait."""
        self.sent: list[tuple[str, int]] = []
        self.posted: list[Callable[[bool | None], None]] = []
        self.routing = Routing(OWN, self, self, Keys("t"), Limits(), 30_000, lambda: 0.0)  # type: ignore[arg-type]

    async def script(self, op: Any, name: str, keys: Any, args: tuple[Any, ...]) -> Any:
        self.asked.append((args[0], args[1], args[2]))
        return self.replies.pop(0)

    async def send(self, replica: str, item: Sent) -> bool:
        self.sent.append((replica, item.hop))
        return replica not in self.deaf

    def post(self, replica: str, item: Sent, carried: Callable[[bool | None], None]) -> None:
        self.sent.append((replica, item.hop))
        self.posted.append(carried)

    def route(self, *, hop: int = 0) -> RouteResult:
        return asyncio.run(self.routing.route(OFFER, may_wait=True, hop=hop))


def at(replica: str) -> list[bytes]:
    """What the store says of who is registered."""
    return [b"owner", replica.encode()]


def test_where_it_was_found_is_remembered() -> None:
    replicas = Replicas(at("two"))
    assert replicas.route() == Forwarded()
    assert replicas.route() == Forwarded()
    assert len(replicas.asked) == 1
    assert replicas.sent == [("two", 0), ("two", 0)]


def test_it_may_be_here_after_all() -> None:
    assert Replicas(at(OWN)).route() == Here()


def test_a_remembered_replica_that_does_not_listen_is_not_asked_for_again() -> None:
    replicas = Replicas(at("three"), deaf=("two",))
    replicas.routing.places.put("Z", "two", 0.0)
    assert replicas.route() == Forwarded()
    assert replicas.asked == [("two", 1, 0)]
    assert replicas.routing.places.get("Z", 0.0) == "three"


def test_after_three_that_do_not_listen_it_waits_in_the_store() -> None:
    queued = [b"queued", b"4", b"1500"]
    replicas = Replicas(at("two"), at("three"), queued, deaf=("two", "three"))
    assert replicas.route() == Queued(3, 4, 1.5)
    assert replicas.asked == [("", 1, 0), ("two", 1, 0), ("three", 1, 1)]


def test_one_that_was_sent_on_is_not_here_whatever_the_store_says() -> None:
    replicas = Replicas(at("two"))
    replicas.routing.places.put("Z", "three", 0.0)
    assert replicas.route(hop=1) == Forwarded()
    assert replicas.asked == [(OWN, 1, 0)], "and what is remembered does not count"
    assert replicas.sent == [("two", 1)]


def test_one_that_was_sent_on_twice_has_to_wait() -> None:
    replicas = Replicas([b"full"])
    assert replicas.route(hop=2) == QueueFull()
    assert replicas.asked == [(OWN, 1, 1)]


def test_what_nobody_takes_is_dropped() -> None:
    assert Replicas([b"gone"]).route() == Dropped()
    assert Replicas(*[at("two")] * 3, deaf=("two",)).route() == Dropped()


def test_nothing_is_posted_to_nowhere() -> None:
    replicas = Replicas()
    assert not replicas.routing.post(OFFER, lambda result: None)
    assert replicas.sent == []


@pytest.mark.parametrize(
    ("listened", "result", "place"),
    [(True, Forwarded(), "two"), (False, None, ""), (None, Away(), "two")],
)
def test_what_became_of_a_post(
    listened: bool | None, result: RouteResult | None, place: str
) -> None:
    replicas = Replicas()
    replicas.routing.places.put("Z", "two", 0.0)
    told: list[RouteResult | None] = []
    assert replicas.routing.post(OFFER, told.append)
    (carried,) = replicas.posted
    carried(listened)
    assert told == [result]
    assert replicas.routing.places.get("Z", 0.0) == place
