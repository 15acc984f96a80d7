"""Data connections over real engines on loopback, introduced by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from poolhouse_node.rtc import outgoing
from poolhouse_node.rtc.connection import Connection
from poolhouse_node.rtc.peer import ChannelClosed, Engine, IceSettings, RtcError, make_peer
from poolhouse_node.wire.binarypack import pack
from poolhouse_node.wire.errors import WireError
from tests.support.recorder import until

pytestmark = pytest.mark.webrtc

ENGINES: list[Engine] = ["libdatachannel", "aiortc"]
PAIRINGS = list(product(ENGINES, ENGINES))
pairings = pytest.mark.parametrize(
    ("dialing", "answering"), PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]
)


@dataclass
class Reader:
    """Notes what a connection tells."""

    values: list[Any] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    heards: int = 0

    def message(self, value: Any) -> None:
        self.values.append(value)

    def heard(self) -> None:
        self.heards += 1

    def closed(self, reason: str) -> None:
        self.reasons.append(reason)


def make(engine, *, dialed, peer_id="other"):
    peer = make_peer(engine, IceSettings())
    return Connection(peer, peer_id=peer_id, connection_id="dc_1", label="dc_1", dialed=dialed)


async def introduce(left, right):
    await left.accept(await right.answer(await left.offer()))
    assert await left.wait_open(15)
    assert await right.wait_open(15)


async def connect(dialing="libdatachannel", answering="libdatachannel"):
    left, right = make(dialing, dialed=True), make(answering, dialed=False)
    await introduce(left, right)
    return left, right


async def close(*connections):
    for connection in connections:
        connection.close()
    for connection in connections:
        await connection.wait_closed()


@pairings
async def test_long_messages_go_both_ways_in_pieces(dialing, answering):
    left, right = await connect(dialing, answering)
    readers = Reader(), Reader()
    left.listen(readers[0])
    right.listen(readers[1])
    data = bytes(range(256)) * 1200
    left.send({"t": "before"})
    left.send({"t": "big", "data": data})
    left.send({"t": "after", "list": [1, -5, 2.5, None, "ü"]})
    right.send({"t": "big", "data": data})
    await until(lambda: len(readers[1].values) == 3 and readers[0].values)
    assert readers[1].values[0] == {"t": "before"}
    assert readers[1].values[1]["data"] == readers[0].values[0]["data"] == data
    assert readers[1].values[2]["list"] == [1, -5, 2.5, None, "ü"]
    assert readers[1].heards == 1 + -(-len(data) // 16300) + 1
    assert left.binding() == right.binding() != ""
    await close(left, right)


@pairings
async def test_the_wire_and_keepalive_channels_are_there_on_both_sides(dialing, answering):
    """Decision 4: made before the remote description, so that a first slice finds its channel."""
    left, right = await connect(dialing, answering)
    got = []
    right.wire.on_message = got.append
    right.keepalive.on_message = got.append
    await until(lambda: left.wire.is_open and left.keepalive.is_open)
    left.wire.send(b"SW-slice")
    await until(lambda: got)
    left.keepalive.send(b"\x00")
    await until(lambda: len(got) == 2)
    assert got == [b"SW-slice", b"\x00"]
    await close(left, right)


async def test_what_is_sent_before_opening_and_before_listening_arrives():
    left, right = make("libdatachannel", dialed=True), make("libdatachannel", dialed=False)
    for number in range(5):
        left.send({"n": number})
    await introduce(left, right)
    reader = Reader()
    await asyncio.sleep(0.2)
    right.listen(reader)
    assert reader.values == [{"n": number} for number in range(5)]
    await close(left, right)


@pairings
async def test_a_close_sends_what_was_queued_and_is_seen(dialing, answering):
    left, right = await connect(dialing, answering)
    reader, own = Reader(), Reader()
    right.listen(reader)
    left.listen(own)
    for _ in range(30):
        left.send({"t": "weights", "data": bytes(60_000)})
    left.send({"t": "leaving"})
    left.close()
    with pytest.raises(ChannelClosed):
        left.send({"t": "late"})
    await left.wait_closed()
    await until(lambda: reader.reasons)
    assert len(reader.values) == 31
    assert reader.values[-1] == {"t": "leaving"}
    assert reader.reasons == ["The other device closed the connection."]
    assert own.reasons == []
    assert (left.state, right.is_open) == ("closed", False)
    await close(left, right)


async def test_a_close_request_is_honoured():
    left, right = await connect()
    reader = Reader()
    right.listen(reader)
    left.send({"__peerData": {"type": "close"}})
    await until(lambda: reader.reasons)
    assert reader.values == []
    assert not right.is_open
    await close(left, right)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff" * 40, b"\xde\xff\xff", pack({"__peerData": 1, "n": 9, "total": 2, "data": b""})],
    ids=["empty", "minus ones", "cut map", "piece out of range"],
)
async def test_garbage_is_heard_and_ignored(data):
    left, right = await connect()
    reader = Reader()
    right.listen(reader)
    left._main.send(data)
    left.send({"t": "fine"})
    await until(lambda: {"t": "fine"} in reader.values)
    assert reader.heards == 2
    await close(left, right)


async def test_bulk_waits_and_drain_returns():
    left, right = await connect()
    reader = Reader()
    right.listen(reader)
    for _ in range(100):
        left.send({"data": bytes(60_000)})
    async with asyncio.timeout(15):
        await left.drain()
    assert not left._outgoing._queue
    await until(lambda: len(reader.values) == 100)
    await close(left, right)
    with pytest.raises(ChannelClosed):
        await left.drain()


async def test_who_waits_for_the_queue_waits_for_the_opening_too():
    left, right = make("libdatachannel", dialed=True), make("libdatachannel", dialed=False)
    left.send({"t": "early"})
    waiting = asyncio.create_task(left.drain())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await introduce(left, right)
    async with asyncio.timeout(5):
        await waiting
    await close(left, right)


async def test_a_peer_that_does_not_read_loses_its_connection(monkeypatch):
    monkeypatch.setattr(outgoing, "QUEUE_LIMIT_BYTES", 200_000)
    left = make("libdatachannel", dialed=True)
    reader = Reader()
    left.listen(reader)
    for _ in range(5):
        left.send({"data": bytes(60_000)}) if left.state == "opening" else None
    assert reader.reasons == ["The other device does not read what it is sent."]
    with pytest.raises(RtcError):
        await left.wait_open(1)
    await close(left)


async def test_what_cannot_be_packed_is_the_callers_error():
    left, right = await connect()
    with pytest.raises(WireError):
        left.send({"x": object()})
    await close(left, right)


@pytest.mark.parametrize("sdp", ["", "v=0", "m=application\r\na=ice-ufrag:x", "x" * 70_000])
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_description_that_is_none_is_refused(engine, sdp):
    right = make(engine, dialed=False)
    with pytest.raises(RtcError):
        await right.answer(sdp)
    await close(right)


async def test_candidates_wait_for_the_description_and_are_bounded():
    left, right = make("libdatachannel", dialed=True), make("libdatachannel", dialed=False)
    offer = await left.offer()
    lines = offer.split("\r\n")
    candidates = [line[2:] for line in lines if line.startswith("a=candidate:")]
    bare = "\r\n".join(line for line in lines if "candidate" not in line)
    for text in [*candidates, "", "candidate:garbage", *["candidate:1 1 UDP 1 x 1 typ host"] * 200]:
        right.add_candidate(text, "0")
    assert len(right._candidates) <= 64
    await left.accept(await right.answer(bare))
    assert await left.wait_open(15)
    await until(lambda: not right._candidates)
    right.add_candidate("candidate:late", "0")
    await close(left, right)


async def test_a_second_answer_is_ignored():
    left, right = make("libdatachannel", dialed=True), make("libdatachannel", dialed=False)
    answer = await right.answer(await left.offer())
    await left.accept(answer)
    await left.accept("garbage")
    assert await left.wait_open(15)
    await close(left, right)


async def test_a_connection_that_never_opened_closes_at_once():
    left = make("libdatachannel", dialed=True)
    left.close()
    async with asyncio.timeout(2):
        await left.wait_closed()
    with pytest.raises(RtcError):
        await left.wait_open()
    with pytest.raises(ChannelClosed):
        await left.drain()


async def test_further_channels_of_the_peer_are_closed():
    left, right = await connect()
    extra = left._peer.channel("extra")
    closed = asyncio.Event()
    extra.on_close = closed.set
    async with asyncio.timeout(5):
        await closed.wait()
    assert right.is_open
    await close(left, right)
