"""Many lives of one id and many short connections: nothing sticks, nothing grows.

The control plane runs as a process of its own, so that its memory and its files are its own.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from poolhouse_node.cli.bench.procfs import resident_kb
from poolhouse_node.cli.bench.signaling_crowd import open_crowd
from poolhouse_node.cli.bench.signaling_frames import client_frame
from poolhouse_node.cli.bench.signaling_phases import settle
from poolhouse_node.cli.bench.signaling_servers import allow_sockets, own_control

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from poolhouse_node.cli.bench.signaling_crowd import Address
    from poolhouse_node.cli.bench.signaling_servers import Server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PATIENCE_S = 10.0
CROWD = 100
WARM_UP_CROWDS = 5
GROWTH_MAX = 1.2
OPEN = b'{"type":"OPEN"}'


@asynccontextmanager
async def a_control_plane() -> AsyncIterator[Server]:
    allow_sockets(CROWD)
    async with own_control() as server:
        yield server


def open_files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.pids[0]}/fd").iterdir()))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


# One id


async def say_hello(address: Address, token: str) -> tuple[asyncio.StreamWriter, bytes]:
    """Open a socket as peer A; the first thing the server says on it."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(
        f"GET {address.path}peerjs?key=peerjs&id=A&token={token} HTTP/1.1\r\n"
        "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    _, size = await reader.readexactly(2)
    return writer, await reader.readexactly(size)


async def register(address: Address, token: str) -> asyncio.StreamWriter:
    """Have the id, once the server has seen the end of its last owner."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            writer, said = await say_hello(address, token)
            if said == OPEN:
                return writer
            assert json.loads(said)["type"] == "ID-TAKEN"
            writer.close()
            await asyncio.sleep(0.002)


def reset(writer: asyncio.StreamWriter) -> None:
    """As a process that is killed with data unread: RST."""
    linger_for_no_time = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, linger_for_no_time
    )
    writer.transport.abort()


def vanish(writer: asyncio.StreamWriter) -> None:
    """As a process that is killed: FIN, and no close frame."""
    writer.transport.abort()


def break_off(writer: asyncio.StreamWriter) -> None:
    """In the middle of a frame."""
    writer.write(client_frame(b'{"type":"OFFER","dst":"B","payload":1}')[:-9])
    writer.close()


def offer_and_vanish(writer: asyncio.StreamWriter) -> None:
    """With a message to itself, which then waits for nobody, under way."""
    writer.write(client_frame(b'{"type":"OFFER","dst":"A","payload":1}'))
    writer.close()


@pytest.mark.parametrize(
    "cycles",
    [
        pytest.param(100, id="short"),
        pytest.param(1000, id="long", marks=[pytest.mark.long, pytest.mark.timeout(300)]),
    ],
)
async def test_however_its_owner_dies_an_id_is_free_again(cycles: int) -> None:
    endings = itertools.cycle([reset, vanish, break_off, offer_and_vanish])
    async with a_control_plane() as server:
        files_before = open_files(server)
        for number, end in zip(range(cycles), endings, strict=False):
            # Each owner has a token of its own: nobody takes over, the id has to be free.
            end(await register(server.addresses[0], f"token-{number}"))
        await until(lambda: open_files(server) <= files_before)


# Memory


@pytest.mark.parametrize(
    "connections",
    [
        pytest.param(2_000, id="short"),
        pytest.param(20_000, id="long", marks=[pytest.mark.long, pytest.mark.timeout(300)]),
    ],
)
async def test_short_connections_leave_no_memory_behind(connections: int) -> None:
    async with a_control_plane() as server:
        for _ in range(WARM_UP_CROWDS):
            await come_and_go(server)
        before_kb = resident_kb(server.pids[0])
        for _ in range(connections // CROWD):
            await come_and_go(server)
        assert resident_kb(server.pids[0]) < before_kb * GROWTH_MAX


async def come_and_go(server: Server) -> None:
    """A crowd opens, each of it sends a message and hears one, and all leave."""
    files_before = open_files(server)
    crowd = await open_crowd(server.addresses, CROWD, message_bytes=1200)
    try:
        assert await settle(crowd) == 0
    finally:
        crowd.close()
    await until(lambda: open_files(server) <= files_before)
