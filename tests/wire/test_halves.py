"""Half floats (wire, section 5, "Payload")."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.wire.halves import from_halves, to_halves
from tests.support import wire_vectors as vectors

VECTORS = vectors.load("f16.json")
TO_HALF = VECTORS["f32_to_f16"]
ALL_HALVES = np.arange(0x10000, dtype=np.uint16)


def floats(bits: list[str]) -> np.ndarray:
    return np.array([int(b, 16) for b in bits], dtype=np.uint32).view(np.float32)


def exactly(value: float) -> int:
    """The bits of one half, by plain arithmetic: an independent reading of the page."""
    (bits,) = struct.unpack(">I", struct.pack(">f", value))
    sign, size = (bits >> 16) & 0x8000, abs(value)
    if size != size:
        return sign | 0x7E00
    if size >= 65520:
        return sign | 0x7C00
    exponent = max(-14, min(15, (bits >> 23 & 0xFF) - 127))
    unit = 2.0 ** (exponent - 10)
    units = int(size / unit + 0.5)  # doubles: exact for floats of 24 bits
    if units >= 2048:
        units, exponent = 1024, exponent + 1
    return sign | (units if units < 1024 else ((exponent + 15) << 10) + units - 1024)


def test_every_vector_to_halves_at_once() -> None:
    halves = to_halves(floats([case[0] for case in TO_HALF]))
    assert [f"{half:04x}" for half in halves] == [case[1] for case in TO_HALF]


@pytest.mark.parametrize("case", [pytest.param(case, id=case[0]) for case in TO_HALF[:120]])
def test_a_vector_alone(case: list[str]) -> None:
    """Alone, a value does not share a batch with ones that take the slower branches."""
    assert f"{to_halves(floats(case[:1]))[0]:04x}" == case[1]


def test_ties_differ_from_the_usual_rounding() -> None:
    odd = [case for case in TO_HALF if len(case) == 3]
    with np.errstate(over="ignore"):
        usual = floats([case[0] for case in odd]).astype(np.float16).view(np.uint16)
    assert len(odd) > 20
    assert [f"{half:04x}" for half in usual] == [case[2] for case in odd]


def test_every_vector_from_halves() -> None:
    cases = VECTORS["f16_to_f32"]
    values = from_halves(np.array([int(half, 16) for half, _ in cases], dtype=np.uint16))
    for value, (half, bits) in zip(values, cases, strict=True):
        assert np.isnan(value) if bits == "nan" else f"{value.view(np.uint32):08x}" == bits, half


def test_the_checksum_over_all_halves() -> None:
    bits = from_halves(ALL_HALVES).view(np.uint32)
    bits[np.isnan(from_halves(ALL_HALVES))] = 0x7FC0_0000
    assert vectors.sha256(bits.astype("<u4").tobytes()) == VECTORS["checksums"]["sha256"]


def test_every_half_survives_the_way_there_and_back() -> None:
    back = to_halves(from_halves(ALL_HALVES))
    numbers = (ALL_HALVES & 0x7FFF) <= 0x7C00
    assert (back[numbers] == ALL_HALVES[numbers]).all()
    assert set(back[~numbers].tolist()) == {0x7E00, 0xFE00}


def test_every_tie_between_two_halves_goes_away_from_zero() -> None:
    below = ALL_HALVES[:0x7BFF]
    exact = from_halves(below).astype(np.float64)
    middle = ((exact + from_halves(below + 1)) / 2).astype(np.float32)
    assert (to_halves(middle) == below + 1).all()
    assert (to_halves(-middle) == (below + 1 | 0x8000)).all()
    assert (to_halves(np.nextafter(middle, np.float32(0))) == below).all()


@given(st.lists(st.floats(width=32), min_size=1, max_size=50))
def test_agrees_with_plain_arithmetic(values: list[float]) -> None:
    assert to_halves(np.array(values, dtype=np.float32)).tolist() == [exactly(v) for v in values]


def test_keeps_shapes_and_takes_views() -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2]
    halves = to_halves(values)
    assert halves.shape == (4, 3)
    assert (from_halves(halves) == values).all()
    assert to_halves(np.empty((0, 5), dtype=np.float32)).shape == (0, 5)
