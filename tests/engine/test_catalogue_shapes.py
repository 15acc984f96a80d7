"""The catalogue's models at full size, by their headers alone: what fits them fits the files."""

from pathlib import Path

import pytest

from poolhouse_node.engine.draft import draft_tensor_names
from poolhouse_node.engine.models import find_architecture
from poolhouse_node.weights.catalogue import find_model
from poolhouse_node.weights.facts import read_facts
from poolhouse_node.weights.gguf import GgufFile
from poolhouse_node.weights.gguf_header import parse_header
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import CATALOGUE_SHAPES

HYBRIDS = [key for key, shape in CATALOGUE_SHAPES.items() if shape.hybrid]


def file_of(key):
    header = parse_header(ModelMaker(CATALOGUE_SHAPES[key]).header())
    return GgufFile(Path(f"{key}.gguf"), (), header)


@pytest.mark.parametrize("key", CATALOGUE_SHAPES)
def test_the_engine_knows_every_tensor(key):
    file, row = file_of(key), find_model(key)
    architecture = find_architecture(file)
    config = architecture.read_config(file)
    assert (config.layers, config.width) == (row.layers, row.width)
    assert read_facts(file).vocabulary_size == row.vocabulary_size
    names = set(architecture.tensor_names(file, (0, config.layers)))
    drafting = set(draft_tensor_names(file, config)) if key in HYBRIDS else set()
    whole = {"token_embd.weight", "output_norm.weight", "output.weight"}
    assert names | drafting | whole >= set(file.tensors)
    assert names | drafting <= set(file.tensors)


@pytest.mark.parametrize("key", HYBRIDS)
def test_sizes_are_near_the_published_ones(key):
    """The real files hold a few tensors in larger types."""
    sizes, published = read_facts(file_of(key)).sizes, find_model(key).sizes
    assert sizes.embedding == published.embedding
    assert sizes.layer == pytest.approx(published.layer, rel=0.08)
    assert sizes.layer <= published.layer
    assert sizes.draft_block < published.draft_block
    assert sizes.kv_position == 2 * published.kv_position  # float32 instead of halves


def test_state_of_the_27b():
    """Engine, section 7: 48 DeltaNet layers of 3 MiB and a window, 16 attention layers."""
    config = find_architecture(file_of("qwen3.8-27b")).read_config(file_of("qwen3.8-27b"))
    state = config.state_shape((0, 64), 16384)
    r, a = state.recurrent, state.attention
    assert (r.layers, a.layers) == (48, 16)
    assert r.heads * r.key_size * r.value_size * 4 == 3 << 20
    assert r.channels * (r.taps - 1) * 4 == 120 << 10
    assert 2 * a.kv_heads * a.head_size * 2 == 4 << 10
