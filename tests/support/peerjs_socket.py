"""A signaling client by hand, for tests that look at single frames."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from websockets.asyncio.client import ClientConnection

__all__ = ["PeerSocket", "peer_socket", "raw_upgrade"]

_DEADLINE_S = 10.0


class PeerSocket:
    """One socket. Every wait has a deadline."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, frame: Any) -> None:
        """Send text or bytes as they are, anything else as JSON."""
        raw = frame if isinstance(frame, str | bytes) else json.dumps(frame)
        await self.connection.send(raw)

    async def text(self) -> str:
        """Next frame, as it came."""
        frame = await asyncio.wait_for(self.connection.recv(), _DEADLINE_S)
        assert isinstance(frame, str), "the server answers in text"
        return frame

    async def hear(self) -> dict[str, Any]:
        """Next frame, read."""
        return json.loads(await self.text())

    async def close_code(self) -> int:
        """Wait for the end; fails on a frame before it."""
        try:
            frame = await asyncio.wait_for(self.connection.recv(), _DEADLINE_S)
        except ConnectionClosed:
            code = self.connection.close_code
            assert code is not None
            return code
        raise AssertionError(f"heard {frame!r} instead of a close")


@asynccontextmanager
async def peer_socket(
    socket_url: str, peer_id: str = "A", token: str = "t", **options: Any
) -> AsyncIterator[PeerSocket]:
    """Open a socket as the PeerJS client does. ``key`` and options of ``connect`` may be given."""
    query = {"key": options.pop("key", "peerjs"), "id": peer_id, "token": token}
    url = f"{socket_url}?{urlencode(query)}&version=1.5.5"
    async with connect(url, compression=None, proxy=None, **options) as connection:
        yield PeerSocket(connection)


async def raw_upgrade(
    signal_url: str, peer_id: str, *, receive_buffer_bytes: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket by hand, that answers no ping and need not read."""
    sock = socket.socket()
    if receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    sock.setblocking(False)
    address = urlsplit(signal_url)
    await asyncio.get_running_loop().sock_connect(sock, (address.hostname, address.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**16)
    writer.write(
        f"GET {address.path}peerjs?key=peerjs&id={peer_id}&token=t HTTP/1.1\r\n"
        "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head
    return reader, writer
