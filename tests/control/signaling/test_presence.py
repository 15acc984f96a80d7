"""What any store of owners must do. One suite for every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.presence import (
    Claimed,
    Dropped,
    Parcel,
    Queued,
    QueueFull,
    Taken,
    token_digest,
)
from poolhouse_control.signaling.presence_memory import MemoryPresence
from poolhouse_control.signaling.tally import RelayKind

if TYPE_CHECKING:
    from poolhouse_control.signaling.presence import Presence

LIMITS = Limits(max_queued_per_peer=3, max_queued_bytes_per_peer=100)


@pytest.fixture(params=["memory"])
def store(request: pytest.FixtureRequest) -> Presence:
    return {"memory": MemoryPresence}[request.param](LIMITS)


def parcel(dst: str = "Z", src: str = "A", text: str = "{}") -> Parcel:
    return Parcel(RelayKind.OFFER, src, dst, text)


async def claim(store: Presence, peer_id: str, token: str = "t") -> Claimed:
    result = await store.claim(peer_id, token)
    assert isinstance(result, Claimed)
    return result


async def queue(store: Presence, item: Parcel, now: float = 0.0) -> Queued:
    result = await store.route(item, now, may_wait=True)
    assert isinstance(result, Queued)
    return result


async def test_a_free_id_is_claimed(store: Presence) -> None:
    result = await claim(store, "A")
    assert not result.took_over
    assert result.waiting == ()


async def test_another_token_is_refused(store: Presence) -> None:
    await claim(store, "A", "one")
    assert await store.claim("A", "two") == Taken()


async def test_the_same_token_takes_over_with_a_greater_epoch(store: Presence) -> None:
    first = await claim(store, "A")
    second = await claim(store, "A")
    assert second.took_over
    assert second.epoch > first.epoch


async def test_epochs_grow_over_release_and_claim(store: Presence) -> None:
    first = await claim(store, "A")
    assert await store.release("A", first.epoch)
    assert (await claim(store, "A", "other")).epoch > first.epoch


async def test_a_late_release_does_not_remove_the_new_owner(store: Presence) -> None:
    first = await claim(store, "A")
    await claim(store, "A")
    assert not await store.release("A", first.epoch)
    assert await store.claim("A", "two") == Taken()


async def test_releasing_twice_or_nothing_is_false(store: Presence) -> None:
    first = await claim(store, "A")
    assert await store.release("A", first.epoch)
    assert not await store.release("A", first.epoch)
    assert not await store.release("B", 1)


async def test_touch_names_what_is_lost(store: Presence) -> None:
    first = await claim(store, "A")
    second = await claim(store, "A")
    mine = await claim(store, "B")
    owned = [("A", first.epoch), ("B", mine.epoch), ("C", 1)]
    assert await store.touch(owned) == [("A", first.epoch), ("C", 1)]
    assert await store.touch([("A", second.epoch)]) == []


async def test_a_claim_drains_the_queue_in_order(store: Presence) -> None:
    items = tuple(parcel(text=str(n)) for n in range(3))
    for item in items:
        await queue(store, item)
    assert store.queued == 3
    assert (await claim(store, "Z")).waiting == items
    assert store.queued == 0
    assert (await claim(store, "Z")).waiting == ()


async def test_a_queues_age_starts_with_its_first_parcel(store: Presence) -> None:
    first = await queue(store, parcel(), now=10.0)
    second = await queue(store, parcel(), now=12.5)
    assert (first.waited_s, second.waited_s) == (0.0, 2.5)
    assert first.queue == second.queue
    assert first.ticket != second.ticket


async def test_a_queue_after_delivery_is_another_one(store: Presence) -> None:
    first = await queue(store, parcel(), now=10.0)
    await claim(store, "Z")
    second = await queue(store, parcel(), now=12.0)
    assert second.queue != first.queue
    assert second.waited_s == 0.0


async def test_expire_takes_back_what_still_waits(store: Presence) -> None:
    first = await queue(store, parcel(text="1"))
    second = await queue(store, parcel(text="2"))
    assert await store.expire("Z", [first.ticket, 10**9]) == [first.ticket]
    assert await store.expire("Z", [first.ticket]) == []
    assert (await claim(store, "Z")).waiting == (parcel(text="2"),)
    assert await store.expire("Z", [second.ticket]) == []
    assert store.queued == 0


async def test_an_expired_queue_is_forgotten(store: Presence) -> None:
    first = await queue(store, parcel(), now=0.0)
    await store.expire("Z", [first.ticket])
    assert (await queue(store, parcel(), now=9.0)).waited_s == 0.0


async def test_a_parcel_that_may_not_wait_is_dropped(store: Presence) -> None:
    assert await store.route(parcel(), 0.0, may_wait=False) == Dropped()
    assert store.queued == 0


async def test_a_queue_is_bounded_in_number(store: Presence) -> None:
    for _ in range(3):
        await queue(store, parcel())
    assert await store.route(parcel(), 0.0, may_wait=True) == QueueFull()
    await queue(store, parcel(dst="Y"))


async def test_a_queue_is_bounded_in_bytes(store: Presence) -> None:
    await queue(store, parcel(text="x" * 60))
    assert await store.route(parcel(text="ü" * 21), 0.0, may_wait=True) == QueueFull()
    await queue(store, parcel(text="ü" * 20))


async def test_room_comes_back_after_delivery_and_expiry(store: Presence) -> None:
    for _ in range(5):
        tickets = [(await queue(store, parcel(text="x" * 33))).ticket for _ in range(3)]
        await store.expire("Z", tickets)
    for _ in range(5):
        for _ in range(3):
            await queue(store, parcel(text="x" * 33))
        await claim(store, "Z")


def test_a_token_is_kept_as_a_digest() -> None:
    digest = token_digest("sesame")
    assert len(digest) == 16
    assert digest != token_digest("Sesame")
    assert b"sesame" not in digest
    token_digest("\ud800")
