"""Products with packed weights beside float32 ones, through more weights than caches hold."""

import time

import pytest
import torch

from poolhouse_node.engine.layers.linear import DenseMatrix
from poolhouse_node.engine.layers.packed import PackedMatrix
from poolhouse_node.engine.quant import Levels

pytestmark = [pytest.mark.perf]

ROWS, COLUMNS, COPIES = 2048, 512, 16
LEAST_RATIO = 2
"""Seen on a busy machine: 4.8; with a compiler that was told to use no vectors: 0.5."""


def levels(four_bits: bool) -> Levels:
    factors = torch.full((ROWS, COLUMNS // 32), 0.01)
    values = torch.full((ROWS, COLUMNS), 9, dtype=torch.int8)
    return Levels(values, factors, factors if four_bits else None, have_four_bits=four_bits)


def least_ms(matrices, x) -> float:
    times = []
    for _ in range(15):
        started = time.perf_counter()
        for matrix in matrices:
            matrix(x)
        times.append(time.perf_counter() - started)
    return 1e3 * min(times)


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("four_bits", [True, False], ids=["four bits", "bytes"])
def test_a_packed_product_is_made_of_vector_instructions(four_bits):
    with torch.inference_mode():
        packed = [PackedMatrix.of_levels(ROWS, [levels(four_bits)]) for _ in range(COPIES)]
        dense = [DenseMatrix(torch.ones(ROWS, COLUMNS)) for _ in range(COPIES)]
        x = torch.ones(1, COLUMNS)
        packed_ms, dense_ms = least_ms(packed, x), least_ms(dense, x)
    print(f"\n{packed_ms:.2f} ms packed, {dense_ms:.2f} ms float32: {dense_ms / packed_ms:.1f}")
    assert dense_ms / packed_ms > LEAST_RATIO
