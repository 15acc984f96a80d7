"""Pages cost no speed: SmolLM2 over the pool against the same model over one plain buffer."""

import math
import statistics
import time

import pytest
import torch

from poolhouse_node.engine import load_shard
from tests.support.dense_rows import DenseRows
from tests.support.model import needs_model, smollm2_path

pytestmark = [pytest.mark.perf]

DECODED = 12
# The two take turns and medians are compared; what is left is the noise of a busy machine.
WORST_RATIO = 1.25
ROUNDS = 3


@pytest.fixture(scope="module")
def shard():
    loaded = load_shard(smollm2_path(), (0, 10), context_size=2048, host=False, device="cpu")
    yield loaded
    loaded.close()


def seconds(call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def ratio(paged, dense, repeats: int) -> float:
    """Median time of ``paged`` over that of ``dense``, taking turns after one warm-up each.

    Other work on the machine only makes it worse by chance: the best of three rounds counts.
    """
    best = math.inf
    for _ in range(ROUNDS):
        times = [(seconds(paged), seconds(dense)) for _ in range(repeats + 1)][1:]
        medians = [statistics.median(column) for column in zip(*times, strict=True)]
        best = min(best, medians[0] / medians[1])
        if best < WORST_RATIO:
            break
    return best


@needs_model
@pytest.mark.parametrize("context", [64, 250, 1000, 1900])
def test_decoding_is_as_fast(shard, context, record_property):
    x = torch.randn(context, shard.width)
    dense = DenseRows(shard._part.state_shape)
    shard.reset()
    shard.run(x, 0)
    dense.run(shard._part.model, x, 0)

    def each(run):
        return lambda: [run(x[:1], context + step) for step in range(DECODED)]

    measured = ratio(
        each(shard.run), each(lambda one, at: dense.run(shard._part.model, one, at)), repeats=9
    )
    record_property("ratio", measured)
    print(f"decode at {context}: {measured:.3f}")
    assert measured < WORST_RATIO


@needs_model
@pytest.mark.parametrize("columns", [16, 256, 1000])
def test_prefill_is_as_fast(shard, columns, record_property):
    x = torch.randn(columns, shard.width)
    dense = DenseRows(shard._part.state_shape)
    shard.reset()
    measured = ratio(lambda: shard.run(x, 0), lambda: dense.run(shard._part.model, x, 0), repeats=4)
    record_property("ratio", measured)
    print(f"prefill of {columns}: {measured:.3f}")
    assert measured < WORST_RATIO
