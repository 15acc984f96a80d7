"""Dequantising equals the reference package's, bit for bit, on random blocks."""

import gguf
import numpy as np
import pytest

from poolhouse_node.engine import quant
from poolhouse_node.engine.quant import SUPPORTED_TYPES, dequantise
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType
from tests.support.gguf_writer import WRITABLE_TYPES, quantise
from tests.support.random_blocks import random_blocks as spread_blocks
from tests.support.random_blocks import values_of

HALF_AT = {
    GgmlType.Q4_0: [0],
    GgmlType.Q4_1: [0, 2],
    GgmlType.Q5_0: [0],
    GgmlType.Q8_0: [0],
    GgmlType.Q4_K: [0, 2],
    GgmlType.Q5_K: [0, 2],
    GgmlType.Q6_K: [208],
    GgmlType.F16: [0],
}


def random_blocks(kind, count, seed=0):
    """Any bytes, but scales that are numbers: NaN has no one bit pattern."""
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (count, BLOCKS[kind].size_bytes), np.uint8)
    for at in HALF_AT.get(kind, []):
        data[:, at + 1] &= 0xBF
    if kind in (GgmlType.F32, GgmlType.BF16):
        data[:, -1] &= 0xBF
    return data.reshape(-1)


@pytest.mark.parametrize("kind", sorted(SUPPORTED_TYPES), ids=lambda kind: kind.name)
def test_equals_the_reference_bit_for_bit(kind):
    data = random_blocks(kind, 3000)
    values = dequantise(data, kind, (3000 * BLOCKS[kind].values,)).numpy()
    reference = gguf.dequantize(data, gguf.GGMLQuantizationType(kind.value))
    assert (values.view(np.uint32) == reference.reshape(-1).view(np.uint32)).all()


@pytest.mark.parametrize("kind", sorted(SUPPORTED_TYPES), ids=lambda kind: kind.name)
def test_working_in_chunks_changes_nothing(kind, monkeypatch):
    data = random_blocks(kind, 100, seed=1)
    shape = (4, 25 * BLOCKS[kind].values)
    whole = dequantise(data, kind, shape)
    monkeypatch.setattr(quant, "_CHUNK_VALUES", 7 * BLOCKS[kind].values)
    assert dequantise(data, kind, shape).equal(whole)


@pytest.mark.parametrize("kind", sorted(WRITABLE_TYPES), ids=lambda kind: kind.name)
def test_our_test_writer_knows_what_its_bytes_mean(kind):
    values = np.random.default_rng(2).normal(size=(6, 64)).astype(np.float32)
    data, seen = quantise(values, kind)
    read = dequantise(np.frombuffer(data, np.uint8), kind, (6, 64)).numpy()
    assert (read == seen).all()
    assert np.abs(read - values).max() < 0.35


@pytest.mark.parametrize("kind", sorted(SUPPORTED_TYPES), ids=lambda kind: kind.name)
def test_random_tensors_have_the_spread_asked_for(kind):
    """Tests of models rest on weights of every type being alike."""
    raw = spread_blocks(kind, 256 * 400, 0.5, np.random.default_rng(3))
    values = dequantise(raw, kind, (256 * 400,)).numpy()
    assert values.std() == pytest.approx(0.5, rel=0.1)
    assert abs(values.mean()) < 0.05
    assert (values_of(raw, kind, (256 * 400,)) == values).all()


def test_an_unknown_type_is_a_sentence():
    with pytest.raises(ShardError, match="cannot read Q2_K tensors, only BF16, F16"):
        dequantise(np.zeros(84, np.uint8), GgmlType.Q2_K, (256,))
