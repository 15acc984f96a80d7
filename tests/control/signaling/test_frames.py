"""The short path's reading and writing of frames, against the websockets library's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from poolhouse_control.signaling.frames import (
    Extent,
    is_fragment,
    measure,
    text_frame,
    unmasked,
)

sizes = st.one_of(st.integers(0, 300), st.sampled_from([65_535, 65_536, 70_000]))


def client_frame(payload: bytes, opcode: Opcode = Opcode.TEXT) -> bytes:
    return Frame(opcode, payload).serialize(mask=True)


@given(before=st.binary(max_size=20), size=sizes, behind=st.binary(max_size=20))
def test_a_clients_frame_is_measured_and_unmasked(before: bytes, size: int, behind: bytes) -> None:
    payload = bytes(i % 251 for i in range(size))
    frame = client_frame(payload)
    data = before + frame + behind
    extent = measure(data, len(before))
    assert extent is not None
    assert extent.size == size
    assert extent.start + size == len(before) + len(frame)
    assert unmasked(data, extent) == payload


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_header_that_is_not_whole_has_no_measure(size: int) -> None:
    frame = client_frame(b"x" * size)
    header = len(frame) - size
    assert [measure(frame[:cut], 0) for cut in range(header)] == [None] * header
    assert measure(frame[:header], 0) == Extent(header, size)


def test_a_frame_without_a_mask_has_a_negative_size() -> None:
    extent = measure(Frame(Opcode.TEXT, b"abc").serialize(mask=False), 0)
    assert extent is not None
    assert extent.size < 0


@given(data=st.binary(max_size=20), at=st.integers(0, 20))
def test_no_bytes_are_too_odd_to_measure(data: bytes, at: int) -> None:
    extent = measure(data, at)
    assert extent is None or extent.size >= -1


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_servers_frame_is_what_the_library_writes(size: int) -> None:
    payload = b"x" * size
    assert text_frame(payload) == Frame(Opcode.TEXT, payload).serialize(mask=False)


@pytest.mark.parametrize(
    ("frames", "in_message"),
    [
        ("text", False),
        ("text+", True),
        ("text+ ping", True),
        ("text+ cont+", True),
        ("text+ ping cont", False),
        ("ping", False),
        ("binary+", True),
        ("binary", False),
    ],
)
def test_it_is_known_whether_a_message_is_unfinished(frames: str, in_message: bool) -> None:
    opcodes = {"cont": 0, "text": 1, "binary": 2, "ping": 9}
    inside = False
    for name in frames.split():
        first = opcodes[name.rstrip("+")] | (0 if name.endswith("+") else 0x80)
        inside = is_fragment(first, in_message=inside)
    assert inside is in_message
