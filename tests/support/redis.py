"""A private redis-server on a free loopback port, and ways to hurt it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["RedisServer", "redis_server"]

_DEADLINE_S = 10.0


class RedisServer:
    """One server. It keeps nothing on disk: a restart is an empty start."""

    def __init__(self, folder: Path, *, cluster: bool) -> None:
        self.folder = folder
        self.is_cluster = cluster
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients find it, before and after a restart."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> Redis:
        """A client of the test. Close it, or use it as a context."""
        return Redis.from_url(self.url, protocol=2)

    async def start(self) -> None:
        """Start it and wait until it answers."""
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        arguments += ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
        if self.is_cluster:
            (self.folder / "nodes.conf").unlink(missing_ok=True)
            arguments += ["--cluster-enabled", "yes", "--cluster-port", str(_free_port())]
        program = shutil.which("redis-server")
        assert program, "redis-server is missing: apt-get install redis-server"
        self._process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL)
        await self._until(self._answers)
        if self.is_cluster:
            await self.run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            await self._until(self._covers_all_slots)

    def stop(self) -> None:
        """Kill it. Connections break at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def restart_empty(self, pause_s: float = 0.0) -> None:
        """Kill it, stay away for a while, and start it with nothing."""
        self.stop()
        await asyncio.sleep(pause_s)
        await self.start()

    def freeze(self) -> None:
        """Let it stand still: connections stay, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def run(self, *command: Any) -> Any:
        """Run one command."""
        async with self.client as client:
            return await client.execute_command(*command)

    async def grow_old(self, prefix: str = "ph") -> None:
        """Let it have forgotten nothing for long: a replica need not wait for others to speak."""
        async with self.client as client:
            run_id = (await client.info("server"))["run_id"]
            await client.hset(f"{prefix}:{{lease}}:birth", mapping={"run": run_id, "at": 1})

    async def forget(self) -> None:
        """Remove all keys, but be trusted to have forgotten nothing."""
        await self.run("FLUSHALL")
        await self.grow_old()

    async def keys(self) -> set[str]:
        """All keys."""
        return {key.decode() for key in await self.run("KEYS", "*")}

    async def kill_subscribers(self) -> int:
        """Cut every connection that listens; return how many."""
        return int(await self.run("CLIENT", "KILL", "TYPE", "pubsub"))

    async def _answers(self) -> bool:
        try:
            return bool(await self.run("PING"))
        except (RedisError, OSError):
            assert self._process is not None
            assert self._process.poll() is None, "redis-server ended"
            return False

    async def _covers_all_slots(self) -> bool:
        info = await self.run("CLUSTER", "INFO")
        return "cluster_state:ok" in (info if isinstance(info, str) else str(info))

    async def _until(self, condition: Any) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not await condition():
            assert time.monotonic() < deadline, "redis-server does not answer"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def redis_server(folder: Path, *, cluster: bool = False) -> AsyncIterator[RedisServer]:
    """A server while the context is open."""
    server = RedisServer(folder, cluster=cluster)
    await server.start()
    try:
        yield server
    finally:
        server.stop()


def _free_port() -> int:
    """A server must come back under the same port, so that the system cannot choose each time."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
