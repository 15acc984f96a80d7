"""Which relay hosts are there, so that nobody is sent to one that is not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from poolhouse_control.relay import ice
from poolhouse_control.relay.probe import probe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from structlog.typing import FilteringBoundLogger

__all__ = ["RelayHealth"]

_FAILURES_TO_BE_DOWN: Final = 2
_PROBES_AT_A_TIME: Final = 16


class RelayHealth:
    """Probes the UDP port of each relay host now and then.

    A host of TCP or TLS only cannot be asked this way and counts as up. A host is down after two
    probes in a row without an answer, and up again after one with.
    """

    def __init__(
        self,
        urls: Iterable[str],
        log: FilteringBoundLogger,
        *,
        every_s: float,
        ask: Callable[[str, int], Awaitable[bool]] = probe,
    ) -> None:
        self._log = log
        self._every_s = every_s
        self._ask = ask
        self._ports = _udp_ports(urls)
        self._failures = dict.fromkeys(self._ports, 0)

    @property
    def up_count(self) -> int:
        """Hosts that are up, as far as they are asked."""
        return sum(not self._is_down(host) for host in self._failures)

    @property
    def down_count(self) -> int:
        """Hosts that are down."""
        return len(self._failures) - self.up_count

    def choose(self, urls: tuple[str, ...]) -> tuple[str, ...]:
        """Leave out URLs of hosts that are down; if all are, keep them: a probe may be blocked."""
        return tuple(url for url in urls if not self._is_down(_host(url))) or urls

    async def look(self) -> None:
        """Ask every host once."""
        gate = asyncio.Semaphore(_PROBES_AT_A_TIME)
        async with asyncio.TaskGroup() as tasks:
            for host, port in self._ports.items():
                tasks.create_task(self._look_at(host, port, gate))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep looking while open."""
        if not self._every_s or not self._ports:
            yield
            return
        watcher = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watcher.cancel()
            await asyncio.wait({watcher})

    async def _watch(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self._every_s)

    async def _look_at(self, host: str, port: int, gate: asyncio.Semaphore) -> None:
        async with gate:
            answers = await self._ask(host, port)
        was_down = self._is_down(host)
        self._failures[host] = 0 if answers else self._failures[host] + 1
        if self._is_down(host) and not was_down:
            self._log.warning("relay_host.down", host=host, port=port)
        elif was_down and answers:
            self._log.info("relay_host.up", host=host, port=port)

    def _is_down(self, host: str) -> bool:
        return self._failures.get(host, 0) >= _FAILURES_TO_BE_DOWN


def _udp_ports(urls: Iterable[str]) -> dict[str, int]:
    ports: dict[str, int] = {}
    for url in urls:
        parts = ice.split(url)
        if parts is not None and parts[3] == "udp":
            ports.setdefault(parts[1], parts[2])
    return ports


@lru_cache(maxsize=256)
def _host(url: str) -> str:
    parts = ice.split(url)
    return parts[1] if parts is not None else ""
