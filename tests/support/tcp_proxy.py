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
        self._to_clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def cut(self) -> None:
        """Break every connection towards its client. The server notices nothing."""
        for writer in self._to_clients:
            writer.transport.abort()
        self._to_clients.clear()

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, until the server ends it or the proxy does."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._to_clients.add(writer)
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_carry(reader, server_writer))
                group.create_task(_carry(server_reader, writer))
        finally:
            self._tasks.discard(task)
            self._to_clients.discard(writer)
            for end in (writer, server_writer):
                end.transport.abort()

    async def close(self) -> None:
        """End what is still carried."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry one direction. Its end is not passed on: a server sees a lost client late or never."""
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_READ_BYTES):
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
