"""What a connection still delivers when its sender closes it at once, over real engines."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest

from poolhouse_node.rtc.connection import Connection
from poolhouse_node.rtc.peer import Engine, IceSettings, make_peer

pytestmark = pytest.mark.webrtc

ENGINES: list[Engine] = ["libdatachannel", "aiortc"]
PAIRINGS = list(product(ENGINES, ENGINES))


class Reader:
    """Notes what a connection tells."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.ended = asyncio.Event()

    def message(self, value: Any) -> None:
        self.messages.append(value)

    def heard(self) -> None:
        """A sign of life is no news here."""

    def closed(self, reason: str) -> None:
        self.ended.set()


def make_connection(engine: Engine, *, dialed: bool) -> Connection:
    peer = make_peer(engine, IceSettings())
    return Connection(peer, peer_id="other", connection_id="dc_1", label="dc_1", dialed=dialed)


async def open_pair(dialing: Engine, answering: Engine) -> tuple[Connection, Connection]:
    """Two ends of one open connection."""
    left = make_connection(dialing, dialed=True)
    right = make_connection(answering, dialed=False)
    await left.accept(await right.answer(await left.offer()))
    assert await left.wait_open(15)
    assert await right.wait_open(15)
    return left, right


@pytest.mark.parametrize(
    ("dialing", "answering"), PAIRINGS, ids=["-".join(pair) for pair in PAIRINGS]
)
async def test_bulk_that_was_sent_before_a_close_arrives(dialing, answering):
    left, right = await open_pair(dialing, answering)
    reader = Reader()
    right.listen(reader)
    blob = bytes(range(250)) * 1200
    left.send({"t": "blob", "data": blob})
    left.send({"t": "leaving"})
    left.close()
    async with asyncio.timeout(10):
        await reader.ended.wait()
    assert reader.messages == [{"t": "blob", "data": blob}, {"t": "leaving"}]
    await asyncio.gather(left.wait_closed(), right.wait_closed())
