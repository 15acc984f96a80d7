"""A TCP switch on loopback: point it at another server, or let chosen connections go dumb."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Switch", "tcp_switch"]

_READ_BYTES = 65_536


class Switch:
    """Carries bytes to one server on loopback. Made by :func:`tcp_switch`."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._dumb: set[asyncio.StreamWriter] = set()
        self._said: dict[asyncio.StreamWriter, bytes] = {}

    def point_at(self, target_port: int) -> None:
        """Serve from another port; connections to the old one break."""
        self._target_port = target_port
        self.cut()

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def make_dumb(self, word: bytes) -> int:
        """Keep connections whose client said ``word``, but carry nothing back; how many."""
        self._dumb |= {client for client, said in self._said.items() if word in said}
        return len(self._dumb)

    async def run(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Carry one connection until an end is gone."""
        try:
            server_reader, server = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            client.transport.abort()
            return
        self._said[client] = b""
        ends = {client, server}
        self._writers |= ends
        try:
            ways = [
                asyncio.ensure_future(self._carry(reader, server, heard=client)),
                asyncio.ensure_future(self._carry(server_reader, client)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)
            self._writers -= ends
            self._said.pop(client, None)
            self._dumb.discard(client)

    async def _carry(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        heard: asyncio.StreamWriter | None = None,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(_READ_BYTES):
                if heard is not None:
                    self._said[heard] = (self._said[heard] + data)[:4096]
                if sink in self._dumb:
                    continue
                sink.write(data)
                await sink.drain()


@asynccontextmanager
async def tcp_switch(target_port: int) -> AsyncIterator[Switch]:
    """A switch to ``target_port`` while the context is open."""
    switch = Switch(target_port)
    server = await asyncio.start_server(switch.run, "127.0.0.1", 0)
    switch.port = server.sockets[0].getsockname()[1]
    try:
        yield switch
    finally:
        server.close()
        switch.cut()
        await asyncio.sleep(0)
        await server.wait_closed()
