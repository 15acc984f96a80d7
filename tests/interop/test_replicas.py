"""The real peerjs client at one replica, at two behind a balancer, and while one is restarted.

The same scenarios everywhere (signaling, sections 1 to 6). In the arrangements with a restart, the
replica of the client that a scenario is about goes away in the middle, and comes back later.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.support.arrangement import Arrangement, new_id
from tests.support.browser import PEERJS
from tests.support.fleet import fleet_of_two, one_alone
from tests.support.page_server import serve_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from playwright.async_api import BrowserContext

    from tests.support.browser_client import BrowserClient
    from tests.support.fleet import Fleet

pytestmark = [
    pytest.mark.browser,
    pytest.mark.redis,
    pytest.mark.timeout(60),
    pytest.mark.asyncio(loop_scope="module"),
]

PAGE = Path(__file__).parent / "page"
SERIALIZATIONS = ["binary", "binary-utf8", "default", "json", "raw"]
ARRANGEMENTS = {
    "one": None,
    "two": None,
    "two, one drained": signal.SIGTERM,
    "two, one killed": signal.SIGKILL,
}


@pytest.fixture(scope="module")
def client_url() -> Iterator[str]:
    """Where the page of plain clients is served."""
    files = {"/": PAGE / "client.html", "/client.js": PAGE / "client.js", "/peerjs.js": PEERJS}
    with serve_files(files) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one() -> AsyncIterator[Fleet]:
    """A control plane of its own."""
    async with one_alone() as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """Two replicas behind a balancer."""
    async with fleet_of_two(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest_asyncio.fixture(loop_scope="module", params=list(ARRANGEMENTS))
async def arrangement(
    request: pytest.FixtureRequest,
    one: Fleet,
    two: Fleet,
    chromium: BrowserContext,
    client_url: str,
) -> AsyncIterator[Arrangement]:
    """Two fresh pages and healthy replicas. A fault in a page or in a log fails the test."""
    fleet = one if request.param == "one" else two
    faults: list[str] = []
    pages = (await chromium.new_page(), await chromium.new_page())
    for page in pages:
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.goto(client_url)
    yield Arrangement(fleet, pages, ARRANGEMENTS[request.param])
    for page in pages:
        await page.close()
    await fleet.healed()
    assert faults + fleet.take_faults() == []


async def talk(first: BrowserClient, second: BrowserClient, serialization: str) -> None:
    """Send the sample values both ways over a link that is open."""
    await first.tell(second, serialization)
    await second.tell(first, serialization)


async def test_a_client_has_its_own_id_and_keeps_it(arrangement):
    peer_id = new_id()
    client = await arrangement.client(0, peer_id)
    assert await client.peer_id() == peer_id
    await arrangement.restart_under(client)
    assert await client.peer_id() == peer_id
    assert await client.errors() <= {"network"}

    late = await arrangement.client(1, new_id())
    await late.peer_id()
    assert (await late.errors(), await late.openings()) == (set(), 1)


async def test_a_client_without_an_id_gets_one_and_keeps_it(arrangement):
    client = await arrangement.client(0, None)
    peer_id = await client.peer_id()
    assert str(uuid.UUID(peer_id, version=4)) == peer_id
    await arrangement.restart_under(client)
    assert await client.peer_id() == peer_id

    late = await arrangement.client(1, None)
    assert await late.peer_id() != peer_id
    assert await late.errors() == set()


async def test_one_of_ten_rivals_gets_the_id(arrangement):
    peer_id = new_id()
    rivals = await asyncio.gather(*(arrangement.client(n % 2, peer_id) for n in range(10)))
    arrangement.restart(arrangement.fleet.replicas[0])
    for rival in rivals:
        await rival.until("client.openings > 0 || client.isRefused")
    [winner] = [rival for rival in rivals if await rival.openings()]
    refused = [rival for rival in rivals if await rival.get("client.isRefused")]
    assert len(refused) == 9
    assert winner not in refused

    other = await arrangement.client(0, new_id())
    await other.link_to(winner, "json")
    await talk(other, winner, "json")
    assert await winner.errors() <= {"network"}


async def test_values_arrive_both_ways_in_each_serialization(arrangement):
    first, second = await arrangement.two_apart()
    await arrangement.restart_under(first)
    for number, serialization in enumerate(SERIALIZATIONS):
        dialing, dialed = (first, second) if number % 2 else (second, first)
        await dialing.link_to(dialed, serialization)
    for serialization in SERIALIZATIONS:
        await talk(first, second, serialization)


async def test_a_peer_that_comes_late_gets_what_waited_for_it(arrangement):
    """It is dialed first, and registers within the time that an offer waits (signaling, 4.3)."""
    late_id = new_id()
    early = await arrangement.client(0, new_id())
    home = await arrangement.home(early)
    await early.link(late_id, "binary")
    await early.until("client.links.binary.peerConnection.iceGatheringState === 'complete'")
    await home.until_waiting(await early.get("1 + client.candidates('binary')"))
    await arrangement.restart_under(early)

    late = await arrangement.client(1, late_id)
    await late.until_linked("binary")
    await early.until_linked("binary")
    await talk(early, late, "binary")
    assert "peer-unavailable" not in await early.errors()


async def test_a_peer_that_is_not_there_is_unavailable(arrangement):
    client = await arrangement.client(0, new_id())
    absent = [new_id(), new_id()]
    home = await arrangement.home(client)
    if arrangement.restart_by is not signal.SIGKILL:  # who is killed can tell nobody
        await client.link(absent[0], "json")
        await home.until_waiting(1)
    await arrangement.restart_under(client)
    await client.link(absent[1], "raw")
    for peer_id in absent[arrangement.restart_by is signal.SIGKILL :]:
        await client.until(f"client.isUnavailable('{peer_id}')")
    assert await client.get("client.peer.open"), "this is not fatal"


async def test_a_client_whose_network_was_cut_comes_back(arrangement):
    """Only the client notices: the server still holds the old socket."""
    async with arrangement.behind_proxy() as (client, proxy):
        peer_id, home = await client.peer_id(), await arrangement.home(client)
        proxy.cut()
        await client.until("client.peer.disconnected")
        arrangement.restart(home)
        await come_back(client)
        assert await client.peer_id() == peer_id
        assert await client.errors() <= {"network"}
        await reach(arrangement, client)


async def test_a_client_whose_socket_is_half_open_comes_back(arrangement):
    """Neither end notices, until the client gives its socket up. Its token says who it is."""
    async with arrangement.behind_proxy() as (client, proxy):
        peer_id, home = await client.peer_id(), await arrangement.home(client)
        proxy.stall()
        rival = await arrangement.client(1, peer_id)
        await rival.until("client.isRefused")
        arrangement.restart(home)
        await client.get("client.peer.disconnect()")
        await come_back(client)
        assert await client.peer_id() == peer_id
        await reach(arrangement, client)


async def come_back(client: BrowserClient) -> None:
    """As an app does that tries again until it is back."""
    openings = await client.openings()
    await client.get("client.comeBack()")
    await client.until_back(openings)


async def reach(arrangement: Arrangement, client: BrowserClient) -> None:
    """Somebody else finds it under its id, and it is the one that answers."""
    other = await arrangement.client(1, new_id())
    await other.link_to(client, "json")
    await talk(other, client, "json")


async def test_a_closed_tab_frees_the_id(arrangement):
    peer_id = new_id()
    client = await arrangement.client(0, peer_id)
    await client.peer_id()
    await arrangement.restart_under(client)
    await arrangement.pages[0].close()
    async with asyncio.timeout(5):
        while True:
            heir = await arrangement.client(1, peer_id)
            await heir.until("client.openings > 0 || client.isRefused")
            if await heir.openings():
                break


@pytest.mark.parametrize("arrangement", ["one", "two", "two, one drained"], indirect=True)
async def test_links_outlive_a_restart_of_every_replica(arrangement):
    """All end at once: nobody is there for a while."""
    first, second = await arrangement.two_apart()
    await first.link_to(second, "binary")
    await talk(first, second, "binary")
    openings = await first.openings(), await second.openings()
    for replica in arrangement.fleet.replicas:
        arrangement.fleet.restart(replica, arrangement.restart_by or signal.SIGKILL)
    for client in (first, second):
        await client.until("!client.peer.open")
    await talk(first, second, "binary")

    await first.until_back(openings[0])
    await second.until_back(openings[1])
    await talk(first, second, "binary")
    await second.link_to(first, "json")
    await talk(first, second, "json")
    for client in (first, second):
        assert await client.get("client.closed") == []
        assert await client.errors() == {"network"}
