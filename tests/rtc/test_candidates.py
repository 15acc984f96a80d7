"""Candidates of the other end do not hold up what it waits for."""

from __future__ import annotations

import asyncio

import pytest

from poolhouse_node.rtc.connection import Connection
from poolhouse_node.rtc.peer import IceSettings, make_peer

pytestmark = pytest.mark.webrtc

LOCAL_NAME = "candidate:1 1 udp 2113937151 0a1b2c3d.local 54321 typ host generation 0"


def make_connection(*, dialed: bool) -> Connection:
    peer = make_peer("libdatachannel", IceSettings())
    return Connection(peer, peer_id="other", connection_id="dc_1", label="dc_1", dialed=dialed)


async def test_a_candidate_that_is_being_looked_up_does_not_delay_the_answer():
    """A browser's ``.local`` name may take aiortc seconds; the browser waits for our answer."""
    left, right = make_connection(dialed=True), make_connection(dialed=False)
    begun, looked_up = [], asyncio.Event()

    async def look_up(candidate: str, _mid: str) -> None:
        begun.append(candidate)
        await looked_up.wait()

    right._peer.add_candidate = look_up
    right.add_candidate(LOCAL_NAME, "0")
    offer = await left.offer()
    async with asyncio.timeout(5):
        await left.accept(await right.answer(offer))
        assert await right.wait_open(5)
    assert begun == [LOCAL_NAME]
    for end in (left, right):
        end.close()
    await asyncio.gather(left.wait_closed(), right.wait_closed())
