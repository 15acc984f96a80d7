"""A raw connection to Redis: replies in any pieces, refusals, its end, answers that come late."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError

from poolhouse_control.errors import StoreAway
from poolhouse_control.signaling.redis_link import Link
from tests.support.redis import RedisServer, redis_server
from tests.support.replicas import replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TEXTS = st.lists(st.binary(max_size=40), max_size=20)


class Wire:
    """A transport that keeps what is done to it."""

    def __init__(self) -> None:
        self.written = b""
        self.is_reading = True
        self.aborted = False

    def set_protocol(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def abort(self) -> None:
        self.aborted = True


def a_link() -> tuple[Link, Wire]:
    wire = Wire()

    async def disconnect(*, nowait: bool) -> None:
        assert nowait

    link = Link(SimpleNamespace(_writer=SimpleNamespace(transport=wire), disconnect=disconnect))
    return link, wire


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


@given(texts=TEXTS, data=st.data())
def test_replies_keep_their_order_however_they_are_cut(texts: list[bytes], data: Any) -> None:
    async def run() -> list[bytes]:
        link, _ = a_link()
        stream = b"".join(map(bulk, texts))
        while stream:
            size = data.draw(st.integers(1, len(stream)))
            link.data_received(stream[:size])
            stream = stream[size:]
        return [await link.read() for _ in texts]

    assert asyncio.run(run()) == texts


@given(st.binary(max_size=200))
def test_nothing_that_comes_breaks_it(noise: bytes) -> None:
    async def run() -> None:
        link, wire = a_link()
        link.data_received(noise)
        assert wire.aborted == link.is_lost

    asyncio.run(run())


async def test_a_refusal_is_raised_in_its_place() -> None:
    link, _ = a_link()
    link.data_received(b":1\r\n-NOPERM not you\r\n:2\r\n")
    assert await link.read() == 1
    with pytest.raises(ResponseError, match="NOPERM"):
        await link.read()
    assert await link.read() == 2


async def test_what_came_before_the_end_is_read_first() -> None:
    link, wire = a_link()
    link.data_received(b":1\r\n:2")
    link.connection_lost(None)
    assert await link.read() == 1
    with pytest.raises(RedisConnectionError):
        await link.read()
    link.write("PING")
    assert wire.written == b""


async def test_who_waits_hears_of_the_end() -> None:
    link, _ = a_link()
    waiting = asyncio.ensure_future(link.read())
    await asyncio.sleep(0)
    await link.close()
    with pytest.raises(RedisConnectionError):
        await waiting


async def test_what_is_no_reply_ends_it() -> None:
    link, wire = a_link()
    link.data_received(b":1\r\nHTTP/1.1 400\r\n")
    assert await link.read() == 1
    with pytest.raises(InvalidResponse):
        await link.read()
    assert wire.aborted
    assert link.is_lost


async def test_a_flood_is_held_back_until_it_was_read() -> None:
    link, wire = a_link()
    for _ in range(65):
        link.data_received(b":1\r\n")
    assert not wire.is_reading
    for _ in range(64):
        await link.read()
    assert not wire.is_reading
    await link.read()
    assert wire.is_reading


@pytest.mark.redis
class TestPublishing:
    @pytest.fixture
    async def server(self, tmp_path: Path) -> AsyncIterator[RedisServer]:
        async with redis_server(tmp_path) as server:
            await server.grow_old()
            yield server

    async def test_a_late_answer_is_not_taken_for_the_next_one(self, server: RedisServer) -> None:
        async with replica(server) as one:
            own_channel = f"ph:r:{{{one.presence.replica}}}"
            assert await one.store.publish("nobody", b"x") == 0
            server.freeze()
            with pytest.raises(StoreAway):
                await one.store.publish("nobody", b"x")
            server.thaw()
            assert await one.store.publish(own_channel, b"x") == 1
            assert await one.store.publish("nobody", b"x") == 0

    async def test_a_cut_connection_is_replaced(self, server: RedisServer) -> None:
        async with replica(server) as one:
            assert await one.store.publish("nobody", b"x") == 0
            link = one.store._publisher
            assert link is not None
            await server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            async with asyncio.timeout(5):
                while not link.is_lost:
                    await asyncio.sleep(0.01)
            assert await one.store.publish("nobody", b"x") == 0
            assert one.store._publisher is not link

    async def test_many_at_once_get_their_own_answers(self, server: RedisServer) -> None:
        async with replica(server) as one:
            own_channel = f"ph:r:{{{one.presence.replica}}}"
            channels = ["nobody", own_channel] * 20
            counts = await asyncio.gather(*(one.store.publish(each, b"x") for each in channels))
            assert counts == [0, 1] * 20
