"""A browser joins a room of ours and asks (joining, section 2; generation, section 14)."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from poolhouse_node.device.answering import GenerationSettings
from poolhouse_node.device.device import Identity
from poolhouse_node.device.events import DeviceJoined, DeviceLeft, Event, TokenShown
from poolhouse_node.device.host import Host, HostSettings
from poolhouse_node.device.model import RoomModel
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.room.gate import Gate
from poolhouse_node.rtc.open import open_network
from tests.support.fake_model import FakeLoader, FakeTokenizer, InlineCompute, needs
from tests.support.recorder import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.browser,
    pytest.mark.webrtc,
    pytest.mark.timeout(60),
    pytest.mark.asyncio(loop_scope="module"),
]

ROOM = "pooled-room-ABCDEF"


@asynccontextmanager
async def open_room(signal_url: str) -> AsyncIterator[tuple[Host, list[Event]]]:
    """A host with a fake model, online and alone, and what it tells its person."""
    events: list[Event] = []
    network = await open_network([signal_url], ROOM)
    network.mesh.takes_older_devices = True  # the page of this test proves nothing
    host = Host(
        network,
        Identity("host", {"webgpu": True, "ua": "Device", "contribGB": 1.0}),
        events.append,
        model=RoomModel("fake", "Fake", needs(), 2048, FakeTokenizer()),
        loader=FakeLoader(),
        compute=InlineCompute(),
        settings=HostSettings(GenerationSettings(Sampling(), max_tokens=5)),
        gate=Gate(secrets.token_bytes, asks=False),
        save_gate=lambda state: None,
        draw=lambda: 0.5,
    )
    async with host:
        await host.start()
        yield host, events


async def test_a_browser_joins_asks_and_leaves(browser_device, control):
    browser = await browser_device()
    browser_id = await browser.peer_id()

    async def heard(kind: str) -> dict:
        await browser.until(f"device.messages.some((message) => message.t === '{kind}')")
        return await browser.get("device.messages.find(({ t }) => t === argument)", kind)

    async with open_room(control.signal_url) as (host, events):
        await browser.dial(ROOM, stripes=3)
        assert (await heard("hello"))["v"] == 4
        roster = await heard("roster")
        assert [member["id"] for member in roster["members"]] == [ROOM, browser_id]
        assert (await heard("ai-ready-all"))["label"] == "Fake"

        host.ping(host.peers[browser_id])
        await until(lambda: host.peers[browser_id].rtt_s is not None)
        await browser.get("device.main.send({ t: 'ping', ts: 1.5 })")
        assert (await heard("pong"))["ts"] == 1.5

        await browser.get("device.main.send({ t: 'ai-ask', text: 'hello?' })")
        assert (await heard("ai-genstart"))["text"] == "hello?"
        await heard("ai-gendone")
        answer = await browser.get(
            "device.messages.filter(({ t }) => t === 'ai-token').map(({ text }) => text).join('')"
        )
        assert answer == "".join(event.text for event in events if isinstance(event, TokenShown))
        assert answer

        await browser.get("device.main.send({ t: 'leaving' })")
        await until(lambda: any(isinstance(event, DeviceLeft) for event in events))
        assert [event.name for event in events if isinstance(event, DeviceJoined)] == ["browser"]
        assert browser_id not in host.peers
        await browser.until("device.log.includes('link closed')")
