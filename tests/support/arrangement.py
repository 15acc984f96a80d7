"""Two pages with peerjs clients, the control planes they go to, and a restart in the middle."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.browser_client import BrowserClient
from tests.support.tcp_proxy import tcp_proxy

if TYPE_CHECKING:
    import signal
    from collections.abc import AsyncIterator

    from playwright.async_api import Page

    from tests.support.fleet import ControlProcess, Fleet
    from tests.support.tcp_proxy import TcpProxy

__all__ = ["Arrangement", "new_id"]


def new_id() -> str:
    """An id that is told apart by what the log shows of it."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Where clients go, and how a replica ends in the middle of a scenario, if one does."""

    fleet: Fleet
    pages: tuple[Page, Page]
    restart_by: signal.Signals | None

    async def client(
        self, page: int, peer_id: str | None, *, url: str = "", returns: bool = True
    ) -> BrowserClient:
        """A new client in one of the pages; it begins to register."""
        url = url or self.fleet.signal_url
        return await BrowserClient.make(self.pages[page], url, peer_id, returns=returns)

    async def two_apart(self) -> tuple[BrowserClient, BrowserClient]:
        """A registered client in each page: at different replicas, where there are two."""
        first = await self.client(0, new_id())
        await first.peer_id()
        second = await self.client(1, new_id())
        await self.part(first, second)
        return first, second

    async def part(self, first: BrowserClient, second: BrowserClient) -> None:
        """Let the second come back until the balancer sends it to another replica."""
        async with asyncio.timeout(15):
            while len(self.fleet.replicas) > 1 and await self._at_one(first, second):
                openings = await second.openings()
                await second.get("client.peer.disconnect()")
                await second.until_back(openings)

    async def _at_one(self, first: BrowserClient, second: BrowserClient) -> bool:
        return await self.home(first) is await self.home(second)

    async def home(self, client: BrowserClient) -> ControlProcess:
        """The replica where a client is registered."""
        return await self.fleet.home_of(await client.peer_id(), await client.openings())

    def restart(self, replica: ControlProcess) -> None:
        """Begin to restart a replica, in an arrangement with restarts."""
        if self.restart_by is not None:
            self.fleet.restart(replica, self.restart_by)

    async def restart_under(self, client: BrowserClient) -> None:
        """Begin to restart a client's replica; the client is at the other one afterwards."""
        home = await self.home(client)
        if self.restart_by is not None:
            openings = await client.openings()
            self.restart(home)
            await client.until_back(openings)

    @asynccontextmanager
    async def behind_proxy(self) -> AsyncIterator[tuple[BrowserClient, TcpProxy]]:
        """A registered client, and the network between it and the server. It stays away if lost."""
        host, port = self.fleet.address
        async with tcp_proxy(host, port) as proxy:
            url = f"http://127.0.0.1:{proxy.port}/"
            client = await self.client(0, new_id(), url=url, returns=False)
            await client.peer_id()
            yield client, proxy
