"""Networks and stripes over connections in memory, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from poolhouse_node.room.links import LinkFailed
from poolhouse_node.rtc.link import LinkSettings
from poolhouse_node.rtc.network import Network
from poolhouse_node.rtc.stripes import MAX_EARLY_SLICES
from poolhouse_node.wire.slices import encode_slices
from tests.support.fake_rtc import FakeNet, Weather
from tests.support.recorder import Recorder, frame, positions
from tests.support.virtual_time import run_virtual

HOST = "pooled-room-TEST"


def device(net, peer_id=None, settings=None, *, admits=True):
    """A network that listens, its events and its dialer."""
    dialer = net.dialer(peer_id)
    network, events = Network(dialer, settings), Recorder(admits)
    network.mesh.key = ""
    network.listen(events)
    return network, events, dialer


async def linked(net=None, guest_settings=None, host_settings=None, *, host_admits=True):
    net = net or FakeNet()
    host = device(net, HOST, host_settings, admits=host_admits)
    guest = device(net, None, guest_settings)
    await guest[0].dial(HOST, timeout_s=20)
    await asyncio.sleep(5)
    return guest, host


def labels(dialer):
    return [label for _, label in dialer.dials]


def test_a_link_is_known_by_its_peer_at_both_ends():
    async def main():
        (guest, guest_events, _), (host, host_events, _) = await linked()
        assert list(guest.links) == [HOST]
        assert list(host.links) == [guest.peer_id]
        assert guest_events.opened == [guest.links[HOST]]
        assert guest.links[HOST].dialed
        assert not host_events.opened[0].dialed

    run_virtual(main())


@pytest.mark.parametrize(("associations", "stripes"), [(0, 0), (1, 0), (2, 1), (4, 3), (8, 7)])
def test_the_dialing_side_dials_the_stripes(associations, stripes):
    async def main():
        settings = LinkSettings(associations=associations)
        (guest, _, dialer), (host, _, host_dialer) = await linked(guest_settings=settings)
        assert labels(dialer) == [None] + ["stripe"] * stripes
        assert host_dialer.dials == []
        assert guest.links[HOST].stripes == host.links[guest.peer_id].stripes == stripes

    run_virtual(main())


def test_stripes_wait_for_admission_at_the_dialing_side():
    async def main():
        net = FakeNet()
        host, _, _ = device(net, HOST)
        guest, events, dialer = device(net, admits=False)
        link = await guest.dial(HOST, timeout_s=20)
        await asyncio.sleep(30)
        assert labels(dialer) == [None]
        link.admit()
        link.admit()
        await asyncio.sleep(5)
        assert labels(dialer) == [None, "stripe", "stripe", "stripe"]
        assert events.opened == [link]
        assert host.links[guest.peer_id].stripes == 3

    run_virtual(main())


def test_an_incoming_stripe_waits_with_a_link_that_is_not_admitted_yet():
    async def main():
        (guest, _, _), (host, host_events, _) = await linked(host_admits=False)
        link = host.links[guest.peer_id]
        assert link.stripes == 0
        for position in range(4):
            guest.links[HOST].send_frame(frame(position, 40_000))
        await asyncio.sleep(15)
        assert positions(host_events) == []
        link.admit()
        assert link.stripes == 3
        assert guest.links[HOST].stripes == 3, "and was not closed meanwhile"

    run_virtual(main())


def test_slices_that_overtake_the_proof_are_kept():
    """Other channels of an association may overtake its mesh message."""

    async def main():
        (guest, _, guest_dialer), (host, host_events, _) = await linked(
            guest_settings=LinkSettings(associations=1)
        )
        stripe = await guest_dialer.connect(HOST, label="stripe", timeout_s=20)
        await asyncio.sleep(1)
        for data in encode_slices(frame(7, 20_000), 1):
            stripe.wire.send(data)
        await asyncio.sleep(1)
        assert positions(host_events) == []
        stripe.send({"t": "mesh", "v": 1, "none": 1})
        await asyncio.sleep(1)
        assert positions(host_events) == [7]
        assert host.links[guest.peer_id].stripes == 1

    run_virtual(main())


def test_slices_before_a_proof_are_bounded():
    async def main():
        (_, _, guest_dialer), (_, host_events, _) = await linked(
            guest_settings=LinkSettings(associations=1)
        )
        stripe = await guest_dialer.connect(HOST, label="stripe", timeout_s=20)
        await asyncio.sleep(1)
        for position in range(MAX_EARLY_SLICES + 10):
            stripe.wire.send(encode_slices(frame(position, 2), position + 1)[0])
        await asyncio.sleep(1)
        stripe.send({"t": "mesh", "v": 1, "none": 1})
        await asyncio.sleep(1)
        assert len(host_events.frames) == MAX_EARLY_SLICES

    run_virtual(main())


def test_a_stripe_that_is_not_proved_in_ten_seconds_is_closed():
    async def main():
        (guest, _, guest_dialer), (host, _, _) = await linked(
            guest_settings=LinkSettings(associations=1)
        )
        stripe = await guest_dialer.connect(HOST, label="stripe", timeout_s=20)
        stripe.send({"t": "chat"})
        await asyncio.sleep(9.5)
        assert stripe.is_open
        await asyncio.sleep(1)
        assert not stripe.is_open
        assert host.links[guest.peer_id].stripes == 0

    run_virtual(main())


def test_a_stripe_from_an_unknown_device_is_closed():
    async def main():
        net = FakeNet()
        host, events, _ = device(net, HOST)
        stripe = await net.dialer().connect(HOST, label="stripe", timeout_s=20)
        await asyncio.sleep(1)
        assert not stripe.is_open
        assert events.opened == []
        assert not host.links

    run_virtual(main())


@pytest.mark.parametrize("case", ["eighth stripe", "wire off", "dialed by the wrong side"])
def test_a_stripe_that_cannot_be_used_is_closed(case):
    async def main():
        off = LinkSettings(associations=0)
        (guest, _, guest_dialer), (_, _, host_dialer) = await linked(
            guest_settings=LinkSettings(associations=8 if case == "eighth stripe" else 1),
            host_settings=off if case == "wire off" else None,
        )
        dialer = host_dialer if case == "dialed by the wrong side" else guest_dialer
        target = guest.peer_id if dialer is host_dialer else HOST
        stripe = await dialer.connect(target, label="stripe", timeout_s=20)
        await asyncio.sleep(1)
        assert not stripe.is_open

    run_virtual(main())


def test_a_lost_stripe_is_dialed_again_after_two_seconds():
    async def main():
        (guest, _, dialer), (host, _, _) = await linked()
        loop = asyncio.get_running_loop()
        stripe = next(c for c in dialer.connections if c.label == "stripe")
        lost_at, dials = loop.time(), len(dialer.dials)
        stripe.lose("broken")
        stripe.other.lose("broken")
        assert guest.links[HOST].stripes == host.links[guest.peer_id].stripes == 2
        while len(dialer.dials) == dials:
            await asyncio.sleep(0.01)
        assert loop.time() - lost_at == pytest.approx(2.0, abs=0.02)
        await asyncio.sleep(5)
        assert guest.links[HOST].stripes == host.links[guest.peer_id].stripes == 3

    run_virtual(main())


def test_a_stripe_that_never_comes_up_is_given_up_after_four_tries():
    async def main():
        net = FakeNet()
        (_, _, dialer), _ = await linked(net, LinkSettings(associations=2))
        net.unreachable.add(HOST)
        stripe = dialer.connections[-1]
        stripe.lose("broken")
        stripe.other.lose("broken")
        await asyncio.sleep(600)
        assert labels(dialer) == [None, "stripe"] + ["stripe"] * 4

    run_virtual(main())


def test_a_peer_that_closes_every_stripe_is_not_dialed_for_ever():
    async def main():
        (_, _, dialer), _ = await linked(host_settings=LinkSettings(associations=0))
        await asyncio.sleep(600)
        assert labels(dialer).count("stripe") == 3 * 5

    run_virtual(main())


@pytest.mark.parametrize("seed", range(10))
def test_a_second_main_connection_replaces_the_first_without_a_departure(seed):
    """Whichever end sees the new one first, and closes the old."""

    async def main():
        (guest, guest_events, dialer), (host, host_events, _) = await linked(FakeNet(seed))
        for position in range(3):
            guest.links[HOST].send_frame(frame(position))
        await asyncio.sleep(1)
        first = host.links[guest.peer_id]
        again = await guest.dial(HOST, timeout_s=20)
        await asyncio.sleep(5)
        assert guest.links[HOST] is again
        assert host.links[guest.peer_id] is host_events.opened[1] is not first
        assert host_events.closed == guest_events.closed == []
        assert not first.is_open
        again.send_frame(frame(3))
        again.send({"t": "hello", "back": 1})
        await asyncio.sleep(1)
        assert positions(host_events) == [0, 1, 2, 3], "ids start at 1 at both ends"
        assert host_events.messages == [{"t": "hello", "back": 1}]
        assert sum(c.is_open for c in dialer.connections) == 4, "old stripes went too"

    run_virtual(main())


def test_messages_that_come_before_the_device_listens_to_the_link_are_kept():
    """The acceptor may speak before the dialing side's task runs."""

    async def main():
        net = FakeNet(weather=Weather(delay_s=(0.0, 0.0)))
        _host, host_events, _ = device(net, HOST)
        guest, guest_events, _ = device(net)
        opened = host_events.link_opened

        def greet(link):
            opened(link)
            link.send({"t": "hello", "name": "host"})

        host_events.link_opened = greet
        await guest.dial(HOST, timeout_s=20)
        await asyncio.sleep(1)
        assert guest_events.messages == [{"t": "hello", "name": "host"}]

    run_virtual(main())


