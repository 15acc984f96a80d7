"""Model files that cannot be computed: each gets a sentence, and no memory by what it claims."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poolhouse_node.engine import load_shard
from poolhouse_node.engine.memory import free_here
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import GgmlType
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES

HYBRIDS = ("qwen35", "qwen35moe")


def load(path, **more):
    settings = {"layers": (0, 8), "context_size": 64, "host": True, "device": "cpu", **more}
    return load_shard(path, settings.pop("layers"), **settings)


def load_with(tmp_path, name, change):
    writer = ModelMaker(SMALL_SHAPES[name]).writer()
    change(writer)
    return load(writer.write(tmp_path / "model.gguf"))


def without(tensor):
    return lambda writer: writer.tensors.pop(tensor)


def saying(key, value):
    """Change one key of the header; ``{}`` is the architecture."""

    def change(writer):
        writer.metadata[key.format(writer.metadata["general.architecture"])] = value

    return change


def reshaped(tensor, shape):
    def change(writer):
        writer.add(tensor, np.zeros(shape))

    return change


def of_type(tensor, kind):
    def change(writer):
        _, shape, _ = writer.tensors[tensor]
        writer.tensors[tensor] = (kind, shape, bytes(8 * int(np.prod(shape))))

    return change


EVERY = {
    "a missing norm": (without("blk.1.attn_norm.weight"), "lacks the tensor blk.1.attn_norm"),
    "a missing matrix": (without("blk.3.attn_k.weight"), "lacks the tensor blk.3.attn_k"),
    "no final norm": (without("output_norm.weight"), "lacks the tensor output_norm"),
    "another architecture": (saying("general.architecture", "mamba"), "'mamba', only llama, qwen3"),
    "a tensor more": (
        reshaped("blk.3.attn_q.bias", (64,)),
        "does not know the tensor blk.3.attn_q.bias",
    ),
    "rotation factors": (reshaped("rope_freqs.weight", (8,)), "stretch positions"),
    "stretched positions": (saying("{}.rope.scaling.type", "yarn"), "stretch positions .yarn"),
    "another width": (saying("{}.embedding_length", 32), "fits the rest of the file|fit each"),
    "another shape": (reshaped("blk.3.attn_v.weight", (96, 64)), r"shape \[96, 64\]; \[.*\] fits"),
    "a type without arithmetic": (of_type("blk.3.attn_output.weight", GgmlType.F64), "read F64"),
    "a type nobody knows": (of_type("blk.3.attn_output.weight", 77), "type 77"),
    "no heads": (saying("{}.attention.head_count", 0), "head_count|fit each other"),
    "heads that do not share": (saying("{}.attention.head_count_kv", 5), "fit each other"),
    "no epsilon": (
        lambda w: w.metadata.pop(f"{w.metadata['general.architecture']}.block_count"),
        "lacks the metadata",
    ),
    "fewer layers": (saying("{}.block_count", 5), "not in a model of [45] layers"),
}
HYBRID = {
    "no convolution": (without("blk.0.ssm_conv1d.weight"), "lacks the tensor blk.0.ssm_conv1d"),
    "no decay": (without("blk.2.ssm_a"), "lacks the tensor blk.2.ssm_a"),
    "too few taps": (saying("{}.ssm.conv_kernel", 1), "do not fit each other"),
    "more taps": (saying("{}.ssm.conv_kernel", 5), r"\[160, 4\]; \[160, 5\] fits"),
    "value heads that do not share": (saying("{}.ssm.time_step_rank", 5), "do not fit each other"),
    "another inner size": (saying("{}.ssm.inner_size", 7), "do not fit each other"),
    "another order of layers": (saying("{}.full_attention_interval", 3), "know the tensor blk.2"),
    "only a draft block": (saying("{}.nextn_predict_layers", 9), "do not fit each other"),
    "an odd rotation": (saying("{}.rope.dimension_count", 7), "do not fit each other"),
    "more rotation than head": (saying("{}.rope.dimension_count", 34), "do not fit each other"),
    "values of another size": (saying("{}.attention.value_length", 16), "do not fit each other"),
}
EXPERTS = {
    "more used than there are": (saying("{}.expert_used_count", 9), "do not fit each other"),
    "no experts used": (saying("{}.expert_used_count", 0), "says 0 for expert_used_count"),
    "a flag that is none": (saying("{}.expert_weights_norm", 2), "neither yes nor no"),
    "experts of another number": (saying("{}.expert_count", 4), r"\[8, .*\] *; *\[4, .*fits"),
    "no router": (without("blk.0.ffn_gate_inp.weight"), "lacks the tensor blk.0.ffn_gate_inp"),
    "a shared expert that is not said": (
        saying("{}.expert_shared_feed_forward_length", 0),
        "does not know the tensor blk.0.ffn_gate_inp_shexp.weight",
    ),
}
CASES = [
    *[(name, case, EVERY) for name in SMALL_SHAPES for case in EVERY],
    *[(name, case, HYBRID) for name in HYBRIDS for case in HYBRID],
    *[("qwen35moe", case, EXPERTS) for case in EXPERTS],
]


@pytest.mark.parametrize(
    ("name", "case", "table"), [pytest.param(*c, id=f"{c[0]}: {c[1]}") for c in CASES]
)
def test_each_fault_is_a_sentence(tmp_path, name, case, table):
    change, sentence = table[case]
    with pytest.raises(ShardError, match=sentence) as told:
        load_with(tmp_path, name, change)
    assert str(told.value).endswith(".")


@pytest.mark.parametrize("name", SMALL_SHAPES)
@pytest.mark.parametrize("share", [0.001, 0.1, 0.6, 0.999])
def test_a_file_cut_short_is_a_sentence(tmp_path, name, share):
    data = ModelMaker(SMALL_SHAPES[name]).writer().build()
    path = tmp_path / "model.gguf"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ShardError, match="cut short"):
        load(path)


@pytest.mark.parametrize("name", SMALL_SHAPES)
def test_a_tensor_off_the_alignment_is_a_sentence(tmp_path, name):
    writer = ModelMaker(SMALL_SHAPES[name]).writer()
    writer.metadata["general.alignment"] = 64  # the tensors lie at multiples of 32
    writer.add("odd", np.zeros(8))
    writer.add("last", np.zeros(8))
    with pytest.raises(ShardError, match="not aligned to 64"):
        load(writer.write(tmp_path / "model.gguf"))


@pytest.mark.parametrize("layers", [(0, 9), (-1, 3), (4, 4), (8, 9)])
@pytest.mark.parametrize("name", HYBRIDS)
def test_layers_outside_the_model_are_a_sentence(tmp_path, name, layers):
    """The draft block is in the file as layer 8, but no layer of a room."""
    path = ModelMaker(SMALL_SHAPES[name]).write_gguf(tmp_path / "model.gguf")
    with pytest.raises(ShardError, match="not in a model of 8 layers"):
        load(path, layers=layers)


HUGE = ("attention.key_length", "attention.head_count_kv", "rope.dimension_count")
ABSURD = [
    *[(name, key) for name in SMALL_SHAPES for key in HUGE],
    *[(name, "ssm.state_size") for name in HYBRIDS],
]


@pytest.mark.parametrize(("name", "key"), ABSURD)
def test_absurd_sizes_take_no_memory(tmp_path, name, key):
    free = free_here()
    change = saying(f"{{}}.{key}", 1 << 30)
    with pytest.raises(ShardError):
        load_with(tmp_path, name, change)
    assert free is None or free_here() > free - (1 << 32)


def keys_of(name):
    shape = SMALL_SHAPES[name]
    return [key for key in shape.metadata() if key.startswith(name)]


FUZZED = [(name, key) for name in SMALL_SHAPES for key in keys_of(name)]
numbers = st.integers(0, (1 << 32) - 1) | st.integers(0, 70) | st.floats(width=32)


@given(st.sampled_from(FUZZED), numbers | st.booleans() | st.text(max_size=4))
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_size_in_the_header_is_computed_or_refused(tmp_path, place, value):
    name, key = place
    writer = ModelMaker(SMALL_SHAPES[name].but(layers=4, draft_blocks=0)).writer()
    writer.metadata[key] = value
    path = writer.write(tmp_path / "model.gguf")
    try:
        shard = load(path, layers=(0, 4))
    except ShardError:
        return
    shard.run(shard.embed([1, 2, 3]), 0)
    shard.close()
