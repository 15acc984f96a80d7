"""Every architecture on a GPU gives the logits of the CPU, which others' classes vouch for."""

import numpy as np
import pytest
import torch

from poolhouse_node.engine import load_shard
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES

pytestmark = pytest.mark.gpu

IDS = np.random.default_rng(0).integers(0, 96, 150).tolist()
TOLERANCE = 1e-3


@pytest.fixture(params=SMALL_SHAPES)
def pair(request, tmp_path):
    """The same model on both."""
    path = ModelMaker(SMALL_SHAPES[request.param]).write_gguf(tmp_path / "model.gguf")
    both = [
        load_shard(path, (0, 8), context_size=256, host=True, device=device)
        for device in ("cpu", "cuda")
    ]
    yield both
    for shard in both:
        shard.close()


def feed(shard, ids, at=0, step=None):
    step = step or len(ids)
    hidden = [
        shard.run(shard.embed(ids[start : start + step]), at + start)
        for start in range(0, len(ids), step)
    ]
    return shard.logits(torch.cat(hidden)).cpu().numpy()


@pytest.mark.parametrize("step", [1, 16, 150])
def test_logits_are_those_of_the_cpu(pair, step):
    on_cpu, on_gpu = (feed(shard, IDS, step=step) for shard in pair)
    assert np.abs(on_cpu - on_gpu).max() < TOLERANCE


def test_rollback_and_saved_states(pair):
    results = []
    for shard in pair:
        feed(shard, IDS[:40])
        shard.run(shard.embed([*IDS[40:43], 1, 2, 3]), 40, snapshots=True)
        shard.rollback(2)
        shard.save(1)
        feed(shard, [9, 8, 7], 43)
        shard.load(1)
        results.append(feed(shard, IDS[43:80], 43, step=1))
    assert np.abs(results[0] - results[1]).max() < TOLERANCE
