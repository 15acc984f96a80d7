"""A private redis-server on a socket in a folder, for tests of limits."""

from __future__ import annotations

import asyncio
import shutil
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from redis.asyncio import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["PrivateRedis", "private_redis"]


class PrivateRedis:
    """A server that can be stopped and started again, empty."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.socket = folder / "redis.sock"
        self.port = port
        self._process: asyncio.subprocess.Process | None = None

    def client(self, *, deadline_s: float = 2.0) -> Redis:
        """A client of its own; the caller closes it."""
        return Redis(
            unix_socket_path=str(self.socket),
            socket_timeout=deadline_s,
            retry=Retry(NoBackoff(), 0),
        )

    async def start(self) -> None:
        """Start, and wait until it answers."""
        program = shutil.which("redis-server")
        assert program is not None, "the tests need redis-server (Debian: redis-server)"
        arguments = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--unixsocket",
            str(self.socket),
            "--save",
            "",
        ]
        self._process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(10), self.client() as client:
            while True:
                try:
                    await client.ping()
                    return
                except (RedisError, OSError):
                    await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Kill it: nothing is saved."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def private_redis(folder: Path, *, with_port: bool = False) -> AsyncIterator[PrivateRedis]:
    """Run one while the context is open; ``with_port`` for a client that knows no sockets."""
    server = PrivateRedis(folder, _free_port() if with_port else 0)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
