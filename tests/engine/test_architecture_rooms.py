"""Rooms on models of every architecture: shards as a device uses them, from real files."""

import numpy as np
import pytest
import torch

from poolhouse_node.engine import load_shard
from poolhouse_node.engine.loading import PartShelf
from tests.support.model_maker import ModelMaker
from tests.support.model_reference import reference_logits
from tests.support.model_shapes import SMALL_SHAPES

TOLERANCE = 1e-3
IDS = tuple(np.random.default_rng(0).integers(0, 96, 150).tolist())
WRONG = [1, 2, 3, 4, 5, 6]


@pytest.fixture(scope="module", params=SMALL_SHAPES)
def model(request, tmp_path_factory):
    shape = SMALL_SHAPES[request.param]
    path = tmp_path_factory.mktemp("models") / f"{request.param}.gguf"
    return shape, ModelMaker(shape).write_gguf(path)


def whole(path, shape, **more):
    layers = (0, shape.layers)
    return load_shard(path, layers, context_size=256, host=True, device="cpu", **more)


@pytest.fixture
def shard(model):
    loaded = whole(model[1], model[0])
    yield loaded
    loaded.close()


def feed(shard, ids, at=0, step=None):
    step = step or len(ids)
    hidden = [
        shard.run(shard.embed(ids[start : start + step]), at + start)
        for start in range(0, len(ids), step)
    ]
    return shard.logits(torch.cat(hidden)).numpy()


def far_from_reference(shape, logits, at=0):
    return np.abs(logits - reference_logits(shape, IDS)[at : at + len(logits)]).max()


@pytest.mark.parametrize("step", [None, 1, 7, 16, 64])
def test_logits_are_the_references(shard, model, step):
    assert far_from_reference(model[0], feed(shard, IDS, step=step)) < TOLERANCE


@pytest.mark.parametrize("column", [0, 3])
def test_rollback(shard, model, column):
    feed(shard, IDS[:30])
    shard.run(shard.embed([*IDS[30 : 31 + column], *WRONG][:6]), 30, snapshots=True)
    shard.rollback(column)
    at = 31 + column
    assert shard.position == at
    assert far_from_reference(model[0], feed(shard, IDS[at:60], at, step=1), at) < TOLERANCE


def test_reset(shard, model):
    feed(shard, WRONG)
    shard.reset()
    assert far_from_reference(model[0], feed(shard, IDS)) < TOLERANCE


def test_a_saved_state_goes_on_bit_for_bit_as_if_never_left(shard, model):
    feed(shard, IDS[:40])
    shard.save(3)
    never_left = feed(shard, IDS[40:80], 40, step=1)
    feed(shard, WRONG, 80)
    for _ in range(2):
        shard.load(3)
        assert np.array_equal(feed(shard, IDS[40:80], 40, step=1), never_left)
    assert far_from_reference(model[0], never_left, 40) < TOLERANCE


def test_a_state_is_saved_after_a_rollback(shard, model):
    feed(shard, IDS[:40])
    shard.run(shard.embed([*IDS[40:43], *WRONG]), 40, snapshots=True)
    shard.rollback(2)
    shard.save(1)
    shard.reset()
    feed(shard, WRONG)
    shard.load(1)
    assert far_from_reference(model[0], feed(shard, IDS[43:60], 43), 43) < TOLERANCE


def test_two_rooms_interleaved_are_two_rooms_alone(model):
    shape, path = model
    shelf = PartShelf()
    first, second = whole(path, shape, shelf=shelf), whole(path, shape, shelf=shelf)
    parts = []
    for at in range(0, 60, 10):
        parts.append(feed(first, IDS[at : at + 10], at, step=5))
        feed(second, [*WRONG, *WRONG][:10], at)
    assert far_from_reference(shape, np.concatenate(parts)) < TOLERANCE
    first.close()
    second.close()


@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_safetensors_compute_what_a_gguf_computes(tmp_path, name, tied):
    shape = SMALL_SHAPES[name].but(tied=tied)
    path = ModelMaker(shape).write_safetensors(tmp_path, "F32")
    assert far_from_reference(shape, feed(whole(path, shape), IDS)) < TOLERANCE


def test_a_model_in_several_files(tmp_path):
    shape = SMALL_SHAPES["qwen35"]
    path = ModelMaker(shape).write_split(tmp_path, 3)
    assert far_from_reference(shape, feed(whole(path, shape), IDS)) < TOLERANCE
