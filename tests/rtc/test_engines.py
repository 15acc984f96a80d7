"""Both engines behind the one interface, on loopback, in every pairing."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass, field
from itertools import product

import pytest

from poolhouse_node.rtc.binding import binding_of
from poolhouse_node.rtc.peer import (
    CandidatePair,
    Channel,
    ChannelClosed,
    Engine,
    IceSettings,
    Peer,
    RtcError,
    make_peer,
)

pytestmark = pytest.mark.webrtc

ENGINES: list[Engine] = ["libdatachannel", "aiortc"]
PAIRINGS = list(product(ENGINES, ENGINES))
pairings = pytest.mark.parametrize(
    ("dialing", "answering"), PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]
)
engines = pytest.mark.parametrize("engine", ENGINES)


@dataclass
class End:
    """One peer with the three channels of a connection."""

    peer: Peer
    wire: Channel
    main: Channel | None = None
    got: list[bytes] = field(default_factory=list)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, channel: Channel) -> None:
        self.main = channel
        channel.on_message = self.got.append
        channel.on_open = self.opened.set
        channel.on_close = self.closed.set
        if channel.is_open:
            self.opened.set()


def make_end(engine: Engine, ice: IceSettings | None = None) -> End:
    peer = make_peer(engine, ice or IceSettings())
    return End(peer, peer.channel("swarm-wire", stream_id=77))


async def connect(dialing: Engine, answering: Engine, ice: IceSettings | None = None):
    """Two ends whose main channel is open at both."""
    left, right = make_end(dialing, ice), make_end(answering, ice)
    right.peer.on_channel = right.take
    left.take(left.peer.channel("dc_test"))
    answer = await right.peer.answer(await left.peer.offer())
    await left.peer.accept(answer)
    async with asyncio.timeout(15):
        await left.opened.wait()
        await right.opened.wait()
    return left, right


async def close(*ends: End) -> None:
    await asyncio.gather(*(end.peer.close() for end in ends))


async def until(condition) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.002)


@pairings
async def test_messages_arrive_whole_and_in_order_both_ways(dialing, answering):
    left, right = await connect(dialing, answering)
    messages = [bytes([i]) * size for i, size in enumerate([1, 0x1000, 16_384, 2, 0xFFFF])]
    for message in messages:
        left.main.send(message)
        right.main.send(message)
    await until(lambda: len(left.got) == len(right.got) == len(messages))
    assert left.got == right.got == messages
    assert right.main.label == "dc_test"
    assert left.peer.state == right.peer.state == "connected"
    await close(left, right)


@pairings
async def test_negotiated_channels_need_no_announcement(dialing, answering):
    left, right = await connect(dialing, answering)
    got: list[bytes] = []
    right.wire.on_message = got.append
    await until(lambda: left.wire.is_open and right.wire.is_open)
    left.wire.send(b"\x53\x57slice")
    await until(lambda: got)
    assert got == [b"\x53\x57slice"]
    await close(left, right)


@pairings
async def test_both_ends_bind_to_the_same_fingerprints(dialing, answering):
    left, right = await connect(dialing, answering)
    binding = binding_of(*left.peer.descriptions())
    assert binding.count("sha-256 ") == 2
    assert binding == binding_of(*right.peer.descriptions())
    await close(left, right)


@pairings
async def test_a_close_is_seen_by_the_other_end(dialing, answering):
    left, right = await connect(dialing, answering)
    await left.peer.close()
    async with asyncio.timeout(5):
        await right.closed.wait()
    assert not right.main.is_open
    with pytest.raises(ChannelClosed):
        right.main.send(b"late")
    await close(left, right)


@engines
async def test_the_path_in_use_is_shown(engine):
    left, right = await connect(engine, engine)
    await until(lambda: left.peer.pair() is not None)
    pair = left.peer.pair()
    assert pair.local in ("host", "prflx")
    assert not pair.relayed
    assert pair.within_machine
    await close(left, right)
    assert CandidatePair("host", "relay").relayed


@engines
async def test_without_a_network_loopback_can_be_bound(engine):
    left, right = await connect(engine, engine, IceSettings(bind="127.0.0.1"))
    assert "127.0.0.1" in left.peer.descriptions()[0]
    left.main.send(b"home")
    await until(lambda: right.got)
    await close(left, right)


@engines
async def test_our_own_errors_after_close(engine):
    left, right = await connect(engine, engine)
    await close(left, right)
    await left.peer.close()
    with pytest.raises(ChannelClosed):
        left.main.send(b"late")
    with pytest.raises(ChannelClosed):
        left.peer.channel("late")
    assert left.main.buffered() == 0
    assert left.peer.state == "closed"


@engines
async def test_a_description_that_is_none_is_our_error(engine):
    end = make_end(engine)
    with pytest.raises(RtcError):
        await end.peer.answer("v=0\r\nm=nonsense")
    await end.peer.close()


@engines
async def test_a_message_over_the_limit_is_our_error(engine):
    """Of libdatachannel only: aiortc takes any size and leaves the refusal to the reader."""
    left, right = await connect(engine, "libdatachannel")
    if engine == "libdatachannel":
        with pytest.raises(RtcError):
            left.main.send(bytes(300_000))
    await close(left, right)


async def test_a_busy_reader_loses_nothing():
    """Engines, pitfall 1: the library's own channel keeps 1,024 messages and drops the rest."""
    left, right = await connect("libdatachannel", "libdatachannel")
    for number in range(3000):
        left.main.send(number.to_bytes(4))
    stop = asyncio.get_running_loop().time() + 0.3
    while asyncio.get_running_loop().time() < stop:
        pass  # the loop is busy: no callback runs
    await until(lambda: len(right.got) == 3000)
    assert right.got == [number.to_bytes(4) for number in range(3000)]
    await close(left, right)


@pairings
async def test_what_was_sent_before_a_channel_closed_still_arrives(dialing, answering):
    """Destroying an association drops what is on its way; closing the channel does not."""
    left, right = await connect(dialing, answering)
    for _ in range(20):
        left.main.send(bytes(16_300))
    left.main.close()
    async with asyncio.timeout(5):
        await right.closed.wait()
    assert sum(map(len, right.got)) == 20 * 16_300
    await close(left, right)


@engines
async def test_forty_cycles_leave_no_files_and_threads_behind(engine):
    async def cycles(count):
        for _ in range(count):
            await close(*await connect(engine, engine))

    await cycles(4)
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    await cycles(40)
    assert len(os.listdir("/proc/self/fd")) <= files + 4
    assert threading.active_count() <= threads + 4
