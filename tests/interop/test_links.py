"""The real peerjs client and our links, over both engines, dialed from either side (wire)."""

from __future__ import annotations

import hashlib
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from poolhouse_node.rtc.link import LinkSettings
from poolhouse_node.rtc.open import open_network
from poolhouse_node.wire.slices import Kind
from tests.support.recorder import Recorder, frame, positions, until
from tests.support.tcp_proxy import tcp_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from poolhouse_node.rtc.link import Link
    from poolhouse_node.rtc.network import Network
    from poolhouse_node.rtc.peer import Engine
    from tests.support.browser import BrowserDevice

pytestmark = [
    pytest.mark.browser,
    pytest.mark.webrtc,
    pytest.mark.timeout(60),
    pytest.mark.asyncio(loop_scope="module"),
]

ENGINES = ["libdatachannel", "aiortc"]
engines = pytest.mark.parametrize("engine", ENGINES)
dialed_by = pytest.mark.parametrize("dialed_by", ["browser", "python"])

HELLO = {"t": "hello", "name": "python", "v": 4, "meta": {}}
FRAMES = 60


@dataclass
class Device:
    """A device of ours that says hello and notes what comes."""

    network: Network
    recorder: Recorder = field(default_factory=Recorder)

    @property
    def link(self) -> Link:
        """The newest link."""
        return self.recorder.opened[-1]

    def heard(self, kind: str) -> list[dict]:
        """The messages of one kind so far."""
        return [message for message in self.recorder.messages if message["t"] == kind]

    async def answer(self, kind: str) -> dict:
        """Wait for the first message of a kind."""
        await until(lambda: self.heard(kind))
        return self.heard(kind)[0]


@asynccontextmanager
async def python_device(
    signal_url: str, engine: Engine, *, associations: int = 1
) -> AsyncIterator[Device]:
    """A device of ours at the control plane."""
    # Twice, as to a browser of another machine.
    settings = LinkSettings(associations=associations, once_within_machine=False)
    network = await open_network([signal_url], engine=engine, settings=settings)
    network.mesh.key = ""
    device = Device(network)
    network.listen(device.recorder)
    try:
        yield device
    finally:
        await network.close()


async def link_up(
    device: Device, browser: BrowserDevice, dialed_by: str, *, stripes: int = 0
) -> None:
    """Open a link and say hello both ways: from here on it may carry frames."""
    browser_id = await browser.peer_id()
    if dialed_by == "python":
        await device.network.dial(browser_id, timeout_s=15)
    else:
        await browser.dial(device.network.peer_id, stripes=stripes)
        await until(lambda: device.recorder.opened)
    device.link.send(HELLO)
    await device.answer("hello")
    await browser.until("device.messages.some((message) => message.t === 'hello')")


@engines
@dialed_by
async def test_both_say_hello_and_pings_are_answered(browser_device, control, engine, dialed_by):
    browser = await browser_device()
    async with python_device(control.signal_url, engine) as device:
        await link_up(device, browser, dialed_by)
        assert device.link.peer_id == await browser.peer_id()
        assert device.link.dialed == (dialed_by == "python")
        assert (await device.answer("hello"))["name"] == "browser"
        assert (await browser.get("device.messages"))[0] == HELLO
        device.link.send({"t": "ping", "ts": 12345.5})
        assert await device.answer("pong") == {"t": "pong", "ts": 12345.5}
        assert device.link.transport.startswith(f"{engine} ")
        assert "relay" not in device.link.transport


@engines
@dialed_by
async def test_a_long_message_goes_there_and_back_in_pieces(
    browser_device, control, engine, dialed_by
):
    """300 KB is above what one message of a data channel may hold: it must be cut."""
    browser = await browser_device()
    blob = os.urandom(300_000)
    async with python_device(control.signal_url, engine) as device:
        await link_up(device, browser, dialed_by)
        device.link.send({"t": "blob", "data": blob})
        back = await device.answer("blob-back")
        assert back["sha256"] == hashlib.sha256(blob).hexdigest(), "what the browser got"
        assert hashlib.sha256(back["data"]).hexdigest() == back["sha256"], "what it sent"


VALUES = [
    0, 127, 128, 255, 256, 65_536, 2**31, 2**40, -1, -32, -33, -128, -129, -40_000, -(2**31),
    0.5, -1.25, 1234.5678, True, False, None,
    "", "a" * 15, "a" * 16, "é" * 20, "日本 🏊", "x" * 70_000,
    [], [1, [2, ["three"]]], list(range(40)), {}, {"a": {"b": [None, {"c": ""}]}},
    {str(number): number for number in range(40)},
]  # fmt: skip