def test_a_departure_during_a_dial_that_fails_is_told_then():
    async def main():
        net = FakeNet()
        (guest, guest_events, _), (_, _, host_dialer) = await linked(net)
        net.unreachable.add(HOST)
        dial = asyncio.create_task(guest.dial(HOST, timeout_s=40))
        await asyncio.sleep(1)
        host_dialer.vanish()
        await asyncio.sleep(1)
        assert guest_events.closed == []
        with pytest.raises(LinkFailed):
            await dial
        assert [peer for peer, _ in guest_events.closed] == [HOST]
        assert not guest.links

    run_virtual(main())


@pytest.mark.parametrize("kind", ["no-such-peer", "no-path", "timeout", "signaling"])
def test_a_failed_dial_says_why(kind):
    async def main():
        net = FakeNet()
        device(net, HOST)
        guest, _, _ = device(net)
        if kind == "no-path":
            net.unreachable.add(HOST)
        if kind == "signaling":
            net.set_signaling(False)
        with pytest.raises(LinkFailed) as failed:
            await guest.dial(
                "nobody" if kind == "no-such-peer" else HOST,
                timeout_s=0.01 if kind == "timeout" else 40,
            )
        assert failed.value.kind == kind
        assert str(failed.value).endswith(".")
        assert not guest.links

    run_virtual(main())


