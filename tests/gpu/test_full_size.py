"""Layers of catalogue models at full size, from files, and the cost of a saved conversation."""

import time

import numpy as np
import pytest
import torch

from poolhouse_node.cli.bench.shape_shards import make_shard
from poolhouse_node.cli.bench.shapes import find_shape
from poolhouse_node.engine import load_shard
from poolhouse_node.engine.torch_shard import TorchShard
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import CATALOGUE_SHAPES

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

FEW = {"layers": 2, "interval": 2, "draft_blocks": 0, "vocabulary_size": 4096, "context": 4096}
"""One layer of each kind: every matrix but the tables is as large as in the model."""
IDS = np.random.default_rng(0).integers(0, 4096, 80).tolist()


@pytest.fixture(autouse=True)
def needs_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def logits(path, precision):
    shard = load_shard(
        path, (0, 2), context_size=256, host=True, device="cuda", precision=precision
    )
    try:
        wide = shard.run(shard.embed(IDS[:64]), 0)
        alone = [shard.run(shard.embed([token]), shard.position) for token in IDS[64:]]
        return shard.logits(wide).cpu(), shard.logits(torch.cat(alone)).cpu(), shard.holding
    finally:
        shard.close()


@pytest.mark.parametrize("key", ["qwen3-0.6b", "qwen3.8-27b", "qwen3.6-35b-moe"])
def test_layers_of_a_file_give_the_logits_of_float32(key, tmp_path):
    path = ModelMaker(CATALOGUE_SHAPES[key].but(**FEW)).write_gguf(tmp_path / "model.gguf")
    started = time.perf_counter()
    wide, narrow, holding = logits(path, "packed")
    size = path.stat().st_size
    print(f"{key}: {size / 1e9:.2f} GB loaded and run in {time.perf_counter() - started:.1f} s")
    exact_wide, exact_narrow, _ = logits(path, "exact")
    # Two layers: rounding of bfloat16 in the prompt, of half floats in keys and values after it.
    for got, wanted, most in ((wide, exact_wide, 0.03), (narrow, exact_narrow, 0.01)):
        error = float((got - wanted).abs().median() / wanted.std())
        print(f"{key}: median error {error:.5f}")
        assert error < most
    assert holding.weights_bytes < 1.1 * size + 4e6


def test_saving_ten_thousand_tokens_copies_no_keys_and_values(capsys):
    shape, layers = find_shape("qwen3.8-27b"), (0, 16)
    part = make_shard(
        shape,
        layers,
        torch.device("cuda", 0),
        quant="q4_0",
        seed=0,
        context=10_300,
        with_head=False,
    )._part
    shard = TorchShard(part, saved_states=2)
    columns = torch.randn(1000, shape.width, device="cuda")
    for start in range(0, 10_000, 1000):
        shard.run(columns, start)
    pages, copied = part.pool.pages, part.pool.pages.copied_bytes
    shard.save(1)  # the slot is made
    torch.cuda.synchronize()
    started = time.perf_counter()
    shard.save(1)
    host_s = time.perf_counter() - started
    torch.cuda.synchronize()
    whole_s = time.perf_counter() - started
    with capsys.disabled():
        print(f"save of 10,000 tokens: {host_s * 1e6:.0f} us, {whole_s * 1e6:.0f} us with the copy")
    assert pages.copied_bytes == copied
    assert host_s < 1e-3
