"""Control planes as processes of their own, alone or as a fleet: ended, killed, started again."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx

from tests.support.balancer import running_balancer
from tests.support.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from tests.support.balancer import Balancer

__all__ = ["ControlProcess", "Fleet", "fleet_of_two", "one_alone"]

_DEADLINE_S: Final = 15.0
_SHOWN_CHARS: Final = 8  # of an id in the log

# Times of a fleet: what waits for a lease, or for a balancer to notice, should not take long here.
_TIMES: Final = {
    "POOLHOUSE_REDIS_LEASE_S": "4",
    "POOLHOUSE_DRAIN_DELAY_S": "0.4",
    "POOLHOUSE_DRAIN_SPREAD_S": "0.2",
}


class ControlProcess:
    """One ``poolhouse control``. It comes back under the ports that it first got."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        others = {name: value for name, value in os.environ.items() if "POOLHOUSE" not in name}
        self._environ = {**others, **environ, "POOLHOUSE_LOG_FORMAT": "json"}
        self.port = self.admin_port = 0
        self.openings: list[tuple[float, str]] = []
        """When it let which id in, by the characters that the log shows."""
        self.log: list[str] = []
        self.faults: list[str] = []
        """Lines of the log that tell of an error."""
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Address of its signaling."""
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        """Start it and wait until it answers."""
        options = ["--json", "--host", "127.0.0.1"]
        options += ["--port", str(self.port), "--admin-port", str(self.admin_port)]
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "poolhouse_node", "control", *options,
            env=self._environ, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        self._reader = asyncio.create_task(self._read_log(process.stderr))
        line = await asyncio.wait_for(process.stdout.readline(), _DEADLINE_S)
        assert line, f"It ended: {self.log}"
        said = json.loads(line)
        self.port = urlsplit(said["signal_url"]).port or 0
        self.admin_port = urlsplit(said["admin_url"]).port or 0

    async def until_waiting(self, messages: int) -> None:
        """Wait until so many messages of its clients wait for absent peers."""
        async with httpx.AsyncClient() as http, asyncio.timeout(_DEADLINE_S):
            while True:
                answer = await http.get(f"http://127.0.0.1:{self.admin_port}/metrics")
                found = re.search(r"^poolhouse_signal_queue_messages (\d+)", answer.text, re.M)
                if found is not None and int(found[1]) >= messages:
                    return

    async def end(self, number: signal.Signals) -> None:
        """Send a signal and wait until the process is gone."""
        if self._process is None or self._reader is None:
            return
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(_DEADLINE_S):
            await self._reader
            status = await self._process.wait()
        if number is signal.SIGTERM:
            assert status in {0, 128 + number}, self.log

    async def restart(self, number: signal.Signals) -> None:
        """End it with a signal, then start it again."""
        await self.end(number)
        await self.start()

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.log.append(line.decode())
            entry = json.loads(line) if line.startswith(b"{") else {"level": "traceback"}
            if entry["level"] not in {"debug", "info", "warning"}:
                self.faults.append(line.decode())
            if entry.get("event") == "socket.opened":
                self.openings.append((time.monotonic(), entry["peer"][:_SHOWN_CHARS]))


class Fleet:
    """All control planes behind one address."""

    def __init__(self, replicas: list[ControlProcess]) -> None:
        self.replicas = replicas
        self.balancer: Balancer | None = None
        self._restarts: list[asyncio.Task[None]] = []

    @property
    def signal_url(self) -> str:
        """Where clients go."""
        return self.balancer.url if self.balancer else self.replicas[0].url

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the same."""
        parts = urlsplit(self.signal_url)
        return parts.hostname or "", parts.port or 0

    async def home_of(self, peer_id: str, openings: int) -> ControlProcess:
        """The replica that a client is at, which was let in so often until now."""
        async with asyncio.timeout(_DEADLINE_S):
            while len(found := self._openings_of(peer_id)) < openings:
                await asyncio.sleep(0.005)
        return max(found, key=lambda opening: opening[0])[1]

    def _openings_of(self, peer_id: str) -> list[tuple[float, ControlProcess]]:
        return [
            (at_s, replica)
            for replica in self.replicas
            for at_s, shown in replica.openings
            if shown == peer_id[:_SHOWN_CHARS]
        ]

    def restart(self, replica: ControlProcess, number: signal.Signals) -> None:
        """Begin to restart a replica; ``healed`` waits until it is back."""
        self._restarts.append(asyncio.create_task(replica.restart(number)))

    async def healed(self) -> None:
        """Wait until every replica is there, and gets clients."""
        restarts, self._restarts = self._restarts, []
        await asyncio.gather(*restarts)
        if self.balancer is not None:
            await self.balancer.until_up()

    def take_faults(self) -> list[str]:
        """What replicas logged as errors since this was asked last."""
        faults = [line for replica in self.replicas for line in replica.faults]
        for replica in self.replicas:
            replica.faults.clear()
        return faults

    async def end(self) -> None:
        """Kill what is left."""
        for restart in self._restarts:
            restart.cancel()
        await asyncio.gather(*self._restarts, return_exceptions=True)
        for replica in self.replicas:
            await replica.end(signal.SIGKILL)


@asynccontextmanager
async def one_alone() -> AsyncIterator[Fleet]:
    """One control plane that holds everything in memory."""
    fleet = Fleet([ControlProcess({})])
    async with _running(fleet):
        yield fleet


@asynccontextmanager
async def fleet_of_two(folder: Path) -> AsyncIterator[Fleet]:
    """Two replicas behind a balancer, with a Redis of their own."""
    async with AsyncExitStack() as stack:
        redis = await stack.enter_async_context(redis_server(folder))
        environ = {"POOLHOUSE_REDIS_URL": redis.url, "POOLHOUSE_REPLICAS": "2", **_TIMES}
        fleet = Fleet([ControlProcess(environ), ControlProcess(environ)])
        await stack.enter_async_context(_running(fleet))
        ports = [(replica.port, replica.admin_port) for replica in fleet.replicas]
        fleet.balancer = await stack.enter_async_context(running_balancer(folder, ports))
        await fleet.healed()
        yield fleet


@asynccontextmanager
async def _running(fleet: Fleet) -> AsyncIterator[None]:
    try:
        await asyncio.gather(*(replica.start() for replica in fleet.replicas))
        yield
    finally:
        await fleet.end()
