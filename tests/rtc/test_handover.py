"""The way of native calls to the loop."""

import asyncio
import threading

import pytest

from poolhouse_node.rtc.handover import Handover
from tests.support.recorder import until


def make(limit=100_000):
    overflows = []
    handover = Handover(asyncio.get_running_loop(), limit, lambda: overflows.append(1))
    return handover, overflows


async def test_calls_of_one_thread_keep_their_order_and_none_is_lost():
    handover, _ = make()
    got = []
    threads = [
        threading.Thread(target=lambda n=n: [handover.put(got.append, (n, i)) for i in range(5000)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    await until(lambda: len(got) == 20_000)
    for n in range(4):
        assert [i for m, i in got if m == n] == list(range(5000))
    for thread in threads:
        thread.join()


async def test_one_wake_up_serves_many(monkeypatch):
    handover, _ = make()
    loop, wakes, got = asyncio.get_running_loop(), [], []
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda f: (wakes.append(1), wake(f)))
    for number in range(400):
        handover.put(got.append, number)
    await until(lambda: len(got) == 400)
    assert len(wakes) == 1


async def test_a_flood_does_not_starve_the_loop():
    handover, _ = make()
    got, turns = [], []
    for number in range(5000):
        handover.put(got.append, number)
    while len(got) < 5000:
        turns.append(len(got))
        await asyncio.sleep(0)
    assert len(turns) > 5


async def test_past_the_limit_the_owner_is_told_once():
    handover, overflows = make(limit=10)
    got = []
    for number in range(50):
        handover.put(got.append, number)
    await until(lambda: overflows)
    assert got == list(range(10))
    assert overflows == [1]


async def test_a_fault_does_not_hold_up_the_rest():
    handover, _ = make()
    loop, got, faults = asyncio.get_running_loop(), [], []
    loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
    handover.put(lambda: 1 / 0)
    handover.put(got.append, 1)
    await until(lambda: got)
    assert isinstance(faults[0], ZeroDivisionError)


def test_after_the_loop_is_closed_nothing_is_kept():
    loop = asyncio.new_event_loop()
    loop.close()
    handover = Handover(loop, 10, pytest.fail)
    handover.put(pytest.fail)
    assert not handover._queue
