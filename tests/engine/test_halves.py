"""Half floats by the wire's rule: every case of ``f16.json``."""

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.engine.halves import (
    from_halves,
    halves_to_bytes,
    largest_magnitude,
    to_halves,
)
from tests.support.vectors import vectors

VECTORS = vectors("f16")
CPU = torch.device("cpu")


def pack(bits: np.ndarray) -> np.ndarray:
    values = torch.from_numpy(bits.astype(np.uint32).view(np.float32))
    return np.frombuffer(halves_to_bytes(to_halves(values)), "<u2")


def test_every_vector_packs():
    rows = VECTORS["f32_to_f16"]
    given_bits = np.array([int(row[0], 16) for row in rows])
    wanted = [row[1] for row in rows]
    assert [f"{half:04x}" for half in pack(given_bits)] == wanted


def test_the_vectors_hold_ties_that_torch_itself_rounds_otherwise():
    rows = [row for row in VECTORS["f32_to_f16"] if len(row) > 2]
    bits = np.array([int(row[0], 16) for row in rows], np.uint32)
    cast = torch.from_numpy(bits.view(np.float32)).to(torch.float16).view(torch.int16)
    assert len(rows) > 10
    assert [f"{half & 0xFFFF:04x}" for half in cast.tolist()] == [row[2] for row in rows]


def test_every_half_unpacks():
    halves = np.arange(65536, dtype="<u2")
    values = from_halves(halves.tobytes(), (65536,), CPU).numpy()
    canonical = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    digest = hashlib.sha256(canonical.astype("<u4").tobytes()).hexdigest()
    assert digest == VECTORS["checksums"]["sha256"]
    for half, bits in VECTORS["f16_to_f32"]:
        value = values[int(half, 16)]
        assert np.isnan(value) if bits == "nan" else f"{value.view(np.uint32):08x}" == bits


def test_every_half_survives_the_way_there_and_back():
    halves = np.arange(65536, dtype="<u2")
    back = to_halves(from_halves(halves.tobytes(), (65536,), CPU)).numpy().view("<u2")
    numbers = (halves & 0x7FFF) <= 0x7C00
    assert (back[numbers] == halves[numbers]).all()
    assert ((back[~numbers] & 0x7FFF) == 0x7E00).all()


@given(
    st.lists(st.floats(width=32, allow_nan=False, max_value=65472, min_value=-65472), min_size=1)
)
def test_rounding_is_to_the_nearest_and_away_from_zero(values):
    packed = np.frombuffer(halves_to_bytes(to_halves(torch.tensor(values))), "<f2")
    for value, half in zip(np.array(values, np.float64), packed.astype(np.float64), strict=True):
        away = np.nextafter(np.float16(half), np.float16(np.copysign(np.inf, value)))
        toward = np.nextafter(np.float16(half), np.float16(0))
        assert abs(half - value) <= abs(float(toward) - value)
        assert abs(half - value) < abs(float(away) - value)


@pytest.mark.parametrize(
    ("values", "amax"),
    [([1.0, -3.5], 3.5), ([], 0.0), ([70000.0], 70000.0), ([1.0, -np.inf], np.inf)],
)
def test_largest_magnitude(values, amax):
    assert largest_magnitude(torch.tensor(values)) == amax


def test_a_nan_is_never_lost_from_the_largest_magnitude():
    assert np.isnan(largest_magnitude(torch.tensor([1.0, np.nan, 70000.0])))


def test_shapes_survive_and_views_are_packed_in_order():
    values = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    packed = np.frombuffer(halves_to_bytes(to_halves(values[:, ::2])), "<f2")
    assert packed.tolist() == values[:, ::2].flatten().tolist()
    assert from_halves(packed.tobytes(), (4, 3), CPU).tolist() == values[:, ::2].tolist()
