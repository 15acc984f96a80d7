"""Every architecture against its reference class: logits within 1e-3 however columns come."""

import itertools
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from poolhouse_node.engine.head import Head
from poolhouse_node.engine.models import find_architecture
from poolhouse_node.engine.tensors import LoadWatch, TensorLoader
from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.gguf import open_gguf
from tests.support.dense_pass import DenseState
from tests.support.model_maker import ModelMaker
from tests.support.model_reference import reference_logits
from tests.support.model_shapes import SMALL_SHAPES
from tests.support.random_blocks import BLOCK_TYPES

# Acceptance asks for 1e-3; what is seen is 1e-5 (logits are about 3), a little more where
# experts are nearly tied.
TOLERANCE = 1e-3
IDS = tuple(np.random.default_rng(0).integers(0, 96, 150).tolist())
CPU = torch.device("cpu")

SHAPES = {
    **SMALL_SHAPES,
    "llama with heads of its own": SMALL_SHAPES["llama"].but(tied=False, head_size=8, rotated=8),
    "qwen3 with one shared head": SMALL_SHAPES["qwen3"].but(kv_heads=1, tied=False),
    "qwen35 with equal heads": SMALL_SHAPES["qwen35"].but(value_heads=2, draft_blocks=0),
    "qwen35 of every type": SMALL_SHAPES["qwen35"].but(
        kind=None, width=256, ffn_width=256, head_size=64, rotated=16
    ),
    "qwen35moe of every type": SMALL_SHAPES["qwen35moe"].but(
        kind=None, width=256, expert_width=256, shared_width=256
    ),
    "qwen3 in Q8_0": SMALL_SHAPES["qwen3"].but(kind=GgmlType.Q8_0),
    "qwen35 in Q4_0": SMALL_SHAPES["qwen35"].but(kind=GgmlType.Q4_0),
}


def load(path, layers=None):
    """A part and, as a host would, the head."""
    with open_gguf(path) as file:
        architecture = find_architecture(file)
        config = architecture.read_config(file)
        layers = layers or (0, config.layers)
        names = architecture.tensor_names(file, layers) + Head.tensor_names(file)
        watch = LoadWatch(lambda _: None, lambda: False)
        loader = TensorLoader(file, names, CPU, watch)
        head = Head.load(file, config.width, config.epsilon, loader)
        part = architecture.load(config, layers, loader, context_size=256, device=CPU)
    return SimpleNamespace(part=part, head=head, config=config)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    @cache
    def open_shape(name):
        path = ModelMaker(SHAPES[name]).write_gguf(folder / f"{name.replace(' ', '-')}.gguf")
        return load(path)

    return open_shape


def fresh(model) -> DenseState:
    return DenseState(model.part.state_shape(256))


def feed(model, state, ids, step=None):
    """Logits of all columns, run in frames of ``step``."""
    step = step or len(ids)
    hidden = [
        state.run(model.part, model.head.embed(ids[start : start + step]))
        for start in range(0, len(ids), step)
    ]
    return model.head.logits(torch.cat(hidden)).numpy()


@pytest.mark.parametrize("name", SHAPES)
def test_prefill_in_one_frame(loaded, name):
    logits = feed(loaded(name), fresh(loaded(name)), IDS)
    reference = reference_logits(SHAPES[name], IDS)
    assert np.abs(logits - reference).max() < TOLERANCE
    assert reference.std() > 0.3


def test_models_of_every_type_hold_every_type():
    for name in ("qwen35 of every type", "qwen35moe of every type"):
        maker = ModelMaker(SHAPES[name])
        assert {maker.kind(tensor) for tensor in maker.shape.tensors()} == set(BLOCK_TYPES)


@pytest.mark.parametrize("step", [1, 3, 16, 64, 100])
@pytest.mark.parametrize("name", SMALL_SHAPES)
def test_any_split_and_token_by_token(loaded, name, step):
    logits = feed(loaded(name), fresh(loaded(name)), IDS, step)
    assert np.abs(logits - reference_logits(SHAPES[name], IDS)).max() < TOLERANCE


@pytest.mark.parametrize("column", [0, 2, 4])
@pytest.mark.parametrize("name", SMALL_SHAPES)
def test_rollback_goes_on_after_the_kept_column(loaded, name, column):
    """Four wrong drafts after a prompt of 20: as if only the kept columns had been run."""
    model, state = loaded(name), fresh(loaded(name))
    feed(model, state, IDS[:20])
    drafts = [*IDS[20 : 21 + column], 1, 2, 3, 4][:5]
    state.run(model.part, model.head.embed(drafts), snapshots=True)
    state.rollback(20, column)
    logits = feed(model, state, IDS[21 + column : 40], step=1)
    reference = reference_logits(SHAPES[name], IDS)[21 + column : 40]
    assert np.abs(logits - reference).max() < TOLERANCE


@pytest.mark.parametrize("name", SMALL_SHAPES)
def test_a_column_of_a_verify_frame_has_the_best_token_of_a_single_one(loaded, name):
    model = loaded(name)
    one_by_one = feed(model, fresh(model), IDS[:64], step=1).argmax(1)
    for width in (2, 8, 16):
        assert (feed(model, fresh(model), IDS[:64], step=width).argmax(1) == one_by_one).all()


@pytest.mark.parametrize("name", SMALL_SHAPES)
@pytest.mark.parametrize("cuts", [(3,), (1, 4, 6)])
def test_parts_in_a_row_are_the_whole_model(tmp_path, name, cuts):
    path = ModelMaker(SHAPES[name]).write_gguf(tmp_path / "model.gguf")
    bounds = [0, *cuts, SHAPES[name].layers]
    parts = [load(path, layers) for layers in itertools.pairwise(bounds)]
    hidden = parts[0].head.embed(IDS[:30])
    for part in parts:
        hidden = fresh(part).run(part.part, hidden)
    logits = parts[0].head.logits(hidden).numpy()
    assert np.abs(logits - reference_logits(SHAPES[name], IDS)[:30]).max() < TOLERANCE


@pytest.mark.parametrize("name", SMALL_SHAPES)
def test_the_state_asked_for_is_that_of_the_layers(loaded, name):
    shape, model = SHAPES[name], loaded(name)
    for layers in ((0, 3), (3, 4), (0, 8), (2, 7)):
        state = model.config.state_shape(layers, 100)
        attending = [layer for layer in range(*layers) if shape.attends(layer)]
        recurring = layers[1] - layers[0] - len(attending)
        assert (state.attention.layers if state.attention else 0) == len(attending)
        assert (state.recurrent.layers if state.recurrent else 0) == recurring
        assert state.context_size == 100
        if state.recurrent:
            r = state.recurrent
            assert (r.heads, r.key_size, r.value_size, r.taps) == (6, 16, 16, 4)
            assert r.channels == (2 * 2 + 6) * 16
