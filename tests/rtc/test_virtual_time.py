"""The clock that simulations run on."""

import asyncio
import time

import pytest

from tests.support.virtual_time import Deadlock, TooLong, run_virtual


def test_hours_pass_at_once_and_in_order():
    async def main():
        order = []
        loop = asyncio.get_running_loop()

        async def note(after_s):
            await asyncio.sleep(after_s)
            order.append((after_s, loop.time()))

        await asyncio.gather(note(7200), note(0.5), note(3600))
        return order

    start = time.monotonic()
    assert run_virtual(main()) == [(0.5, 0.5), (3600, 3600), (7200, 7200)]
    assert time.monotonic() - start < 1


def test_deadlines_work():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(5)


def test_waiting_for_nothing_is_an_error_that_names_who_waits():
    async def main():
        await asyncio.create_task(asyncio.Event().wait(), name="the-waiter")

    with pytest.raises(Deadlock, match="the-waiter"):
        run_virtual(main())


def test_going_round_for_ever_is_an_error():
    async def main():
        while True:
            await asyncio.sleep(1)

    with pytest.raises(TooLong):
        run_virtual(main(), longest_s=100)
