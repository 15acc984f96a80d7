"""The limit per address: one suite for both places it is kept in."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.relay.limiter import Limiter, MemoryLimiter
from poolhouse_control.relay.limiter_redis import RedisLimiter
from poolhouse_control.signaling.redis_store import RedisStore
from tests.support.control import running_control
from tests.support.redis import RedisServer, redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    type Maker = Callable[..., AbstractAsyncContextManager[tuple[Limiter, Limiter]]]

ROWS = json.loads((Path(__file__).parents[2] / "vectors" / "turn.json").read_text())["limiter"]


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def limiter_at(
    url: str, rate: int, *, cluster: bool = False, **said: Any
) -> AsyncIterator[RedisLimiter]:
    """A limiter over the client that a replica has."""
    client = RedisStore(url, cluster=cluster, clock=time.monotonic).client
    try:
        yield RedisLimiter(client, rate, **said)
    finally:
        await client.aclose()


PLACES = ["memory", *(pytest.param(x, marks=pytest.mark.redis) for x in ("redis", "cluster"))]


@pytest.fixture(params=PLACES)
def limiters(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    """Two views of one limit: one object in memory, two replicas over Redis."""

    @asynccontextmanager
    async def memory(rate: int, window_s: float) -> AsyncIterator[tuple[Limiter, Limiter]]:
        limiter = MemoryLimiter(rate, window_s=window_s)
        yield limiter, limiter

    @asynccontextmanager
    async def shared(rate: int, window_s: float) -> AsyncIterator[tuple[Limiter, Limiter]]:
        cluster = request.param == "cluster"
        async with redis_server(tmp_path, cluster=cluster) as server, AsyncExitStack() as stack:
            views = [
                limiter_at(server.url, rate, cluster=cluster, window_s=window_s) for _ in range(2)
            ]
            one, two = [await stack.enter_async_context(view) for view in views]
            yield one, two

    return memory if request.param == "memory" else shared


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
async def test_without_redis_each_replica_counts_for_itself(redis: RedisServer) -> None:
    clock = Clock()
    async with limiter_at(redis.url, 2, clock=clock) as limiter:
        assert await limiter.admit("a") == 0
        redis.stop()
        assert [await limiter.admit("a") > 0 for _ in range(3)] == [False, False, True]
        await redis.start()
        assert await limiter.admit("b") == 0, "not asked again at once"
        assert await redis.keys() == set()
        clock.now += 2.0
        assert await limiter.admit("a") == 0, "Redis came back empty"
        assert await redis.keys() == {"ph:rate:turn:a"}


@pytest.mark.redis
async def test_a_store_that_stands_still_holds_nobody_up(redis: RedisServer) -> None:
    async with limiter_at(redis.url, 5) as limiter:
        assert await limiter.admit("a") == 0
        redis.freeze()
        try:
            began_at = time.monotonic()
            waits = await asyncio.gather(*(limiter.admit("a") for _ in range(100)))
            assert time.monotonic() - began_at < 2.0
            assert sum(wait == 0 for wait in waits) == 5
        finally:
            redis.thaw()


@pytest.mark.redis
async def test_a_counter_never_stays(redis: RedisServer) -> None:
    key = "other:rate:turn:a"
    async with limiter_at(redis.url, 1, prefix="other") as limiter:
        await limiter.admit("a")
        assert 0 < await redis.run("PTTL", key) <= 60_000
        await redis.run("PERSIST", key)
        assert await limiter.admit("a") == 60.0
        assert 0 < await redis.run("PTTL", key) <= 60_000


@pytest.mark.redis
async def test_the_limit_holds_across_replicas(redis: RedisServer) -> None:
    env = {
        "TURN_SECRET": "sesame",
        "TURN_HOST": "relay.example.org",
        "TURN_RATE": "3",
        "POOLHOUSE_TURN_PROBE_EVERY_S": "0",
        "POOLHOUSE_TRUSTED_PROXIES": "127.0.0.1",
        "POOLHOUSE_PUBLIC_URL": "https://room.example.org",
        "POOLHOUSE_REDIS_URL": redis.url,
    }
    said = {"origin": "https://room.example.org", "x-real-ip": "203.0.113.9"}
    quick = {"drain_delay_s": 0.0, "drain_spread_s": 0.0}
    async with (
        running_control(env, **quick) as one,
        running_control(env, **quick) as two,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        urls = [control.signal_url + "api/turn" for control in (one, two)] * 3
        answers = await asyncio.gather(*(http.post(url, headers=said) for url in urls))
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 3
