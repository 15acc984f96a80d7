"""Many POST requests over a few kept connections, with next to no cost of their own."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Posting"]


@dataclass
class Posting:
    """Requests to one address, each from a client of its own behind a proxy."""

    port: int
    path: str
    origin: str = "https://room.example.org"
    statuses: dict[int, int] = field(default_factory=dict)
    bodies: set[bytes] = field(default_factory=set)
    _clients: Iterator[int] = field(default_factory=lambda: itertools.count(1 << 24))

    async def run(self, count: int, connections: int = 8) -> None:
        """Send ``count`` requests, one at a time on each connection."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(self._connection(count // connections))

    async def _connection(self, count: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for _ in range(count):
                writer.write(self._request())
                status, body = await _answer(reader)
                self.statuses[status] = self.statuses.get(status, 0) + 1
                self.bodies.add(body)
        finally:
            writer.close()
            await writer.wait_closed()

    def _request(self) -> bytes:
        number = next(self._clients)
        client = ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
        return (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: {self.origin}\r\n"
            f"X-Real-IP: {client}\r\nContent-Length: 0\r\n\r\n"
        ).encode()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)
