"""The limit per address: one suite for both places it is kept in."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.relay.limiter import Limiter, MemoryLimiter
from poolhouse_control.relay.limiter_redis import RedisLimiter
from tests.support.redis_relay import PrivateRedis, private_redis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    type Maker = Callable[..., AbstractAsyncContextManager[tuple[Limiter, Limiter]]]

ROWS = json.loads((Path(__file__).parents[2] / "vectors" / "turn.json").read_text())["limiter"]


@pytest.fixture
def folder() -> Any:
    # The path of a Unix socket is limited to 108 bytes; tmp_path may be longer.
    with tempfile.TemporaryDirectory(prefix="ph") as name:
        yield Path(name)


@pytest.fixture
async def redis(folder: Path) -> AsyncIterator[PrivateRedis]:
    async with private_redis(folder) as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
def limiters(request: pytest.FixtureRequest, folder: Path) -> Maker:
    """Two views of one limit: one object in memory, two replicas over Redis."""

    @asynccontextmanager
    async def memory(rate: int, window_s: float) -> AsyncIterator[tuple[Limiter, Limiter]]:
        limiter = MemoryLimiter(rate, window_s=window_s)
        yield limiter, limiter

    @asynccontextmanager
    async def redis(rate: int, window_s: float) -> AsyncIterator[tuple[Limiter, Limiter]]:
        async with private_redis(folder) as server, server.client() as one, server.client() as two:
            yield (
                RedisLimiter(one, rate, window_s=window_s),
                RedisLimiter(two, rate, window_s=window_s),
            )

    return {"memory": memory, "redis": redis}[request.param]


async def test_a_subject_gets_its_rate_and_not_more(limiters: Maker) -> None:
    async with limiters(3, 60.0) as (one, two):
        waits = [await limiter.admit("a") for limiter in (one, two, one, two, one)]
        assert waits[:3] == [0, 0, 0]
        assert all(59 < wait <= 60 for wait in waits[3:])
        assert await two.admit("b") == 0


async def test_requests_at_the_same_time_do_not_pass_together(limiters: Maker) -> None:
    async with limiters(10, 60.0) as pair:
        waits = await asyncio.gather(*(pair[number % 2].admit("a") for number in range(80)))
    assert sum(wait == 0 for wait in waits) == 10


async def test_a_window_ends(limiters: Maker) -> None:
    async with limiters(1, 0.2) as (one, two):
        assert await one.admit("a") == 0
        wait_s = await two.admit("a")
        assert 0 < wait_s <= 0.2
        async with asyncio.timeout(5):
            while await two.admit("a"):
                await asyncio.sleep(0.01)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_the_vectors() -> None:
    clock = Clock()
    limiter = MemoryLimiter(3, clock=clock)
    for row in ROWS:
        clock.now = row["now_ms"] / 1000
        assert (await limiter.admit(row["ip"]) == 0) is row["allowed"], row


async def test_memory_is_bounded_and_the_oldest_is_forgotten() -> None:
    limiter = MemoryLimiter(1, max_subjects=3, clock=Clock())
    for subject in ("a", "b", "c", "d"):
        assert await limiter.admit(subject) == 0
    assert len(limiter) == 3
    assert await limiter.admit("d") > 0
    assert await limiter.admit("a") == 0


async def test_ended_windows_leave() -> None:
    clock = Clock()
    limiter = MemoryLimiter(1, clock=clock)
    for number in range(100):
        await limiter.admit(str(number))
    clock.now = 60.0
    await limiter.admit("x")
    assert len(limiter) == 1


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 50)), max_size=40), st.integers(1, 4))
def test_never_more_than_the_rate_in_a_window(steps: list[tuple[str, float]], rate: int) -> None:
    clock = Clock()
    limiter = MemoryLimiter(rate, clock=clock)
    admitted: dict[str, list[float]] = {"a": [], "b": []}
    for subject, pause_s in steps:
        clock.now += pause_s
        wait_s = limiter.admit_now(subject)
        assert 0 <= wait_s <= 60
        if wait_s == 0:
            admitted[subject].append(clock.now)
    for times in admitted.values():
        # Fixed windows: a window holds at most the rate, two neighbours at most twice that.
        for start in times:
            assert sum(start <= at < start + 60 for at in times) <= 2 * rate


@pytest.mark.redis
async def test_without_redis_each_replica_counts_for_itself(redis: PrivateRedis) -> None:
    clock = Clock()
    async with redis.client(deadline_s=0.3) as client:
        limiter = RedisLimiter(client, 2, clock=clock)
        assert await limiter.admit("a") == 0
        await redis.stop()
        assert [await limiter.admit("a") > 0 for _ in range(3)] == [False, False, True]
        await redis.start()
        assert await limiter.admit("b") == 0, "not asked again at once"
        async with redis.client() as other:
            assert await other.dbsize() == 0
        clock.now += 2.0
        assert await limiter.admit("a") == 0, "Redis came back empty"
        async with redis.client() as other:
            assert await other.keys() == [b"ph:rate:turn:a"]


@pytest.mark.redis
async def test_a_counter_never_stays(redis: PrivateRedis) -> None:
    async with redis.client() as client:
        limiter = RedisLimiter(client, 1, prefix="other")
        await limiter.admit("a")
        assert 0 < await client.pttl("other:rate:turn:a") <= 60_000
        await client.persist("other:rate:turn:a")
        assert await limiter.admit("a") == 60.0
        assert 0 < await client.pttl("other:rate:turn:a") <= 60_000
