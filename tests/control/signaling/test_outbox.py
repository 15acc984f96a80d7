"""Frames that wait for one socket: bounds, order, ends."""

from __future__ import annotations

import asyncio

from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.outbox import Outbox


class Wire:
    """Records; blocks while ``gate`` is clear, as a full transport does."""

    def __init__(self) -> None:
        self.sent: list[str | int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send_text(self, data: str) -> None:
        await self.gate.wait()
        self.sent.append(data)

    async def close(self, code: int) -> None:
        await self.gate.wait()
        self.sent.append(code)

    async def farewell(self, code: int) -> None:
        self.sent.append(-code)


class Cuts:
    def __init__(self) -> None:
        self.happened = asyncio.Event()

    def __call__(self) -> None:
        self.happened.set()


async def test_frames_are_written_in_order_then_the_close() -> None:
    outbox, wire = Outbox(Limits(), Cuts()), Wire()
    for text in "abc":
        assert outbox.put(text)
    outbox.close(1008)
    await outbox.write_to(wire)
    assert wire.sent == ["a", "b", "c", 1008]


async def test_frames_put_later_are_written_too() -> None:
    outbox, wire = Outbox(Limits(), Cuts()), Wire()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.write_to(wire))
        for text in "abc":
            outbox.put(text)
            while text not in wire.sent:
                await asyncio.sleep(0)
        outbox.close(1000)
    assert wire.sent == ["a", "b", "c", 1000]


async def test_the_number_of_frames_is_bounded() -> None:
    outbox = Outbox(Limits(max_outbox_messages=2), Cuts())
    assert [outbox.put("x") for _ in range(3)] == [True, True, False]


async def test_the_size_of_frames_is_bounded_in_bytes() -> None:
    outbox = Outbox(Limits(max_outbox_bytes=10), Cuts())
    assert outbox.put("ü" * 4)
    assert not outbox.put("ü" * 2)
    assert outbox.put("ü")


async def test_room_comes_back_when_frames_are_written() -> None:
    outbox, wire = Outbox(Limits(max_outbox_messages=1, max_outbox_bytes=3), Cuts()), Wire()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(outbox.write_to(wire))
        for number in range(20):
            assert outbox.put("abc")
            while len(wire.sent) <= number:
                await asyncio.sleep(0)
        outbox.close(1000)


async def test_discard_drops_what_waits() -> None:
    outbox, wire = Outbox(Limits(), Cuts()), Wire()
    outbox.put("a")
    outbox.close(1013, discard=True)
    await outbox.write_to(wire)
    assert wire.sent == [1013]


async def test_a_client_that_is_heard_out_gets_what_is_queued_first() -> None:
    outbox, wire = Outbox(Limits(), Cuts()), Wire()
    outbox.put("a")
    outbox.close(1012, hear_out=True)
    await outbox.write_to(wire)
    assert wire.sent == ["a", -1012]


async def test_the_first_close_counts() -> None:
    outbox, wire = Outbox(Limits(), Cuts()), Wire()
    outbox.close(1008)
    outbox.close(1000)
    await outbox.write_to(wire)
    assert wire.sent == [1008]


async def test_a_client_that_does_not_read_is_cut_after_the_grace() -> None:
    cuts = Cuts()
    outbox, wire = Outbox(Limits(close_grace_s=0.01), cuts), Wire()
    wire.gate.clear()
    writer = asyncio.create_task(outbox.write_to(wire))
    outbox.put("a")
    outbox.close(1013, discard=True)
    await cuts.happened.wait()
    assert not writer.done()
    writer.cancel()
