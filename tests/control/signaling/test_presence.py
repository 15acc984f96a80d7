"""What any store of owners must do. One suite for every implementation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.presence import (
    Claimed,
    Dropped,
    Here,
    Parcel,
    Queued,
    QueueFull,
    Taken,
    token_digest,
)
from poolhouse_control.signaling.presence_memory import MemoryPresence
from poolhouse_control.signaling.tally import TakeoverKind
from tests.support.redis import RedisServer
from tests.support.replicas import parcel, replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from poolhouse_control.signaling.presence import Presence

LIMITS = Limits(max_queued_per_peer=3, max_queued_bytes_per_peer=100)
PAUSE_S = 0.05


class Time:
    """Time of a store: a number for the one in memory, real for the others."""

    def __init__(self, *, is_real: bool) -> None:
        self.is_real = is_real
        self.now = 10.0

    async def passes(self) -> None:
        self.now += PAUSE_S
        if self.is_real:
            await asyncio.sleep(PAUSE_S)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RedisServer]]:
    """One server of each kind for all tests here: a cluster takes seconds to start."""
    started: dict[str, RedisServer] = {}

    def of(kind: str) -> RedisServer:
        if kind not in started:
            server = RedisServer(tmp_path_factory.mktemp(kind), cluster=kind == "cluster")
            asyncio.run(server.start())
            started[kind] = server
        return started[kind]

    yield of
    for server in started.values():
        server.stop()


@pytest.fixture(
    params=[
        "memory",
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("cluster", marks=pytest.mark.redis),
    ]
)
def server(request: Any, servers: Callable[[str], RedisServer]) -> RedisServer | None:
    return None if request.param == "memory" else servers(request.param)


@pytest.fixture
async def store(server: RedisServer | None) -> AsyncIterator[Presence]:
    if server is None:
        yield MemoryPresence(LIMITS)
        return
    await server.forget()
    async with replica(server, limits=LIMITS) as one:
        yield one.presence


@pytest.fixture
def time(store: Presence) -> Time:
    return Time(is_real=not isinstance(store, MemoryPresence))


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
    assert second.took_over is TakeoverKind.SAME_TOKEN
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
    assert (await claim(store, "Z")).waiting == items
    assert (await claim(store, "Z")).waiting == ()


async def test_a_queues_age_starts_with_its_first_parcel(store: Presence, time: Time) -> None:
    first = await queue(store, parcel(), now=time.now)
    await time.passes()
    second = await queue(store, parcel(), now=time.now)
    assert first.waited_s == pytest.approx(0.0, abs=0.01)
    assert PAUSE_S * 0.9 <= second.waited_s < PAUSE_S + 1
    assert first.queue == second.queue
    assert first.ticket != second.ticket


async def test_a_queue_after_delivery_is_another_one(store: Presence, time: Time) -> None:
    first = await queue(store, parcel(), now=time.now)
    await store.release("Z", (await claim(store, "Z")).epoch)
    await time.passes()
    second = await queue(store, parcel(), now=time.now)
    assert second.queue != first.queue
    assert second.waited_s == pytest.approx(0.0, abs=0.01)


async def test_expire_takes_back_what_still_waits(store: Presence) -> None:
    first = await queue(store, parcel(text="1"))
    second = await queue(store, parcel(text="2"))
    assert await store.expire("Z", [first.ticket, 10**9]) == [first.ticket]
    assert await store.expire("Z", [first.ticket]) == []
    assert (await claim(store, "Z")).waiting == (parcel(text="2"),)
    assert await store.expire("Z", [second.ticket]) == []


async def test_an_expired_queue_is_forgotten(store: Presence, time: Time) -> None:
    first = await queue(store, parcel(), now=time.now)
    await store.expire("Z", [first.ticket])
    await time.passes()
    second = await queue(store, parcel(), now=time.now)
    assert second.waited_s == pytest.approx(0.0, abs=0.01)
    assert second.queue != first.queue


async def test_a_parcel_that_may_not_wait_is_dropped(store: Presence) -> None:
    assert await store.route(parcel(), 0.0, may_wait=False) == Dropped()
    assert (await claim(store, "Z")).waiting == ()


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
        assert await store.expire("Z", tickets) == tickets
    for _ in range(5):
        for _ in range(3):
            await queue(store, parcel(text="x" * 33))
        owned = await claim(store, "Z")
        assert len(owned.waiting) == 3
        await store.release("Z", owned.epoch)


async def test_room_comes_back_for_each_parcel_that_is_taken_back(store: Presence) -> None:
    first = await queue(store, parcel(text="x" * 50))
    await queue(store, parcel(text="y" * 50))
    assert await store.route(parcel(text="z"), 0.0, may_wait=True) == QueueFull()
    await store.expire("Z", [first.ticket])
    await queue(store, parcel(text="z" * 50))


async def test_any_text_waits_as_it_is(store: Presence) -> None:
    item = parcel(src="a b-c_d", text='{"payload":"\u2028 ü \\u0000 \x7f"}')
    await queue(store, item)
    assert (await claim(store, "Z")).waiting == (item,)


async def test_the_present_owner_is_known_by_its_token(store: Presence) -> None:
    assert not await store.holds("A", "t")
    owned = await claim(store, "A")
    assert await store.holds("A", "t")
    assert not await store.holds("A", "other")
    await store.release("A", owned.epoch)
    assert not await store.holds("A", "t")


async def test_a_handed_over_id_comes_back_to_its_token_with_what_waited(store: Presence) -> None:
    owned = await claim(store, "Z")
    assert await store.release("Z", owned.epoch, hand_over=True)
    item = parcel()
    await queue(store, item)
    again = await claim(store, "Z")
    assert again.waiting == (item,)
    assert again.epoch > owned.epoch


async def test_an_id_that_is_here_is_told_so(store: Presence) -> None:
    """A store of one process is never asked about an id that is here."""
    if isinstance(store, MemoryPresence):
        return
    await claim(store, "Z")
    assert await store.route(parcel(), 0.0, may_wait=True) == Here()


async def test_it_is_open_and_sure(store: Presence) -> None:
    assert store.is_open
    assert not store.is_stale
    await store.confirm()


def test_a_token_is_kept_as_a_digest() -> None:
    digest = token_digest("sesame")
    assert len(digest) == 16
    assert digest != token_digest("Sesame")
    assert b"sesame" not in digest
    token_digest("\ud800")
