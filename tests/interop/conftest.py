"""One Chromium a module, a fresh page and a fresh control plane a test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.support.browser import PEERJS, BrowserDevice, running_chromium
from tests.support.control import running_control
from tests.support.page_server import serve_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from playwright.async_api import BrowserContext, Page

    from tests.support.control import RunningControl

_PAGE = Path(__file__).parent / "page"


@pytest.fixture(scope="module")
def page_url() -> Iterator[str]:
    """Where the test page is served."""
    with serve_files(
        {"/": _PAGE / "index.html", "/device.js": _PAGE / "device.js", "/peerjs.js": PEERJS}
    ) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrowserContext]:
    """The browser of this module."""
    async with running_chromium(tmp_path_factory.mktemp("chromium")) as context:
        yield context


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium: BrowserContext, page_url: str) -> AsyncIterator[Page]:
    """The test page. An exception in it that nobody caught fails the test."""
    faults: list[str] = []
    page = await chromium.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    await page.goto(page_url)
    yield page
    await page.close()
    assert faults == []


@pytest_asyncio.fixture(loop_scope="module")
async def control() -> AsyncIterator[RunningControl]:
    """A control plane that gives absent peers up soon."""
    async with running_control(expire_after_s=0.5, sweep_every_s=0.1) as control:
        yield control


@pytest.fixture
def browser_device(page: Page, control: RunningControl) -> Callable[..., Awaitable[BrowserDevice]]:
    """Makes a device in the page that registers at the control plane."""

    async def make(peer_id: str | None = None, signal_url: str = "") -> BrowserDevice:
        return await BrowserDevice.make(page, signal_url or control.signal_url, peer_id)

    return make
