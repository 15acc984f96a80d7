"""Whole links: the real control plane, real engines, stripes and frames, on loopback."""

from __future__ import annotations

import asyncio
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from poolhouse_node.room.links import LinkFailed
from poolhouse_node.rtc.link import LinkSettings
from poolhouse_node.rtc.open import open_network
from poolhouse_node.rtc.signaling import SignalingError
from tests.support.control import running_control
from tests.support.recorder import Recorder, frame, positions, until

if TYPE_CHECKING:
    from poolhouse_node.rtc.peer import Engine

pytestmark = pytest.mark.webrtc

HOST = "pooled-room-TEST"
ENGINES: list[Engine] = ["libdatachannel", "aiortc"]
PAIRINGS = list(product(ENGINES, ENGINES))
pairings = pytest.mark.parametrize(
    ("dialing", "answering"), PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]
)


async def device(control, peer_id=None, engine="libdatachannel", settings=None):
    events = Recorder()
    network = await open_network([control.signal_url], peer_id, engine=engine, settings=settings)
    network.mesh.key = ""
    network.listen(events)
    return network, events


async def linked(control, dialing="libdatachannel", answering="libdatachannel", settings=None):
    """A host and a guest with a link and all stripes."""
    host, host_events = await device(control, HOST, answering)
    guest, guest_events = await device(control, None, dialing, settings)
    link = await guest.dial(HOST, timeout_s=20)
    await until(lambda: host_events.opened)
    other = host_events.opened[0]
    wanted = 3 if settings is None else max(0, settings.associations - 1)
    await until(lambda: link.stripes == other.stripes == wanted)
    return (guest, guest_events, link), (host, host_events, other)


@pairings
@pytest.mark.timeout(60)
@pytest.mark.parametrize("size_bytes", [10_240, 163_840], ids=["10KB", "160KB"])
async def test_sixty_frames_in_order_over_four_associations(dialing, answering, size_bytes):
    count = 60 if size_bytes < 100_000 or "aiortc" not in (dialing, answering) else 20
    async with running_control() as control:
        (guest, guest_events, link), (host, host_events, other) = await linked(
            control, dialing, answering
        )
        for position in range(count):
            link.send_frame(frame(position, size_bytes))
            other.send_frame(frame(position, size_bytes))
        await until(
            lambda: len(host_events.frames) == len(guest_events.frames) == count, timeout_s=40
        )
        assert positions(host_events) == positions(guest_events) == list(range(count))
        assert host_events.frames[7] == frame(7, size_bytes)
        assert link.transport.startswith(f"{dialing} ")
        await guest.close()
        await until(lambda: host_events.closed)
        await host.close()


async def test_a_message_of_300_kilobytes_both_ways_and_a_departure():
    async with running_control() as control:
        (guest, guest_events, link), (host, host_events, other) = await linked(control)
        data = bytes(range(250)) * 1200
        link.send({"t": "ai-wpart", "data": data})
        other.send({"t": "ai-wpart", "data": data})
        await until(lambda: host_events.messages and guest_events.messages)
        assert host_events.messages == guest_events.messages == [{"t": "ai-wpart", "data": data}]
        link.send({"t": "leaving"})
        await guest.close()
        await until(lambda: host_events.closed)
        assert host_events.messages[-1] == {"t": "leaving"}
        assert guest_events.closed == []
        await host.close()


async def test_frames_go_as_messages_with_the_wire_off():
    async with running_control() as control:
        (guest, _, link), (host, host_events, _) = await linked(
            control, settings=LinkSettings(associations=0)
        )
        for position in range(10):
            link.send_frame(frame(position, 40_000))
        await until(lambda: len(host_events.frames) == 10)
        assert positions(host_events) == list(range(10))
        await guest.close()
        await host.close()


async def test_a_lap_passes_through_a_link_both_ways():
    async with running_control() as control:
        (guest, guest_events, link), (host, host_events, _) = await linked(control)
        host_events.answer = lambda back, got: back.send_frame(got)
        for position in range(50):
            link.send_frame(frame(position))
            await until(lambda wanted=position: len(guest_events.frames) == wanted + 1)
        assert positions(guest_events) == list(range(50))
        await guest.close()
        await host.close()


async def test_a_peer_that_is_not_there():
    async with running_control(expire_after_s=0.2, sweep_every_s=0.1) as control:
        guest, _ = await device(control)
        with pytest.raises(LinkFailed) as failed:
            await guest.dial("pooled-room-NOBODY", timeout_s=20)
        assert failed.value.kind == "no-such-peer"
        await guest.close()


async def test_a_peer_that_does_not_answer_in_time():
    async with running_control() as control:
        guest, _ = await device(control)
        with pytest.raises(LinkFailed) as failed:
            await guest.dial("pooled-room-NOBODY", timeout_s=0.3)
        assert failed.value.kind == "timeout"
        await guest.close()


async def test_a_taken_code_is_said():
    async with running_control() as control:
        host, _ = await device(control, HOST)
        with pytest.raises(SignalingError) as failed:
            await device(control, HOST)
        assert failed.value.kind == "id-taken"
        await host.close()


async def test_a_second_link_of_the_same_device_replaces_the_first():
    async with running_control() as control:
        (guest, guest_events, link), (host, host_events, _) = await linked(control)
        link.send_frame(frame(0))
        await until(lambda: host_events.frames)
        again = await guest.dial(HOST, timeout_s=20)
        await until(lambda: len(host_events.opened) == 2)
        again.send_frame(frame(1))
        await until(lambda: positions(host_events) == [0, 1])
        assert host_events.closed == guest_events.closed == []
        await guest.close()
        await host.close()


async def test_links_live_on_without_the_signaling_server():
    async with running_control() as control:
        (guest, guest_events, link), (host, host_events, _) = await linked(control)
    await until(lambda: guest_events.signaling == host_events.signaling == [False])
    link.send({"t": "chat"})
    link.send_frame(frame(4))
    await until(lambda: host_events.messages and host_events.frames)
    with pytest.raises(LinkFailed) as failed:
        await guest.dial("pooled-room-OTHER", timeout_s=5)
    assert failed.value.kind == "signaling"
    await guest.close()
    await host.close()


PROGRAM = """
import asyncio, sys
from poolhouse_node.rtc.open import open_network
from tests.support.recorder import Recorder, until

async def main(url, engine):
    events = Recorder()
    events.answer = lambda link, frame: link.send_frame(frame)
    network = await open_network([url], "pooled-room-TEST", engine=engine)
    network.mesh.key = ""
    network.listen(events)
    print("ready", flush=True)
    await until(lambda: events.closed)
    await network.close()

import uvloop
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("engine", ENGINES)
async def test_two_processes_one_of_them_on_uvloop(engine):
    root = Path(__file__).parents[2]
    async with running_control() as control:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, control.signal_url, engine,
            stdout=asyncio.subprocess.PIPE,
            cwd=root,
        )  # fmt: skip
        try:
            assert await child.stdout.readline() == b"ready\n"
            guest, events = await device(control)
            link = await guest.dial(HOST, timeout_s=15)
            await until(lambda: link.stripes == 3)
            for position in range(60):
                link.send_frame(frame(position))
            await until(lambda: len(events.frames) == 60)
            assert positions(events) == list(range(60))
            await guest.close()
            async with asyncio.timeout(10):
                assert await child.wait() == 0
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
