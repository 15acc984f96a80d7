"""Headless Chromium, and objects in its pages: a device (``tests/interop/page/device.js``)."""

from __future__ import annotations

import shutil
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import pytest
from playwright.async_api import async_playwright

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import BrowserContext, JSHandle, Page

__all__ = ["PEERJS", "BrowserDevice", "PageObject", "running_chromium", "server_of"]

PEERJS = Path(__file__).parent.parent / "interop/node_modules/peerjs/dist/peerjs.js"

_ARGUMENTS = (
    # Loopback counts as an address too, where a page may list them: see _has_route.
    "--allow-loopback-in-peer-connection",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
)


def _need[T](found: T | None, what: str) -> T:
    """Fails, for a skipped interop test would look like one that passed."""
    if found is None:
        pytest.fail(f"The browser tests need {what}: `make test` installs it.", pytrace=False)
    return found


def _has_route() -> bool:
    """Is there a way to other networks? Nothing is sent to find out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return False
    return True


@asynccontextmanager
async def running_chromium(profile: Path) -> AsyncIterator[BrowserContext]:
    """Chromium with a new profile in an empty folder. Fails the test where it is missing."""
    program = _need(shutil.which("chromium"), "Chromium")
    _need(PEERJS if PEERJS.exists() else None, "the npm package peerjs")
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            profile,
            executable_path=program,
            headless=True,
            args=list(_ARGUMENTS),
            env={"HOME": str(profile), "PATH": "/usr/bin:/bin"},
        )
        if not _has_route():
            # A page knows the address of the default route only, under a .local name, and so none
            # here. One that may use the microphone knows all, loopback too (engines, pitfall 13).
            await context.grant_permissions(["microphone"])
        try:
            yield context
        finally:
            await context.close()


class PageObject:
    """An object in a page, by the name that expressions call it. Every wait has a deadline."""

    name: ClassVar[str]

    def __init__(self, page: Page, handle: JSHandle) -> None:
        self._page = page
        self._handle = handle

    async def get(self, expression: str, argument: Any = None) -> Any:
        """The value of an expression in which the object and ``argument`` may stand."""
        return await self._handle.evaluate(f"({self.name}, argument) => {expression}", argument)

    async def until(self, expression: str, *, timeout_s: float = 15.0) -> None:
        """Wait until an expression in which the object may stand is true."""
        await self._page.wait_for_function(
            f"{self.name} => {expression}",
            arg=self._handle,
            timeout=timeout_s * 1000,
            polling=10,
        )


class BrowserDevice(PageObject):
    """A ``Device`` object in a page."""

    name = "device"

    @classmethod
    async def make(cls, page: Page, signal_url: str, peer_id: str | None) -> BrowserDevice:
        """Make a peerjs client in the page; it begins to register."""
        handle = await page.evaluate_handle(
            "([server, id]) => new Device(server, id)", [server_of(signal_url), peer_id]
        )
        return cls(page, handle)

    async def dial(self, peer_id: str, *, stripes: int = 0) -> None:
        """Begin to open a link."""
        await self.get("device.dial(...argument)", [peer_id, stripes])

    async def peer_id(self) -> str:
        """The id it has, once the server has taken it."""
        await self.until("device.peer.open")
        return await self.get("device.peer.id")


def server_of(signal_url: str) -> dict[str, Any]:
    """The address as options of a peerjs client."""
    address = urlsplit(signal_url)
    return {"host": address.hostname, "port": address.port, "path": address.path}