async def test_every_kind_of_value_survives_the_real_binarypack(browser_device, control):
    browser = await browser_device()
    async with python_device(control.signal_url, "libdatachannel") as device:
        await link_up(device, browser, "browser")
        device.link.send({"t": "echo", "value": VALUES})
        assert (await device.answer("echoed"))["value"] == VALUES


@engines
@dialed_by
@pytest.mark.parametrize("stripes", [0, 3])
async def test_sixty_frames_come_back_in_order(browser_device, control, engine, dialed_by, stripes):
    browser = await browser_device()
    async with python_device(control.signal_url, engine, associations=stripes + 1) as device:
        await link_up(device, browser, dialed_by, stripes=stripes)
        await until(lambda: device.link.stripes == stripes)
        await browser.until(f"device.stripes === {stripes}")
        for position in range(FRAMES):
            device.link.send_frame(frame(position))
        await until(lambda: len(device.recorder.frames) == FRAMES)

        assert positions(device.recorder) == list(range(FRAMES))
        for got in device.recorder.frames:
            assert got.kind is Kind.HIDDENRET
            assert got.payload == frame(got.position).payload
        # A frame of 10 KB is three slices; with a second channel each goes twice.
        slices = FRAMES * 3 * (2 if stripes else 1)
        await browser.until(f"device.wire.slices.reduce((sum, n) => sum + n) === {slices}")
        wire = await browser.get("device.wire")
        assert sorted(wire["frames"]) == list(range(1, FRAMES + 1))
        assert wire["longest"] == 4600
        # A stripe that was dialed again on a busy machine leaves a channel that carried nothing.
        assert sum(count > 0 for count in wire["slices"]) == stripes + 1


@engines
async def test_keep_alive_bytes_reach_the_browser_after_a_frame(browser_device, control, engine):
    browser = await browser_device()
    async with python_device(control.signal_url, engine) as device:
        await link_up(device, browser, "browser")
        device.link.send_frame(frame())
        await browser.until("device.wire.keepalives > 10")


@engines
@dialed_by
async def test_a_link_that_the_browser_closes_is_a_departure(
    browser_device, control, engine, dialed_by
):
    browser = await browser_device()
    async with python_device(control.signal_url, engine) as device:
        await link_up(device, browser, dialed_by)
        await browser.get("device.main.close()")
        await until(lambda: device.recorder.closed)
        [(peer_id, reason)] = device.recorder.closed
        assert peer_id == await browser.peer_id()
        assert reason == "The other device closed the connection."
        assert not device.network.links


async def test_the_close_request_of_peerjs_closes_a_link(browser_device, control):
    """``close({flush: true})`` asks by message, and leaves the closing to the other side."""
    browser = await browser_device()
    async with python_device(control.signal_url, "libdatachannel") as device:
        await link_up(device, browser, "browser")
        await browser.get("device.main.close({ flush: true })")
        await until(lambda: device.recorder.closed)
        await browser.until("device.log.includes('link closed')")


@engines
async def test_the_browser_reads_what_was_sent_before_a_close(browser_device, control, engine):
    browser = await browser_device()
    async with python_device(control.signal_url, engine) as device:
        await link_up(device, browser, "browser")
        device.link.send({"t": "blob", "data": os.urandom(300_000)})
        device.link.send({"t": "leaving"})
        device.link.close()
        await browser.until("device.log.includes('link closed')")
        kinds = [message["t"] for message in await browser.get("device.messages")]
        assert kinds == ["hello", "blob", "leaving"]


async def test_links_outlive_the_signaling_server(browser_device, control):
    async with tcp_proxy(control.bound.host, control.bound.port) as proxy:
        url = f"http://127.0.0.1:{proxy.port}/"
        browser = await browser_device(signal_url=url)
        async with python_device(url, "libdatachannel") as device:
            await link_up(device, browser, "browser")
            proxy.cut()
            await browser.until("device.peer.disconnected")
            await until(lambda: device.recorder.signaling == [False])
            device.link.send({"t": "ping", "ts": 1})
            assert await device.answer("pong") == {"t": "pong", "ts": 1}
            assert device.recorder.closed == []
