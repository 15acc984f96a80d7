"""A TCP proxy on loopback whose connections a test can cut."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["TcpProxy", "tcp_proxy"]

_READ_BYTES = 65_536


class TcpProxy:
    """Carries bytes to one server. Made by :func:`tcp_proxy`."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._clients: set[asyncio.StreamWriter] = set()
        self._servers: set[asyncio.StreamWriter] = set()
        self._stalled: set[asyncio.StreamWriter] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self.port = 0

    def cut(self) -> None:
        """Break every connection towards its client. The server notices nothing."""
        for writer in self._clients:
            writer.transport.abort()

    def stall(self) -> None:
        """Carry nothing any more on the connections there are. Neither end notices.

        New connections are carried: so it is when a device roams to another network.
        """
        self._stalled = self._clients | self._servers

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until both ends are gone."""
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._clients.add(writer)
        self._servers.add(server_writer)
        self._idle.clear()
        await asyncio.gather(self._carry(reader, server_writer), self._carry(server_reader, writer))
        for end in (writer, server_writer):
            end.transport.abort()
        self._clients.discard(writer)
        self._servers.discard(server_writer)
        if not self._clients:
            self._idle.set()

    async def close(self) -> None:
        """Break everything and wait until nothing is carried."""
        self.cut()
        for writer in self._servers:
            writer.transport.abort()
        async with asyncio.timeout(5):
            await self._idle.wait()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Carry one direction. Its end is not passed on: the other side sees it late or never."""
        with contextlib.suppress(ConnectionError):
            while data := await source.read(_READ_BYTES):
                if sink not in self._stalled:
                    sink.write(data)
                    await sink.drain()


@asynccontextmanager
async def tcp_proxy(host: str, port: int) -> AsyncIterator[TcpProxy]:
    """A proxy to ``host:port`` while the context is open."""
    proxy = TcpProxy(host, port)
    server = await asyncio.start_server(proxy.run, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
