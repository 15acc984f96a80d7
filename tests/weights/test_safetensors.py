"""Safetensors: read like a GGUF of the same model, and what is refused."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.weights.errors import SafetensorsError
from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.hub_config import gguf_name, read_hub_config
from poolhouse_node.weights.opening import open_weights
from poolhouse_node.weights.safetensors_header import parse_safetensors
from tests.support.model_maker import ModelMaker, safetensors_bytes
from tests.support.model_shapes import SMALL_SHAPES

NUMBERS = {"BF16": GgmlType.BF16, "F16": GgmlType.F16, "F32": GgmlType.F32}


@pytest.fixture(params=["llama", "qwen3"])
def maker(request):
    return ModelMaker(SMALL_SHAPES[request.param].but(layers=2, kind=GgmlType.BF16))


@pytest.mark.parametrize("number", NUMBERS)
def test_tensors_are_those_of_a_gguf(tmp_path, maker, number):
    shape = maker.shape.but(kind=NUMBERS[number])
    maker = ModelMaker(shape)
    with open_weights(maker.write_safetensors(tmp_path, number)) as file:
        assert set(file.tensors) == set(shape.tensors())
        for name, dimensions in shape.tensors().items():
            assert file.tensors[name].shape == dimensions
            if len(dimensions) == 2:
                assert np.array_equal(file.tensor_data(name), maker.raw(name))


def test_metadata_is_that_of_a_gguf(tmp_path, maker):
    own = f"{maker.shape.architecture}."
    with open_weights(maker.write_safetensors(tmp_path)) as file:
        wanted = maker.shape.metadata()
        left_out = {"general.name", f"{own}attention.value_length", f"{own}rope.dimension_count"}
        for key in wanted.keys() - left_out:
            assert file.metadata[key] == pytest.approx(wanted[key]), key
        assert file.metadata[f"{own}rope.scaling.type"] == "none"


def test_a_head_of_its_own_is_kept_and_a_tied_one_is_not(tmp_path, maker):
    for tied in (True, False):
        again = ModelMaker(maker.shape.but(tied=tied))
        with open_weights(again.write_safetensors(tmp_path)) as file:
            assert ("output.weight" in file.tensors) is not tied


def test_several_files_are_one_model(tmp_path, maker):
    whole = maker.write_safetensors(tmp_path)
    data = whole.read_bytes()
    tensors = {}
    for info in parse_safetensors(data, file_size=len(data)):
        tensors[info.name] = (info.type.name, info.shape, data[info.offset :][: info.size_bytes])
    names = list(tensors)
    for part, chosen in enumerate((names[::2], names[1::2]), 1):
        path = tmp_path / f"model-{part:05}-of-00002.safetensors"
        path.write_bytes(safetensors_bytes({name: tensors[name] for name in chosen}))
    with open_weights(tmp_path / "model-00001-of-00002.safetensors") as file:
        assert set(file.tensors) == set(maker.shape.tensors())
        assert {info.part for info in file.tensors.values()} == {0, 1}
        name = "blk.1.ffn_down.weight"
        assert np.array_equal(file.tensor_data(name), maker.raw(name))
    path.write_bytes(whole.read_bytes())
    with pytest.raises(SafetensorsError, match="twice"):
        open_weights(tmp_path / "model-00001-of-00002.safetensors")


def test_names_nobody_knows_stay_in_their_layer():
    """So that a model refuses a bias instead of leaving it out."""
    assert gguf_name("model.layers.3.self_attn.q_proj.bias") == "blk.3.self_attn.q_proj.bias"
    assert gguf_name("model.layers.12.mlp.up_proj.weight") == "blk.12.ffn_up.weight"
    assert gguf_name("vision.layers.0.weight") == "vision.layers.0.weight"


CONFIG = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "rope_theta": 100000,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
}


def config(**changes) -> bytes:
    return json.dumps({**CONFIG, **changes}).encode()


def test_a_published_configuration_is_read():
    metadata, tied = read_hub_config(config())
    assert tied
    assert metadata == {
        "general.architecture": "llama",
        "llama.block_count": 30,
        "llama.embedding_length": 576,
        "llama.attention.head_count": 9,
        "llama.attention.head_count_kv": 3,
        "llama.feed_forward_length": 1536,
        "llama.context_length": 8192,
        "llama.rope.freq_base": 100000.0,
        "llama.rope.scaling.type": "none",
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }


@pytest.mark.parametrize(
    ("changes", "kind", "base"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}, "none", 100000),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": 5.0}}, "none", 5.0),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "linear", 100000),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4}}, "yarn", 100000),
    ],
)
def test_rotation_may_stand_in_two_places(changes, kind, base):
    metadata, _ = read_hub_config(config(**changes))
    assert metadata["llama.rope.scaling.type"] == kind
    assert metadata["llama.rope.freq_base"] == base


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"{", "not sound"),
        (b"[]", "not sound"),
        (b"[" * 100_000, "not sound"),
        (config(model_type="mamba"), "model type 'mamba'"),
        (config(hidden_act="gelu"), "'gelu'"),
        (config(hidden_size=[576]), r"embedding_length is \[576\]"),
        (config(rms_norm_eps="small"), "not sound"),
    ],
)
def test_a_configuration_that_cannot_be_is_a_sentence(text, sentence):
    with pytest.raises(SafetensorsError, match=sentence):
        read_hub_config(text)


def test_what_is_missing_beside_the_file_is_told(tmp_path, maker):
    path = maker.write_safetensors(tmp_path)
    (tmp_path / "config.json").write_bytes(b" " * (1 << 20) + b"{}")
    with pytest.raises(SafetensorsError, match="too long"):
        open_weights(path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(SafetensorsError, match=r"needs .*config\.json"):
        open_weights(path)


SMALL = safetensors_bytes(
    {"a": ("F32", (2, 3), bytes(24)), "b": ("BF16", (4,), bytes(8)), "c": ("I64", (1,), bytes(8))}
)


def header(**changes) -> bytes:
    entry = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], **changes}
    text = json.dumps({"a": entry, "b": {**entry, "data_offsets": [24, 48]}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(48)


def test_places_are_read():
    infos = parse_safetensors(SMALL, file_size=len(SMALL), part=3)
    start = len(SMALL) - 40
    assert [(i.name, i.type.name, i.shape, i.offset - start, i.size_bytes) for i in infos] == [
        ("a", "F32", (2, 3), 0, 24),
        ("b", "BF16", (4,), 24, 8),
        ("c", "I64", (1,), 32, 8),
    ]
    assert {info.part for info in infos} == {3}


BROKEN = {
    "nothing": (b"", "inside its header"),
    "ends in the header": (SMALL[:60], "inside its header"),
    "a header as long as memory": (b"\xff" * 8 + SMALL[8:], "too long"),
    "no JSON": (SMALL[:8] + b"x" + SMALL[9:], "not sound JSON"),
    "a list": ((2).to_bytes(8, "little") + b"[]", "not sound JSON"),
    "an unknown type": (header(dtype="F8_E4M3"), "'F8_E4M3', which is not known"),
    "a shape of another size": (header(shape=[2, 4]), "another length than its shape"),
    "an absurd shape": (header(shape=[1 << 40, 1 << 40]), "absurd shape"),
    "a negative dimension": (header(shape=[-2, -3]), "absurd shape"),
    "too many dimensions": (header(shape=[1] * 9), "absurd shape"),
    "dimensions past any integer": (header(shape=[10**30]), "absurd shape"),
    "an offset before the data": (header(data_offsets=[-24, 0]), "cut short"),
    "past the end": (header(data_offsets=[1 << 50, (1 << 50) + 24]), "cut short"),
    "an offset too few": (header(data_offsets=[0]), "not sound"),
    "inside another": (header(data_offsets=[12, 36]), "begins inside another"),
    "ends in the data": (SMALL[:-4], "cut short"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_a_sentence(fault):
    data, sentence = BROKEN[fault]
    with pytest.raises(SafetensorsError, match=sentence):
        parse_safetensors(data, file_size=len(data))


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(data):
    with contextlib.suppress(SafetensorsError):
        parse_safetensors(data, file_size=len(data))


@given(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_any_damage_is_read_or_refused(at, patch):
    data = SMALL[:at] + patch + SMALL[at + len(patch) :]
    with contextlib.suppress(SafetensorsError):
        for info in parse_safetensors(data, file_size=len(data)):
            assert info.offset >= 0
            assert info.offset + info.size_bytes <= len(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "X"]) | json_values,
        "shape": st.lists(st.integers(-1, 5), max_size=4) | json_values,
        "data_offsets": st.lists(st.integers(-8, 99), min_size=2, max_size=2) | json_values,
    },
)


@given(st.dictionaries(st.text(max_size=6), entries | json_values, max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_json_is_read_or_refused(tensors):
    text = json.dumps(tensors).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(64)
    with contextlib.suppress(SafetensorsError):
        for info in parse_safetensors(data, file_size=len(data)):
            assert 8 + len(text) <= info.offset <= len(data)


@given(st.dictionaries(st.sampled_from(sorted(CONFIG)), json_values))
@settings(max_examples=300, deadline=None)
def test_any_configuration_is_read_or_refused(changes):
    with contextlib.suppress(SafetensorsError):
        metadata, _ = read_hub_config(config(**changes))
        assert all(isinstance(value, int | float | str) for value in metadata.values())
