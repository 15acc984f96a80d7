"""Frames for one socket: bounds, order, ends."""

from __future__ import annotations

import asyncio

import pytest

from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.outbox import Outbox


class Wire:
    """Records. ``room`` is how many more frames fit before it is full, as a transport gets."""

    def __init__(self, room: int = 100) -> None:
        self.sent: list[str | int] = []
        self.room = room
        self.was_cut = asyncio.Event()

    @property
    def is_writable(self) -> bool:
        return self.room > 0

    def send_text(self, text: str) -> None:
        self.room -= 1
        self.sent.append(text)

    def close(self, code: int) -> None:
        self.sent.append(code)

    def farewell(self, code: int) -> None:
        self.sent.append(-code)

    def abort(self) -> None:
        self.was_cut.set()


def put_all(outbox: Outbox, texts: str) -> list[bool]:
    return [outbox.put(text) for text in texts]


async def test_frames_are_written_at_once_in_order_then_the_close() -> None:
    wire = Wire()
    outbox = Outbox(Limits(), wire)
    assert put_all(outbox, "abc") == [True] * 3
    assert wire.sent == ["a", "b", "c"]
    outbox.close(1008)
    assert wire.sent == ["a", "b", "c", 1008]


async def test_frames_wait_while_the_transport_is_full() -> None:
    wire = Wire(room=1)
    outbox = Outbox(Limits(), wire)
    assert put_all(outbox, "abcd") == [True] * 4
    assert wire.sent == ["a"]
    wire.room = 2
    outbox.drain()
    assert wire.sent == ["a", "b", "c"]
    wire.room = 2
    outbox.put("e")  # behind what waits, although there is room
    assert wire.sent == ["a", "b", "c"]
    outbox.drain()
    assert wire.sent == ["a", "b", "c", "d", "e"]


async def test_the_number_of_frames_that_wait_is_bounded() -> None:
    outbox = Outbox(Limits(max_outbox_messages=2), Wire(room=0))
    assert put_all(outbox, "abc") == [True, True, False]


async def test_the_size_of_frames_that_wait_is_bounded_in_bytes() -> None:
    outbox = Outbox(Limits(max_outbox_bytes=10), Wire(room=0))
    assert outbox.put("ü" * 4)
    assert not outbox.put("ü" * 2)
    assert outbox.put("ü")


async def test_bounds_do_not_count_what_is_written() -> None:
    wire = Wire(room=100)
    outbox = Outbox(Limits(max_outbox_messages=1, max_outbox_bytes=3), wire)
    assert all(outbox.put("abc") for _ in range(20))
    wire.room = 0
    for _ in range(20):
        assert outbox.put("abc")
        wire.room = 1
        outbox.drain()
    assert wire.sent == ["abc"] * 40


async def test_discard_drops_what_waits() -> None:
    wire = Wire(room=0)
    outbox = Outbox(Limits(), wire)
    outbox.put("a")
    outbox.close(1013, discard=True)
    assert wire.sent == [1013]


@pytest.mark.parametrize(("hear_out", "end"), [(True, -1012), (False, 1012)])
async def test_the_close_comes_behind_what_waits(hear_out: bool, end: int) -> None:
    wire = Wire(room=0)
    outbox = Outbox(Limits(), wire)
    outbox.put("a")
    outbox.close(1012, hear_out=hear_out)
    assert wire.sent == []
    wire.room = 5
    outbox.drain()
    assert wire.sent == ["a", end]


async def test_the_first_close_counts() -> None:
    wire = Wire()
    outbox = Outbox(Limits(), wire)
    outbox.close(1008)
    outbox.close(1000)
    assert wire.sent == [1008]


async def test_a_client_that_does_not_read_is_cut_after_the_grace() -> None:
    wire = Wire(room=0)
    outbox = Outbox(Limits(close_grace_s=0.01), wire)
    outbox.put("a")
    outbox.close(1013)
    await wire.was_cut.wait()
    assert wire.sent == []
