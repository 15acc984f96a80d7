"""A plain peerjs client in a page (``tests/interop/page/client.js``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.browser import PageObject, server_of

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["BrowserClient"]


class BrowserClient(PageObject):
    """A ``Client`` object in a page."""

    name = "client"

    @classmethod
    async def make(
        cls, page: Page, signal_url: str, peer_id: str | None = None, *, returns: bool = True
    ) -> BrowserClient:
        """Make a peerjs client in the page; it begins to register.

        With ``returns`` it comes back by itself when it loses the server, as an app would.
        """
        handle = await page.evaluate_handle(
            "(given) => new Client(...given)", [server_of(signal_url), peer_id, returns]
        )
        return cls(page, handle)

    async def peer_id(self) -> str:
        """The id it has, once the server has taken it."""
        await self.until("client.peer.open")
        return await self.get("client.peer.id")

    async def openings(self) -> int:
        """How often the server has taken it."""
        return await self.get("client.openings")

    async def until_back(self, after: int) -> None:
        """Wait until the server has taken it more often than ``after`` times."""
        await self.until(f"client.openings > {after} && client.peer.open")

    async def errors(self) -> set[str]:
        """The types of error that peerjs told."""
        return set(await self.get("client.errors.map((error) => error.type)"))

    async def link_to(self, other: BrowserClient, serialization: str) -> None:
        """Open a link and wait until both have it. Its label is its serialization."""
        await self.link(await other.peer_id(), serialization)
        for end in (self, other):
            await end.until_linked(serialization)

    async def link(self, peer_id: str, serialization: str) -> None:
        """Begin to open a link, once registered: peerjs drops what it cannot send yet."""
        await self.peer_id()
        await self.get("client.link(...argument)", [peer_id, serialization])

    async def until_linked(self, serialization: str) -> None:
        """Wait until the link is open."""
        await self.until(f"client.links['{serialization}']?.open")

    async def tell(self, other: BrowserClient, serialization: str) -> None:
        """Send the sample values of a serialization, and wait until all came as they were."""
        sent = await self.get("client.say(argument)", serialization)
        await other.until(f"client.heard['{serialization}'].length >= {len(sent)}")
        assert await other.get("client.take(argument)", serialization) == sent
