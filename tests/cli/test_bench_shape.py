"""``bench decode --shape`` on the CPU: shapes small enough for a test, and what is refused."""

import json

import pytest
import torch

from poolhouse_node.cli.bench.shape import ShapeBench, bench_shape, parse_layers
from poolhouse_node.cli.bench.shape_memory import dense_weight_bytes, require_memory
from poolhouse_node.cli.bench.shape_model import config_of
from poolhouse_node.cli.bench.shape_shards import make_shard
from poolhouse_node.cli.bench.shapes import SHAPES, find_shape
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.weights.catalogue import CATALOGUE


def bench(shape="tiny", **changes):
    return ShapeBench(shape, device="cpu", prompt=20, tokens=3, repeats=1, **changes)


@pytest.mark.parametrize("shape", ["tiny", "tiny-moe"])
async def test_a_shape_is_measured(shape, capsys):
    assert await bench_shape(bench(shape), as_json=True) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["with_head"]
    assert figures["tokens_per_s"] * figures["token_ms"] == pytest.approx(1000)
    for name in ("prefill_tokens_per_s", "copy_bytes_per_s", "token_bytes", "state_bytes"):
        assert figures[name] > 0, name
    share = figures["token_bytes"] / figures["copy_bytes_per_s"] * figures["tokens_per_s"]
    assert figures["roofline_share"] == pytest.approx(share)


async def test_some_layers_are_measured_without_a_head(capsys):
    await bench_shape(bench(layers="1:4"), as_json=False)
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "tiny f32, layers 1 to 4, layers only, cpu"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"shape": "tinny"}, "no shape 'tinny'"),
        ({"layers": "4:2"}, "LO:HI"),
        ({"layers": "0:9"}, "tiny has 8 layers"),
        ({"quant": "q3"}, "not 'q3'"),
        ({"profile": True}, "needs a CUDA device"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_measured_is_said(changes, sentence):
    with pytest.raises(CommandFailed, match=sentence):
        await bench_shape(bench(**changes), as_json=True)


@pytest.mark.parametrize("key", ["tiny", "tiny-moe"])
@pytest.mark.parametrize("with_head", [True, False])
def test_memory_is_counted_before_it_is_taken(key, with_head):
    shape, cpu = find_shape(key), torch.device("cpu")
    layers = (0, shape.layers)
    shard = make_shard(shape, layers, cpu, quant="q4_0", seed=0, context=64, with_head=with_head)
    counted = dense_weight_bytes(shape, layers, with_head=with_head)
    assert counted == pytest.approx(shard.holding.weights_bytes, rel=0.02)


def test_a_shape_too_large_for_the_machine_is_refused_with_the_figure():
    """All of it is some 100 GiB in float32, which once ended the process, or another one."""
    shape, free = find_shape("qwen3.8-27b"), 16 << 30
    with pytest.raises(CommandFailed, match=r"need 9\d\.\d\d GB.*16\.00 GB are free.*--layers"):
        require_memory(
            shape,
            (0, 64),
            torch.device("cpu"),
            context=2048,
            with_head=True,
            available=lambda _: free,
        )


def test_layers_are_a_range():
    assert parse_layers("0:64") == (0, 64)


@pytest.mark.parametrize("key", [key for key in SHAPES if key in CATALOGUE])
def test_shapes_are_those_of_the_catalogue(key):
    shape, model = find_shape(key), CATALOGUE[key]
    assert (shape.layers, shape.width) == (model.layers, model.width)
    assert shape.vocabulary_size == model.vocabulary_size


def test_the_large_hybrid_has_the_state_of_its_page():
    state = config_of(find_shape("qwen3.8-27b")).state_shape((0, 64), 4096)
    assert (state.recurrent.layers, state.attention.layers) == (48, 16)
    memory = state.recurrent.heads * state.recurrent.key_size * state.recurrent.value_size * 4
    assert memory == 3 << 20  # engine, section 7
    assert torch.finfo(torch.float16).bits // 8 * 2 * state.attention.kv_heads * 256 == 4096
