"""Links over connections in memory, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.rtc.link import MAX_WAITING_FRAMES, Link, LinkSettings
from poolhouse_node.rtc.network import Network
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.frame_messages import frame_to_message
from poolhouse_node.wire.slices import Frame, Kind, encode_slices
from tests.support.fake_rtc import FakeConnection, FakeDialer, FakeNet, Weather
from tests.support.recorder import Recorder, frame, positions
from tests.support.virtual_time import run_virtual


@dataclass
class Side:
    """One device of a pair."""

    network: Network
    events: Recorder
    dialer: FakeDialer
    link: Link

    def mains(self) -> list[FakeConnection]:
        return [c for c in self.dialer.connections if c.label != "stripe"]

    def stripes(self) -> list[FakeConnection]:
        return [c for c in self.dialer.connections if c.label == "stripe"]


async def pair(
    net: FakeNet | None = None,
    link_settings: LinkSettings | None = None,
    *,
    admits: bool = True,
    settle_s: float = 5.0,
) -> tuple[Side, Side]:
    """A guest that dialed a host, both with their first link."""
    net = net or FakeNet()
    dialers = net.dialer(), net.dialer("pooled-room-TEST")
    events = Recorder(admits), Recorder(admits)
    networks = [Network(dialer, link_settings) for dialer in dialers]
    for network, listener in zip(networks, events, strict=True):
        network.mesh.key = ""
        network.listen(listener)
    await networks[0].dial("pooled-room-TEST", timeout_s=20)
    await asyncio.sleep(settle_s)
    sides = [
        Side(network, listener, dialer, listener.opened[0])
        for network, listener, dialer in zip(networks, events, dialers, strict=True)
    ]
    return sides[0], sides[1]


def test_messages_go_both_ways_in_order():
    async def main():
        guest, host = await pair()
        for number in range(50):
            guest.link.send({"t": "chat", "n": number})
            host.link.send({"t": "ping", "n": number, "odd": [1, None, "x"]})
        await asyncio.sleep(2)
        assert [m["n"] for m in host.events.messages] == list(range(50))
        assert host.events.messages[0] == {"t": "chat", "n": 0}
        assert guest.events.messages[7] == {"t": "ping", "n": 7, "odd": [1, None, "x"]}

    run_virtual(main())


@pytest.mark.parametrize(
    "value", [b"bandwidth" * 100, [1, 2], 7, None, {"x": 1}, {"t": 5}, {"t": None}], ids=repr
)
def test_what_is_no_message_is_ignored_but_heard(value):
    async def main():
        guest, host = await pair()
        guest.mains()[0].send(value)
        await asyncio.sleep(1)
        assert host.events.messages == []
        assert host.link.heard_at > 5.0

    run_virtual(main())


def test_an_unknown_message_reaches_the_device_which_may_ignore_it():
    async def main():
        guest, host = await pair()
        guest.link.send({"t": "ai-from-the-future", "v": 9})
        await asyncio.sleep(1)
        assert host.events.messages == [{"t": "ai-from-the-future", "v": 9}]

    run_virtual(main())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("loss", [0.0, 0.05], ids=["calm", "lossy"])
def test_frames_arrive_in_send_order_over_four_associations(seed, loss):
    async def main():
        guest, host = await pair(FakeNet(seed, Weather(delay_s=(0.001, 0.08), loss=loss)))
        assert guest.link.stripes == host.link.stripes == 3
        for position in range(100):
            guest.link.send_frame(frame(position, [10, 9000, 30_000][position % 3]))
            host.link.send_frame(frame(position, 2048))
            await asyncio.sleep(0.003)
        await asyncio.sleep(10)
        assert positions(host.events) == positions(guest.events) == list(range(100))
        assert host.events.frames[5] == frame(5, 30_000)

    run_virtual(main())


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 40_000), max_size=30))
@settings(max_examples=25, deadline=None)
def test_any_sizes_and_any_network_keep_the_order(seed, sizes):
    async def main():
        guest, host = await pair(FakeNet(seed, Weather(delay_s=(0.0, 0.5), loss=0.1)))
        for position, size_bytes in enumerate(sizes):
            guest.link.send_frame(frame(position, size_bytes & ~1))
        await asyncio.sleep(60)
        assert positions(host.events) == list(range(len(sizes)))

    run_virtual(main())


def test_small_frames_go_twice_on_two_associations():
    async def main():
        guest, host = await pair()
        wires = [c.wire for c in guest.dialer.connections]
        guest.link.send_frame(frame(0, 10_000))  # 3 slices
        assert sum(wire.sent for wire in wires) == 6
        assert sorted(wire.sent for wire in wires) == [1, 1, 2, 2]
        guest.link.send_frame(frame(1, 14_000))  # 4 slices
        assert sum(wire.sent for wire in wires) == 10
        await asyncio.sleep(1)
        assert positions(host.events) == [0, 1]

    run_virtual(main())


def test_a_frame_that_lost_one_copy_arrives_at_once():
    async def main():
        guest, host = await pair()
        guest.stripes()[0].cut()
        start = asyncio.get_running_loop().time()
        guest.link.send_frame(frame(0, 9000))
        await asyncio.sleep(0.5)
        assert positions(host.events) == [0]
        assert asyncio.get_running_loop().time() - start < 1

    run_virtual(main())


def test_frames_sent_before_admission_wait_and_keep_their_order():
    async def main():
        guest, host = await pair(admits=False)
        host.link.admit()
        for position in range(5):
            guest.link.send_frame(frame(position))
        await asyncio.sleep(1)
        assert positions(host.events) == []
        guest.link.admit()
        guest.link.send_frame(frame(5))
        await asyncio.sleep(2)
        assert positions(host.events) == [0, 1, 2, 3, 4, 5]

    run_virtual(main())


def test_frames_that_wait_for_admission_are_bounded():
    async def main():
        guest, host = await pair(admits=False)
        host.link.admit()
        for position in range(MAX_WAITING_FRAMES + 3):
            guest.link.send_frame(frame(position, 2))
        assert guest.link.dropped_frames == 3
        guest.link.admit()
        await asyncio.sleep(5)
        assert positions(host.events) == list(range(MAX_WAITING_FRAMES))

    run_virtual(main())


def test_frames_that_come_before_admission_are_dropped():
    async def main():
        guest, host = await pair(admits=False)
        guest.link.admit()
        guest.link.send_frame(frame(0))
        guest.link.send(frame_to_message(frame(1)))
        await asyncio.sleep(1)
        host.link.admit()
        await asyncio.sleep(1)
        assert positions(host.events) == []
        assert host.link.heard_at > 5.0

    run_virtual(main())


def test_with_the_wire_off_frames_go_as_messages():
    async def main():
        guest, host = await pair(link_settings=LinkSettings(associations=0))
        sent = Frame(Kind.HIDDEN_B, 32, 16, bytes(range(64)))
        guest.link.send_frame(sent)
        await asyncio.sleep(1)
        assert host.events.frames == [sent]
        assert host.events.messages == []
        assert all(c.wire.sent == 0 for c in guest.dialer.connections)

    run_virtual(main())


def test_without_an_open_wire_channel_frames_go_as_messages_and_come_back():
    async def main():
        guest, host = await pair(link_settings=LinkSettings(associations=1))
        wire = guest.mains()[0].wire
        wire.is_open = False
        guest.link.send_frame(frame(0))
        await asyncio.sleep(0.1)
        wire.is_open = True
        guest.link.send_frame(frame(1))
        await asyncio.sleep(0.1)
        assert positions(host.events) == [0, 1]
        assert wire.sent == 3

    run_virtual(main())


def test_a_channel_that_refuses_is_passed_over():
    async def main():
        guest, host = await pair()
        guest.stripes()[1].wire.refuses = True
        for position in range(20):
            guest.link.send_frame(frame(position, 30_000))
        await asyncio.sleep(2)
        assert positions(host.events) == list(range(20))

    run_virtual(main())


@pytest.mark.parametrize(
    "message",
    [
        {"t": "ai-hidden"},
        {"t": "ai-hidden", "pos": -1, "data": b""},
        {"t": "ai-hidden", "pos": 0, "data": 5, "enc": "f16"},
        {"t": "ai-hidden-b", "basePos": "x", "data": b"12", "enc": "f16"},
    ],
    ids=repr,
)
def test_a_malformed_frame_message_is_dropped(message):
    async def main():
        guest, host = await pair()
        guest.link.send(message)
        guest.link.send({"t": "chat"})
        await asyncio.sleep(1)
        assert host.events.frames == []
        assert host.events.messages == [{"t": "chat"}]

    run_virtual(main())


@given(st.lists(st.binary(max_size=80), max_size=20))
@settings(max_examples=25, deadline=None)
def test_garbage_on_the_wire_channel_is_ignored(garbage):
    async def main():
        guest, host = await pair()
        for data in garbage:
            guest.mains()[0].wire.send(data)
            guest.mains()[0].keepalive.send(data)
        guest.link.send_frame(frame(3))
        await asyncio.sleep(1)
        assert positions(host.events) == [3]

    run_virtual(main())


def test_a_frame_that_the_header_cannot_say_is_refused_and_takes_no_id():
    async def main():
        guest, host = await pair()
        with pytest.raises(WireError):
            guest.link.send_frame(Frame(Kind.HIDDEN, 2**32, 1, b""))
        guest.link.send_frame(frame(1))
        await asyncio.sleep(1)
        assert positions(host.events) == [1]

    run_virtual(main())


def test_a_missing_frame_is_waited_for_and_then_skipped():
    """Wire, section 7: 5 s after a channel closed; until then it is late, not lost."""

    async def main():
        guest, host = await pair()
        loop = asyncio.get_running_loop()
        stripe = host.stripes()[0]
        for data in encode_slices(frame(1, 20_000), 1)[:-1]:
            stripe.wire.deliver(data)
        for data in encode_slices(frame(2, 20_000), 2):
            stripe.wire.deliver(data)
        await asyncio.sleep(20)
        assert positions(host.events) == []
        closed_at = loop.time()
        guest.stripes()[0].lose("broken")
        stripe.lose("broken")
        while not host.events.frames:
            await asyncio.sleep(0.01)
        assert positions(host.events) == [2]
        assert loop.time() - closed_at == pytest.approx(5.0, abs=0.02)

    run_virtual(main())


def test_without_a_closed_channel_the_wait_is_a_minute():
    async def main():
        _guest, host = await pair()
        start = asyncio.get_running_loop().time()
        for data in encode_slices(frame(2), 2):
            host.mains()[0].wire.deliver(data)
        while not host.events.frames:
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - start == pytest.approx(60.0, abs=0.02)

    run_virtual(main())


# Keep-alive (wire, section 4).


def keepalives(side: Side) -> int:
    return sum(c.keepalive.sent for c in side.dialer.connections)


def test_a_keepalive_byte_every_ten_milliseconds_while_active():
    async def main():
        guest, host = await pair()
        assert keepalives(guest) == 0
        guest.link.send_frame(frame(0))
        await asyncio.sleep(10)
        assert 145 <= keepalives(guest) <= 150
        assert 145 <= keepalives(host) <= 150, "receiving a frame makes a link active too"
        each = [c.keepalive.sent for c in guest.dialer.connections]
        assert max(each) - min(each) <= 1, "the open ones take turns"

    run_virtual(main())


def test_no_keepalive_is_due_while_frames_flow():
    async def main():
        guest, _host = await pair()
        for position in range(100):
            guest.link.send_frame(frame(position))
            await asyncio.sleep(0.009)
        assert keepalives(guest) == 0

    run_virtual(main())


def test_no_timer_runs_on_an_idle_link():
    async def main():
        guest, _host = await pair()
        guest.link.send_frame(frame(0))
        await asyncio.sleep(10)
        await asyncio.sleep(0)
        live = [h for h in asyncio.get_running_loop()._scheduled if not h.cancelled()]
        assert live == []

    run_virtual(main())


def test_the_keepalive_can_be_off_and_passes_over_full_channels():
    async def main():
        guest, _ = await pair(link_settings=LinkSettings(keepalive_s=0))
        guest.link.send_frame(frame(0))
        await asyncio.sleep(1)
        assert keepalives(guest) == 0
        guest, _ = await pair(FakeNet(1))
        full = guest.mains()[0].keepalive
        full.buffered = lambda: 1024
        guest.link.send_frame(frame(0))
        await asyncio.sleep(1)
        assert full.sent == 0
        assert keepalives(guest) > 50

    run_virtual(main())


def test_everything_that_comes_is_a_sign_of_life():
    async def main():
        guest, host = await pair()
        seen = host.link.heard_at
        for send in (
            lambda: guest.link.send({"t": "ping"}),
            lambda: guest.mains()[0].wire.send(b"no slice"),
            lambda: guest.stripes()[2].wire.send(b"no slice"),
            lambda: guest.mains()[0].keepalive.send(b"\x00"),
            lambda: guest.stripes()[0].keepalive.send(b"\x00"),
            lambda: guest.stripes()[1].send({"t": "mesh"}),
        ):
            await asyncio.sleep(1)
            send()
            await asyncio.sleep(0.5)
            assert host.link.heard_at > seen
            seen = host.link.heard_at

    run_virtual(main())


# Ending.


def test_a_close_is_a_departure_at_the_other_end_only():
    async def main():
        guest, host = await pair()
        guest.link.send({"t": "leaving"})
        guest.link.close()
        assert not guest.link.is_open
        guest.link.send({"t": "late"})
        guest.link.send_frame(frame(0))
        guest.link.close()
        await asyncio.sleep(2)
        assert host.events.messages == [{"t": "leaving"}], "what was sent before still arrives"
        assert [peer for peer, _ in host.events.closed] == [guest.network.peer_id]
        assert guest.events.closed == []
        assert not guest.network.links
        assert not host.network.links
        assert not host.link.is_open

    run_virtual(main())


def test_the_transport_is_named_for_people():
    async def main():
        guest, _host = await pair()
        assert guest.link.transport == "fake host/host"

    run_virtual(main())


@pytest.mark.parametrize("associations", [-1, 9])
def test_a_number_of_associations_outside_the_protocol_is_refused(associations):
    with pytest.raises(ValueError, match=r"outside 0\.\.8"):
        LinkSettings(associations=associations)
