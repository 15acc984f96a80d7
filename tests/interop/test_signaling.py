"""The real peerjs client at our signaling endpoint (signaling, sections 1, 2 and 6)."""

from __future__ import annotations

import re
import uuid

import pytest

from tests.support.recorder import until
from tests.support.tcp_proxy import tcp_proxy

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(60),
    pytest.mark.asyncio(loop_scope="module"),
]


async def test_a_client_registers_under_its_own_id(browser_device):
    device = await browser_device("pooled-room-ABCDEF")
    assert await device.peer_id() == "pooled-room-ABCDEF"
    assert await device.get("device.log") == ["open pooled-room-ABCDEF"]


async def test_a_client_without_an_id_gets_one(browser_device):
    first, second = await browser_device(), await browser_device()
    peer_id = await first.peer_id()
    assert str(uuid.UUID(peer_id, version=4)) == peer_id
    assert await second.peer_id() != peer_id


async def test_an_id_in_use_is_unavailable_and_its_owner_notices_nothing(browser_device):
    owner = await browser_device("A")
    await owner.peer_id()
    other = await browser_device("A")
    await other.until("device.peer.destroyed")
    assert any(line.startswith("error unavailable-id") for line in await other.get("device.log"))
    assert await owner.get("device.log") == ["open A"]
    assert await owner.get("device.peer.open")


async def test_a_peer_that_is_not_there_is_unavailable_by_name(browser_device):
    device = await browser_device("A")
    await device.peer_id()
    await device.dial("nobody-here")
    await device.until("device.log.length > 1")
    assert re.fullmatch(
        r"error peer-unavailable: .*nobody-here", (await device.get("device.log"))[1]
    )
    assert await device.get("device.peer.open"), "this is not fatal"


async def test_a_client_whose_socket_was_cut_takes_its_id_over(browser_device, control):
    """The server still holds the old socket: the token says that it is the same client."""
    async with tcp_proxy(control.bound.host, control.bound.port) as proxy:
        device = await browser_device("A", f"http://127.0.0.1:{proxy.port}/")
        await device.peer_id()
        proxy.cut()
        await device.until("device.peer.disconnected")
        await device.get("device.peer.reconnect()")
        assert await device.peer_id() == "A"
        log = await device.get("device.log")
        assert [line.split(":")[0] for line in log] == [
            "open A", "error network", "disconnected", "open A",
        ]  # fmt: skip


async def test_a_client_comes_back_after_it_left_the_server(browser_device):
    device = await browser_device("A")
    await device.peer_id()
    await device.get("device.peer.disconnect()")
    await device.get("device.peer.reconnect()")
    assert await device.peer_id() == "A"
    assert await device.get("device.log") == ["open A", "disconnected", "open A"]


async def test_destroying_a_client_frees_its_id(browser_device, control):
    device = await browser_device("A")
    await device.peer_id()
    await device.get("device.peer.destroy()")
    await until(lambda: "socket.closed" in control.log.getvalue())
    assert await (await browser_device("A")).peer_id() == "A"
    assert await device.get("device.log") == ["open A", "disconnected", "closed"]
