"""Letters between replicas: many messages in few, in order, and one answer for all of a letter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from poolhouse_control.signaling.presence import Away, Forwarded
from poolhouse_control.signaling.store_tally import StoreOp
from tests.support.redis import RedisServer, redis_server
from tests.support.replicas import Replica, eventually, parcel, replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from poolhouse_control.signaling.presence import RouteResult

pytestmark = pytest.mark.redis


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        await server.grow_old()
        yield server


def letters(sender: Replica) -> int:
    return sum(sender.store.tally.command_s[StoreOp.PUBLISH].counts)


def post(sender: Replica, text: str, results: list[RouteResult | None]) -> None:
    assert sender.presence.post(parcel("Z", text=text), results.append)


async def test_what_is_posted_together_travels_together_and_in_order(server: RedisServer) -> None:
    async with replica(server) as one, replica(server) as two:
        await two.claim("Z")
        results: list[RouteResult | None] = []
        assert not one.presence.post(parcel("Z"), results.append), "nobody knows yet where it is"
        assert await one.route(parcel("Z", text="first")) == Forwarded()
        before = letters(one)
        for number in range(300):
            post(one, str(number), results)
        await eventually(lambda: len(two.told.texts) == 301)
        assert two.told.texts == ["first", *map(str, range(300))]
        await eventually(lambda: results == [Forwarded()] * 300)
        assert letters(one) - before <= 2


async def test_letters_keep_a_pace(server: RedisServer) -> None:
    """Messages that drip share letters, and still come in order."""
    async with replica(server) as one, replica(server) as two:
        await two.claim("Z")
        await one.route(parcel("Z", text="first"))
        before = letters(one)
        results: list[RouteResult | None] = []
        began_at = asyncio.get_running_loop().time()
        for number in range(500):
            post(one, str(number), results)
            await asyncio.sleep(0)
        await eventually(lambda: len(results) == 500)
        took_s = asyncio.get_running_loop().time() - began_at
        assert two.told.texts[1:] == list(map(str, range(500)))
        assert letters(one) - before <= took_s / 0.006 + 2


async def test_a_replica_that_is_gone_is_asked_about_again(server: RedisServer) -> None:
    async with replica(server) as one:
        async with replica(server) as two:
            await two.claim("Z")
            await one.route(parcel("Z", text="first"))
        results: list[RouteResult | None] = []
        post(one, "late", results)
        await eventually(lambda: results == [None])
        assert not one.presence.post(parcel("Z"), results.append), "its place is forgotten"


async def test_without_an_answer_nothing_is_sent_again(server: RedisServer) -> None:
    async with replica(server) as one, replica(server) as two:
        await two.claim("Z")
        await one.route(parcel("Z", text="first"))
        server.freeze()
        results: list[RouteResult | None] = []
        post(one, "perhaps", results)
        await eventually(lambda: results == [Away()])
        server.thaw()
        await eventually(lambda: len(two.told.texts) == 2)
        assert await one.route(parcel("Z", text="last")) == Forwarded()
        await eventually(lambda: two.told.texts[-1] == "last")
        assert two.told.texts == ["first", "perhaps", "last"]
