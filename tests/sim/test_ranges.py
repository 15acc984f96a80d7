"""Ranges of a model's file between devices (dealing, section 9): none is handed out yet."""

import asyncio

import pytest

from poolhouse_node.wire.messages.loading import RangeRequest
from tests.sim.test_room import room_of

ASKED = RangeRequest(id="z:1", url="https://models.example/model.gguf", lo=0, hi=65_535)


@pytest.mark.parametrize("asked", ["host", "worker"])
def test_who_is_asked_for_weights_says_that_it_has_none(asked):
    """So none cross a link by relay either (relay, section 4), whatever path was found."""

    @room_of(2)
    async def said(room, host, joined):
        worker = joined[0]
        guest = await room.join("guest", holds_layers=False)
        of = host if asked == "host" else worker
        if of is worker:
            await guest._neighbours.link_to(worker.network.peer_id)
        heard = []
        guest.act_on = lambda peer, message: heard.append((peer.link.peer_id, message))
        guest.send(guest.peers[of.network.peer_id], ASKED)
        await asyncio.sleep(5)
        return [
            (message.id, bool(message.miss), message.data)
            for who, message in heard
            if who == of.network.peer_id and hasattr(message, "miss")
        ]

    assert said == [("z:1", True, None)]
