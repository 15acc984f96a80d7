"""Packed matrices hold what the file's blocks hold."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.engine.quant import dequantise
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import GgmlType
from tests.support.kernels import random_blocks

from poolhouse_node.engine.kernels.packing import pack, stack, unpack  # isort: skip

KINDS = [GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q8_0]


@given(
    kind=st.sampled_from(KINDS),
    rows=st.integers(1, 50),
    blocks=st.integers(1, 20),
    seed=st.integers(0, 9),
)
@settings(max_examples=60)
def test_packing_loses_nothing(kind, rows, blocks, seed):
    raw = random_blocks(kind, rows, 32 * blocks, seed)
    weight = pack(raw, kind, (rows, 32 * blocks))
    wanted = dequantise(raw.numpy().reshape(-1), kind, (rows, 32 * blocks))
    # One rounding differs where a least value is added: the engine's levels are 8 less.
    tolerance = 1e-6 if kind is GgmlType.Q4_1 else 0.0
    assert torch.allclose(unpack(weight), wanted, rtol=0, atol=tolerance)


def test_packed_bytes_are_those_of_the_file_when_tiles_are_full():
    weight = pack(random_blocks(GgmlType.Q4_0, 32, 512), GgmlType.Q4_0, (32, 512))
    assert weight.held_bytes == 32 * 512 // 32 * 18


def test_stacked_matrices_are_one_below_the_other():
    parts = [
        pack(random_blocks(GgmlType.Q4_0, rows, 96, rows), GgmlType.Q4_0, (rows, 96))
        for rows in (32, 16, 5)
    ]
    assert torch.equal(unpack(stack(parts)), torch.cat([unpack(part) for part in parts]))


@pytest.mark.parametrize(
    ("first", "second"),
    [((8, 96), (16, 96)), ((16, 96), (16, 512))],
    ids=["half a tile", "other columns"],
)
def test_what_cannot_be_stacked_is_refused(first, second):
    parts = [
        pack(random_blocks(GgmlType.Q4_0, *shape), GgmlType.Q4_0, shape)
        for shape in (first, second)
    ]
    with pytest.raises(ShardError, match="stacked"):
        stack(parts)


@pytest.mark.parametrize(
    ("kind", "columns"), [(GgmlType.Q6_K, 256), (GgmlType.Q4_0, 48)], ids=["type", "columns"]
)
def test_what_cannot_be_packed_is_refused(kind, columns):
    with pytest.raises(ShardError, match="cannot be packed"):
        pack(torch.zeros(1, dtype=torch.uint8), kind, (1, columns))
