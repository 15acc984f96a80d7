"""Frames and their slices (wire, section 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.receiving import OrderedReceiver
from poolhouse_node.wire.slices import (
    HEADER_BYTES,
    SLICE_PAYLOAD_BYTES,
    Control,
    Frame,
    Kind,
    decode_header,
    encode_slices,
    frame_of,
    slices_needed,
)
from tests.support import wire_vectors as vectors

VECTORS = vectors.load("wire_frames.json")
FRAME = Frame(Kind.HIDDEN_B, 9, 2, b"\0\x3c\0\x40")


def decoded(data: bytes) -> Frame | None:
    header = decode_header(data)
    assert header is not None
    return frame_of(header, data[HEADER_BYTES:])


def by_name(cases: list[dict]) -> list:
    return [pytest.param(case, id=case["name"]) for case in cases]


def test_sizes_of_the_page() -> None:
    assert VECTORS["header_bytes"] == HEADER_BYTES
    assert VECTORS["payload_per_slice"] == SLICE_PAYLOAD_BYTES
    assert VECTORS["slice_bytes"] == HEADER_BYTES + SLICE_PAYLOAD_BYTES


@pytest.mark.parametrize("case", by_name(VECTORS["encode"]))
def test_encodes_as_the_vector(case: dict) -> None:
    payload = vectors.payload(case["payload"])
    slices = encode_slices(vectors.frame(case["message"], payload), case["frame_id"])
    assert len(payload) == case["payload_bytes"]
    assert [len(data) for data in slices] == case["slice_lengths"]
    assert [data[:HEADER_BYTES].hex() for data in slices] == case["headers"]
    if "slices" in case:
        assert [data.hex() for data in slices] == case["slices"]
    else:
        assert [vectors.sha256(data) for data in slices] == case["slice_sha256"]


@pytest.mark.parametrize("case", by_name(VECTORS["encode"]))
def test_a_receiver_gets_the_frame_of_the_vector(case: dict) -> None:
    frame = vectors.frame(case["message"], vectors.payload(case["payload"]))
    slices = encode_slices(frame, case["frame_id"])
    receiver = OrderedReceiver(expected=case["frame_id"])
    delivered = [got for data in slices for got in receiver.receive(0, data, 0.0)]
    assert [vectors.described(got) for got in delivered] == [case["decoded"]]


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=f"{c['why']} {c['message']}") for c in VECTORS["encode_errors"]]
)
def test_refuses_what_the_header_cannot_say(case: dict) -> None:
    with pytest.raises(WireError):
        encode_slices(vectors.frame(case["message"], b""), 1)


@pytest.mark.parametrize("case", VECTORS["flags"], ids=lambda case: f"{case['byte']:02x}")
def test_every_flags_byte_both_ways(case: dict) -> None:
    data = bytearray(encode_slices(FRAME, 1)[0])
    data[3] = case["byte"]
    frame = decoded(bytes(data))
    assert frame is not None
    fields = vectors.described(frame)
    assert {name: fields.get(name) for name in ("spec", "reset", "rb")} == {
        "spec": case["fields"]["spec"],
        "reset": case["fields"].get("reset"),
        "rb": case["fields"].get("rb"),
    }
    if fields.get("rb", 0) <= 62:
        assert encode_slices(frame, 1)[0] == bytes(data)


@pytest.mark.parametrize("case", by_name(VECTORS["malformed"]))
def test_a_malformed_slice_leaves_no_trace(case: dict) -> None:
    receiver = OrderedReceiver()
    receiver.opened(0, 0.0)
    before = [f for s in case["before"] for f in receiver.receive(0, vectors.slice_bytes(s), 0.0)]
    gathering, held = receiver.gathering, receiver.held_bytes
    assert receiver.receive(0, vectors.slice_bytes(case["bad"]), 0.0) == []
    assert receiver.gathering - gathering == case["partials_added"]
    assert receiver.held_bytes == held
    after = [f for s in case["after"] for f in receiver.receive(0, vectors.slice_bytes(s), 0.0)]
    assert [frame.position for frame in before + after] == case["delivered_total"]


@pytest.mark.parametrize("case", by_name(VECTORS["oddities"]))
def test_an_odd_slice_is_taken(case: dict) -> None:
    receiver = OrderedReceiver()
    delivered = receiver.receive(0, vectors.slice_bytes(case["slice"]), 0.0)
    assert receiver.expected == 2
    if case["name"] == "unknown kind 4":  # it takes its place in the order and is dropped
        assert delivered == []
    elif case["name"] == "drop all plus one":  # 65535 means all, whatever stands beside it
        assert delivered[0].control == Control(drop_all=True)
    else:
        assert [vectors.described(frame) for frame in delivered] == case["delivered"]


@pytest.mark.parametrize(
    "bad",
    [
        replace(FRAME, position=-1),
        replace(FRAME, position=1 << 32),
        replace(FRAME, columns=-1),
        replace(FRAME, columns=1 << 16),
        replace(FRAME, control=Control(save=65535)),
        replace(FRAME, control=Control(load=65535)),
        replace(FRAME, control=Control(drop=(3, 65535))),
        replace(FRAME, payload=bytes(SLICE_PAYLOAD_BYTES * 0xFFFF + 1)),
    ],
    ids=lambda frame: f"{frame.position} {frame.columns} {frame.control}",
)
def test_refuses_more_than_the_vectors_say(bad: Frame) -> None:
    with pytest.raises(WireError):
        encode_slices(bad, 1)


@pytest.mark.parametrize("frame_id", [0, -1, 1 << 32])
def test_refuses_frame_ids_outside_32_bits(frame_id: int) -> None:
    with pytest.raises(WireError):
        encode_slices(FRAME, frame_id)


def test_control_is_false_only_when_empty() -> None:
    assert not Control.NONE
    assert not Control()
    assert Control().is_empty
    for control in (Control(rollback=0), Control(drop_all=True), Control(reset=True)):
        assert control
        assert not control.is_empty


def test_a_frame_without_control_shares_the_empty_one() -> None:
    frame = decoded(encode_slices(FRAME, 1)[0])
    assert frame is not None
    assert frame.control is Control.NONE


def test_kinds() -> None:
    assert [kind.batched for kind in Kind] == [False, True, False, True]
    assert [kind.returning for kind in Kind] == [False, False, True, True]
    assert Kind.HIDDENRET_B.message_type == "ai-hiddenret-b"


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (1, 1), (4568, 1), (4569, 2), (9136, 2), (9137, 3)]
)
def test_how_many_slices(size: int, count: int) -> None:
    assert slices_needed(size) == count


slots = st.integers(1, 65534)
controls = st.builds(
    Control,
    rollback=st.none() | st.integers(0, 62),
    save=st.none() | slots,
    drop=st.lists(slots, max_size=2).map(tuple),
    reset=st.booleans(),
    load=st.none() | slots,
) | st.just(Control(drop_all=True))
frames = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.integers(0, 0xFFFF_FFFF),
    st.integers(1, 0xFFFF),
    st.binary(max_size=40).map(lambda data: data * 2),
    st.booleans(),
    controls,
)


@given(frames, st.integers(1, 0xFFFF_FFFF))
def test_round_trip(frame: Frame, frame_id: int) -> None:
    (data,) = encode_slices(frame, frame_id)
    assert decoded(data) == frame


@given(st.binary(max_size=80) | st.text(max_size=40))
def test_random_bytes_are_not_ours_or_decode(data: bytes | str) -> None:
    header = decode_header(data)
    if header is None:
        assert isinstance(data, str) or len(data) < HEADER_BYTES or data[:2] != b"SW"
    else:
        frame_of(header, b"")
