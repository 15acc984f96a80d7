"""The floor below WebRTC: a frame and its echo over one TCP connection on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

__all__ = ["TcpEnd", "connect", "serve_echo"]


class TcpEnd(asyncio.Protocol):
    """Messages with a four-byte length in front."""

    def __init__(self, received: Callable[[TcpEnd, bytes], None]) -> None:
        self._received = received
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4])):
            message = bytes(buffer[4:end])
            del buffer[:end]
            self._received(self, message)

    def send(self, data: bytes) -> None:
        """Send one message."""
        self._transport.write(len(data).to_bytes(4) + data)

    def close(self) -> None:
        """End the connection."""
        self._transport.close()


@contextlib.asynccontextmanager
async def serve_echo() -> AsyncIterator[int]:
    """Send messages back; gives the port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: TcpEnd(lambda end, data: end.send(data)), "127.0.0.1", 0
    )
    async with server:
        yield server.sockets[0].getsockname()[1]


async def connect(port: int, received: Callable[[TcpEnd, bytes], None]) -> TcpEnd:
    """The other end of :func:`serve_echo`."""
    loop = asyncio.get_running_loop()
    _, end = await loop.create_connection(lambda: TcpEnd(received), "127.0.0.1", port)
    return end
