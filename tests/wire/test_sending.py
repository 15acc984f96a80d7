"""Spreading slices over channels (wire, section 6)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from poolhouse_node.wire.errors import ChannelRefused, WireError
from poolhouse_node.wire.sending import SliceSender
from poolhouse_node.wire.slices import Control, Frame, Kind, decode_header
from tests.support import wire_vectors as vectors

CASES = vectors.load("wire_ordering.json")["sending"]


@dataclass
class FakeChannel:
    log: list[tuple[FakeChannel, bytes]]
    is_open: bool = True
    buffered_bytes: int = 0
    refuses: bool = False
    tried: int = field(default=0)

    def buffered(self) -> int:
        return self.buffered_bytes

    def send(self, data: bytes) -> None:
        self.tried += 1
        if self.refuses:
            raise ChannelRefused("full")
        self.log.append((self, data))


def channels(count: int) -> tuple[list[FakeChannel], list[tuple[FakeChannel, bytes]]]:
    log: list[tuple[FakeChannel, bytes]] = []
    return [FakeChannel(log) for _ in range(count)], log


def sends(log: list, all_channels: list[FakeChannel]) -> list[list[int]]:
    """What was sent since the last call: channel, frame id, slice index."""
    found = []
    for channel, data in log:
        header = decode_header(data)
        assert header is not None
        index = next(n for n, c in enumerate(all_channels) if c is channel)
        found.append([index, header.frame_id, header.slice_index])
    log.clear()
    return found


def frame(size: int = 16) -> Frame:
    return Frame(Kind.HIDDEN, 1, 1, bytes(size))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_sends_as_the_vector(case: dict) -> None:
    links, log = channels(len(case["channels"]))
    sender = SliceSender(duplicate_slices=case["dup"])
    for channel, state in zip(links, case["channels"], strict=True):
        change(channel, state)
    for action in case["actions"]:
        if action["op"] == "set":
            change(links[action["ch"]], action)
            continue
        assert sender.send(frame(action["bytes"]), links) is action["accepted"]
        assert sends(log, links) == action["sends"]


def change(channel: FakeChannel, state: dict) -> None:
    if "state" in state:
        channel.is_open = state["state"] == "open"
    channel.buffered_bytes = state.get("buffered", channel.buffered_bytes)
    channel.refuses = state.get("refuse", channel.refuses)


def test_a_frame_that_cannot_be_said_takes_no_id() -> None:
    links, log = channels(2)
    sender = SliceSender()
    with pytest.raises(WireError):
        sender.send(Frame(Kind.HIDDEN, 1, 1, b"", control=Control(save=0)), links)
    assert log == []
    assert sender.send(frame(), links)
    assert sends(log, links) == [[0, 1, 0], [1, 1, 0]]


def test_the_copy_never_takes_the_channel_that_took_the_first() -> None:
    """The picked channel refuses, so the first goes to the other: the copy has nowhere to go."""
    links, log = channels(2)
    links[0].refuses = True
    sender = SliceSender()
    assert sender.send(frame(), links)
    assert sends(log, links) == [[1, 1, 0]]
    assert sender.lost_slices == 1
    assert links[0].tried == 2


def test_a_slice_that_no_channel_takes_is_lost_and_its_id_spent() -> None:
    links, log = channels(3)
    for channel in links:
        channel.refuses = True
    sender = SliceSender(duplicate_slices=0)
    assert sender.send(frame(), links)
    assert (log, sender.lost_slices, sender.next_frame_id) == ([], 1, 2)


def test_closed_channels_are_left_out() -> None:
    links, log = channels(3)
    links[0].is_open = False
    SliceSender().send(frame(), links)
    assert sends(log, links) == [[1, 1, 0], [2, 1, 0]]


def test_bytes_are_counted_by_copy() -> None:
    links, log = channels(3)
    sender = SliceSender(duplicate_slices=1)
    sender.send(frame(16), links)
    one_copy = len(log[0][1])
    assert (sender.first_bytes, sender.second_bytes) == (one_copy, one_copy)
    sender.send(frame(40_000), links)
    assert sender.second_bytes == one_copy, "a frame of several slices goes once"
    assert sender.first_bytes + sender.second_bytes == sum(len(data) for _, data in log)
