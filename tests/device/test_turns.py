"""Rooms that share a compute thread: who is next."""

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.device.compute import ComputeThread
from poolhouse_node.device.turns import Turns
from tests.support.fake_model import InlineCompute
from tests.support.virtual_time import run_virtual


def second() -> InlineCompute:
    return InlineCompute(lambda: 1.0)


@given(st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_rooms_get_one_call_each_in_turn_however_many_they_have_waiting(counts):
    """Until the others have none: no room ever waits for two calls of the same one."""
    done: list[int] = []

    async def scenario():
        rooms = [turns.for_room() for turns in [Turns(second())] for _ in counts]
        calls = [
            room.run(lambda number=number: done.append(number))
            for number, (room, count) in enumerate(zip(rooms, counts, strict=True))
            for _ in range(count)
        ]
        await asyncio.gather(*calls)

    run_virtual(scenario())
    first, *queued = done  # the first call found nobody before it
    assert first == 0
    left = [count - (number == 0) for number, count in enumerate(counts)]
    rounds = []
    while any(left):
        rounds += [number for number, count in enumerate(left) if count]
        left = [max(0, count - 1) for count in left]
    assert queued == rounds


def test_a_call_waits_for_the_one_that_runs_and_one_more_of_a_room_with_twenty():
    async def scenario():
        turns, loop = Turns(InlineCompute(lambda: 10.0)), asyncio.get_running_loop()
        greedy, modest = turns.for_room(), turns.for_room()
        many = [asyncio.ensure_future(greedy.run(lambda: None)) for _ in range(20)]
        await asyncio.sleep(1)
        await modest.run(lambda: None)
        done_at = loop.time()
        await asyncio.gather(*many)
        return done_at

    assert run_virtual(scenario()) == 30.0


def test_a_call_that_is_given_up_while_it_waits_does_not_run():
    ran = []

    async def scenario():
        turns = Turns(second())
        rooms = [turns.for_room() for _ in range(3)]
        calls = [
            asyncio.ensure_future(room.run(lambda name=name: ran.append(name)))
            for room, name in zip(rooms, "abc", strict=True)
        ]
        await asyncio.sleep(0.5)
        calls[1].cancel()
        await asyncio.wait(calls)

    run_virtual(scenario())
    assert ran == ["a", "c"]


def test_a_turn_that_comes_in_the_moment_of_the_giving_up_goes_to_the_next():
    ran = []

    async def scenario():
        turns = Turns(InlineCompute())
        first, second, third = (turns.for_room() for _ in range(3))
        await turns.begin(first)
        calls = [
            asyncio.ensure_future(room.run(lambda name=name: ran.append(name)))
            for room, name in ((second, "second"), (third, "third"))
        ]
        await asyncio.sleep(0)
        turns.end()
        calls[0].cancel()
        await asyncio.wait(calls, timeout=5)
        await first.run(lambda: ran.append("again"))

    run_virtual(scenario())
    assert ran == ["third", "again"]


def test_what_a_call_raises_ends_its_turn():
    async def scenario():
        turns = Turns(InlineCompute())
        with pytest.raises(ZeroDivisionError):
            await turns.for_room().run(lambda: 1 // 0)
        return await turns.for_room().run(lambda: 7)

    assert run_virtual(scenario()) == 7


async def test_on_a_real_thread_calls_never_overlap():
    thread, inside, most = ComputeThread(), [0], [0]

    def call():
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        inside[0] -= 1

    turns = Turns(thread)
    rooms = [turns.for_room() for _ in range(4)]
    calls = [asyncio.ensure_future(room.run(call)) for room in rooms for _ in range(50)]
    for cancelled in calls[::7]:
        cancelled.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*calls, return_exceptions=True)
    assert await rooms[0].run(lambda: most[0]) == 1
    thread.close()
