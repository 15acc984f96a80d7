"""What links count, over connections in memory."""

import asyncio

import pytest

from poolhouse_node.rtc.counts import LinkCounts
from poolhouse_node.rtc.link import LinkSettings
from poolhouse_node.rtc.network import Network
from poolhouse_node.rtc.peer import CandidatePair
from tests.support.fake_rtc import FakeNet
from tests.support.recorder import Recorder, frame
from tests.support.virtual_time import run_virtual

HOST = "pooled-room-TEST"
FRAMES = 20
APART = CandidatePair("host", "host")


async def two_networks(
    path=APART, settings: LinkSettings | None = None
) -> tuple[Network, Network, Recorder]:
    net, host_events = FakeNet(), Recorder()
    net.path = path
    guest, host = Network(net.dialer(), settings), Network(net.dialer(HOST), settings)
    for network, events in ((guest, Recorder()), (host, host_events)):
        network.mesh.key = ""
        network.listen(events)
    await guest.dial(HOST, timeout_s=20)
    await asyncio.sleep(5)
    return guest, host, host_events


def test_counts_add_up():
    one = LinkCounts(frames_sent=1, gaps_waited=2)
    assert one + one + LinkCounts(keepalives=3) == LinkCounts(
        frames_sent=2, gaps_waited=4, keepalives=3
    )


def test_both_ends_count_the_same_frames_and_bytes():
    async def main():
        guest, host, _ = await two_networks()
        for position in range(FRAMES):
            guest.links[HOST].send_frame(frame(position, 2_000))
        await asyncio.sleep(2)
        sent, received = guest.counts(), host.counts()
        assert sent.frames_sent == received.frames_received == FRAMES
        assert sent.sent_first_bytes == received.received_first_bytes > FRAMES * 2_000
        assert sent.sent_second_bytes == received.received_second_bytes == sent.sent_first_bytes
        assert sent.keepalives > 0
        assert received.gaps_passed == received.gaps_waited == 0

    run_virtual(main())


@pytest.mark.parametrize(
    ("path", "copies"),
    [
        (CandidatePair("host", "host", same_address=True), 1),
        (CandidatePair("prflx", "host", same_address=True), 1),
        (CandidatePair("host", "host"), 2),
        (CandidatePair("srflx", "srflx", same_address=True), 2),
        (CandidatePair("relay", "relay", same_address=True), 2),
        (None, 2),
    ],
)
def test_small_frames_go_once_within_one_machine(path, copies):
    async def main():
        guest, host, _ = await two_networks(path)
        guest.links[HOST].send_frame(frame(0, 9_000))
        await asyncio.sleep(1)
        sent = guest.counts()
        assert sent.sent_second_bytes == (copies - 1) * sent.sent_first_bytes
        assert host.counts().frames_received == 1

    run_virtual(main())


def test_settings_may_ask_for_both_copies_everywhere():
    async def main():
        path = CandidatePair("host", "host", same_address=True)
        guest, _, _ = await two_networks(path, LinkSettings(once_within_machine=False))
        guest.links[HOST].send_frame(frame(0, 9_000))
        sent = guest.counts()
        assert sent.sent_second_bytes == sent.sent_first_bytes > 9_000

    run_virtual(main())


def test_links_that_are_over_still_count():
    async def main():
        guest, host, _ = await two_networks()
        guest.links[HOST].send_frame(frame(0))
        await asyncio.sleep(1)
        before = guest.counts()
        guest.links[HOST].close()
        await asyncio.sleep(10)
        assert not guest.links
        assert not host.links
        assert guest.counts().frames_sent == before.frames_sent == 1
        assert host.counts().frames_received == 1

    run_virtual(main())


def test_a_link_knows_what_waits_and_whether_it_is_relayed():
    async def main():
        guest, _, _ = await two_networks()
        link = guest.links[HOST]
        assert link.buffered_bytes == 0
        assert not link.is_relayed

    run_virtual(main())
