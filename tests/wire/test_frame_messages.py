"""Frames as messages on the data channel (wire, section 5, "Without a wire channel")."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.wire.binarypack import pack, unpack
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.frame_messages import FRAME_TYPES, frame_from_message, frame_to_message
from poolhouse_node.wire.slices import Control, Frame, Kind
from tests.support import wire_vectors as vectors

CASES = vectors.load("wire_frames.json")["encode"]
FLOATS = np.array([1.0, -2.5, 1 + 2**-11, 1e-6], dtype="<f4")
HALVES = np.array([0x3C00, 0xC100, 0x3C01, 0x0011], dtype="<u2").tobytes()


def message(**fields: Any) -> dict[str, Any]:
    return {"t": "ai-hidden", "pos": 3, "data": HALVES, "enc": "f16"} | fields


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_carries_what_the_slices_carry(case: dict) -> None:
    frame = vectors.frame(case["message"], vectors.payload(case["payload"]))
    got = frame_from_message(unpack(pack(frame_to_message(frame))))
    assert got == frame


def test_the_map_of_the_vectors() -> None:
    packed = vectors.load("binarypack.json")["encode"]
    case = next(case for case in packed if case["name"] == "frame without a wire channel")
    frame = frame_from_message(unpack(bytes.fromhex(case["hex"])))
    assert frame == Frame(Kind.HIDDEN, 17, 1, bytes.fromhex("003c004000bc"))
    assert pack(frame_to_message(frame)).hex() == case["hex"]


def test_absent_fields_stay_absent() -> None:
    assert list(frame_to_message(Frame(Kind.HIDDEN, 1, 1, b""))) == ["t", "pos", "data", "enc"]
    full = Frame(Kind.HIDDEN_B, 1, 2, b"", True, Control(0, 1, (2, 3), False, True, 4))
    assert list(frame_to_message(full)) == [
        *("t", "basePos", "n", "spec", "reset", "rb", "sv", "ld", "dp", "data", "enc")
    ]


@pytest.mark.parametrize(
    ("dp", "control"),
    [
        (5, Control(drop=(5,))),
        ([5, 6], Control(drop=(5, 6))),
        (65535, Control(drop_all=True)),
        ([1, 65535, 3], Control(drop_all=True)),
        ([], Control()),
        (0, Control()),
        ([5.0], Control(drop=(5,))),
    ],
)
def test_drops_may_be_a_number_or_a_list(dp: object, control: Control) -> None:
    assert frame_from_message(message(dp=dp)).control == control


def test_a_batched_frame_without_a_count_has_four_columns() -> None:
    batched = {"t": "ai-hidden-b", "basePos": 0, "data": HALVES, "enc": "f16"}
    assert frame_from_message(batched).columns == 4
    assert frame_from_message(batched | {"n": None}).columns == 4
    assert frame_from_message(batched | {"n": 0}).columns == 0
    assert frame_from_message(message()).columns == 1


@pytest.mark.parametrize(
    "data", [FLOATS.tobytes(), base64.b64encode(FLOATS.tobytes()).decode()], ids=["bytes", "base64"]
)
def test_payloads_of_older_peers_become_half_floats(data: bytes | str) -> None:
    old = message(data=data)
    del old["enc"]
    assert frame_from_message(old).payload == HALVES
    assert frame_from_message(old | {"enc": None}).payload == HALVES


def test_incomplete_values_are_cut() -> None:
    assert frame_from_message(message(data=HALVES + b"x")).payload == HALVES
    assert frame_from_message(message(data=FLOATS.tobytes() + b"xyz", enc=None)).payload == HALVES


@pytest.mark.parametrize(
    "bad",
    [
        {},
        message(t="hello"),
        message(t=None),
        message(t=["ai-hidden"]),
        message(pos=None),
        message(pos=-1),
        message(pos=1 << 32),
        message(pos=1.5),
        message(pos=True),
        message(pos="3"),
        message(t="ai-hidden-b"),
        message(n=-1),
        message(n=1 << 16),
        message(rb=63),
        message(rb=-1),
        message(sv=65536),
        message(ld=[1]),
        message(dp="all"),
        message(dp=[1, {}]),
        message(dp=[1] * 17),
        message(data=None),
        message(data="AAAA"),
        message(data=[1, 2]),
        message(data="not base64!", enc=None),
        message(data="AAA", enc=None),
        message(data="\u00e9\u00e9\u00e9\u00e9", enc=None),
        message(enc="f8"),
        message(enc=1),
    ],
    ids=str,
)
def test_nonsense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        frame_from_message(bad)


_odd = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
_odd = _odd | st.binary(max_size=9) | st.lists(st.integers(-1, 70000), max_size=3)
_names = st.sampled_from(["pos", "basePos", "n", "spec", "reset", "rb", "sv", "ld", "dp"])


@given(
    st.sampled_from(sorted(FRAME_TYPES)),
    st.dictionaries(_names | st.sampled_from(["data", "enc"]), _odd),
)
def test_random_fields_raise_only_our_error(t: str, fields: dict[str, Any]) -> None:
    try:
        frame = frame_from_message(message(t=t, basePos=1) | fields)
    except WireError:
        return
    assert len(frame.payload) <= len(fields.get("data") or HALVES)