def test_the_state_of_signaling_is_passed_on():
    async def main():
        net = FakeNet()
        (_, events, _), _ = await linked(net)
        net.set_signaling(False)
        net.set_signaling(True)
        assert events.signaling == [False, True]

    run_virtual(main())


def test_closing_a_network_closes_its_links_after_what_was_sent():
    async def main():
        (guest, guest_events, dialer), (host, host_events, _) = await linked()
        guest.links[HOST].send({"t": "leaving"})
        await guest.close()
        await guest.close()
        await asyncio.sleep(2)
        assert host_events.messages == [{"t": "leaving"}]
        assert len(host_events.closed) == 1
        assert guest_events.closed == []
        assert not host.links
        assert not any(c.is_open for c in dialer.connections)
        with pytest.raises(LinkFailed) as failed:
            await guest.dial(HOST, timeout_s=1)
        assert failed.value.kind == "closed"
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())


def test_a_network_that_nobody_listens_to_takes_no_connection():
    async def main():
        net = FakeNet()
        Network(net.dialer(HOST))
        connection = await net.dialer().connect(HOST, timeout_s=20)
        await asyncio.sleep(1)
        assert not connection.is_open

    run_virtual(main())


def test_a_device_that_vanishes_is_a_departure_once_its_engine_notices():
    async def main():
        (_, _, dialer), (_, host_events, _) = await linked()
        dialer.vanish(noticed_after_s=15)
        await asyncio.sleep(14)
        assert host_events.closed == []
        await asyncio.sleep(2)
        assert len(host_events.closed) == 1

    run_virtual(main())
