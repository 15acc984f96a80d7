"""A pledge whose rooms take from it in threads of their own."""

import asyncio

from poolhouse_node.cli.lending import SharedPledge
from poolhouse_node.room.pledge import GIB


async def test_rooms_hear_on_the_loop_what_others_leave_them():
    pledge, heard = SharedPledge(4.0), {"A": [], "B": []}
    with pledge.telling("A", heard["A"].append), pledge.telling("B", heard["B"].append):
        budget = pledge.room("A")
        await asyncio.to_thread(budget.take, "part", 2 * GIB, GIB // 2)
        await asyncio.sleep(0)
        assert budget.left_bytes() == 1.5 * GIB
        assert heard == {"A": [4.0, 4.0], "B": [4.0, 1.5]}
        await asyncio.to_thread(budget.give_back)
        await asyncio.sleep(0)
    assert heard["B"] == [4.0, 1.5, 4.0]


async def test_a_room_that_is_over_hears_no_more():
    pledge, heard = SharedPledge(1.0), []
    with pledge.telling("A", heard.append):
        pass
    pledge.room("B").take("part", GIB, 0)
    await asyncio.sleep(0)
    assert heard == [1.0]


async def test_a_room_that_comes_later_is_offered_what_is_left():
    pledge, heard = SharedPledge(2.0), []
    pledge.room("A").take("part", GIB, 0)
    with pledge.telling("B", heard.append):
        assert heard == [1.0]


async def test_a_small_pledge_is_offered_as_it_was_said():
    assert SharedPledge(0.05).offer_gb("A") == 0.05
