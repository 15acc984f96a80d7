"""The catalogue, contexts and the sizes that a deal counts."""

import re

import pytest

from poolhouse_node.weights.catalogue import CATALOGUE, find_model
from poolhouse_node.weights.errors import ModelFileError, UnknownModel
from poolhouse_node.weights.facts import read_facts
from poolhouse_node.weights.gguf import open_gguf
from tests.support.gguf_writer import GgufWriter, TinyLlama
from tests.support.model import needs_model, smollm2_path
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES


@pytest.mark.parametrize("model", CATALOGUE.values(), ids=CATALOGUE)
def test_rows_are_complete(model):
    assert CATALOGUE[model.key] is model
    assert re.fullmatch(r"[^·]+ · (Q4|Q8|bf16)", model.label)
    for file in model.files:
        assert file.url.startswith("https://huggingface.co/")
        assert "/resolve/main/" in file.url
        if model.kind != "safetensors":
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert file.size_bytes > 1 << 20


def test_urls_are_spelled_exactly():
    assert find_model("qwen3-1.7b").url == (
        "https://huggingface.co/Qwen/Qwen3-1.7B-GGUF/resolve/main/Qwen3-1.7B-Q8_0.gguf"
    )
    assert find_model("qwen3.5-122b-moe").url.endswith(
        "A10B-GGUF/resolve/main/Qwen_Qwen3.5-122B-A10B-Q4_0/"
        "Qwen_Qwen3.5-122B-A10B-Q4_0-00001-of-00002.gguf"
    )
    assert find_model("qwen3.5-122b-moe").size_bytes == 39_917_224_704 + 32_600_258_112
    assert find_model("smollm-135m").size_bytes is None


def test_the_picker_offers_the_published_three_and_ours():
    shown = [key for key, model in CATALOGUE.items() if model.in_picker]
    assert shown == ["smollm2-135m", "qwen3-1.7b", "qwen3.8-27b", "qwen3.6-35b-moe"]


@pytest.mark.parametrize(
    ("name", "close"),
    [("smollm2-135", "smollm2-135m"), ("Qwen3.8-27B", "qwen3.8-27b"), ("zzz", "")],
)
def test_an_unknown_model_names_close_ones(name, close):
    with pytest.raises(UnknownModel, match=f"{re.escape(name)}.*{close}") as caught:
        find_model(name)
    assert (close in caught.value.close) == bool(close)


@pytest.mark.parametrize(
    ("key", "asked", "context"),
    [
        ("qwen3.8-27b", None, 16384),
        ("qwen3.8-27b", 1, 2048),
        ("qwen3.8-27b", 20_000, 19_968),
        ("qwen3.8-27b", 20_096, 20_224),  # half a block rounds up
        ("qwen3.8-27b", 10**9, 65536),
        ("qwen3-4b", 8192, 2048),  # no row of its own: asking changes nothing
        ("smollm2-135m", None, 2048),
        ("smollm2-135m", 4096, 4096),
    ],
)
def test_asked_contexts(key, asked, context):
    """Dealing, section 1, "Context"."""
    assert find_model(key).context.asked(asked) == context


def test_host_bytes_of_the_picker():
    """Tied tables count twice; a draft block brings itself and one more table."""
    tied, drafting = find_model("qwen3-1.7b").sizes, find_model("qwen3.8-27b").sizes
    assert tied.host_bytes == 2 * 330_612_736
    assert drafting.host_bytes == 2 * 715_161_600 + 1_042_944_000 + 265_197_568
    assert drafting.layer_bytes(16384) == 223_970_464 + 16384 * 1024


@pytest.mark.parametrize("tied", [True, False])
def test_facts_of_a_tiny_model(tmp_path, tied):
    tiny = TinyLlama(tied=tied)
    with open_gguf(tiny.write(tmp_path / "tiny.gguf")) as file:
        facts = read_facts(file)
    layer = sum(w.nbytes for name, w in tiny.weights.items() if name.startswith("blk.0."))
    table = tiny.weights["token_embd.weight"].nbytes
    assert (facts.layers, facts.width, facts.vocabulary_size) == (4, 64, 96)
    assert (facts.architecture, facts.trained_context, facts.name) == ("llama", 512, "tiny")
    assert facts.layer_bytes(100) == layer + 100 * 2 * 32 * 4
    assert facts.host_bytes == 2 * table
    assert facts.sizes.output == (0 if tied else table)


@pytest.mark.parametrize("name", ["qwen35", "qwen35moe"])
def test_facts_of_a_hybrid_model(tmp_path, name):
    """Dealing, section 1: the mean of one round of layers; the draft block is none of them."""
    maker = ModelMaker(SMALL_SHAPES[name])
    path = maker.write_gguf(tmp_path / "hybrid.gguf")
    with open_gguf(path) as file:
        facts = read_facts(file)

    def layer_bytes(layer):
        return sum(len(maker.raw(f"blk.{layer}.{n}")) for n in maker.shape.layer_tensors(layer))

    table = len(maker.raw("token_embd.weight"))
    assert (facts.layers, facts.width) == (8, 64)
    assert facts.sizes.layer == sum(layer_bytes(layer) for layer in range(4)) // 4
    assert facts.sizes.kv_position == 2 * 2 * 32 * 4 // 4
    assert facts.sizes.draft_block == layer_bytes(8)
    assert facts.host_bytes == 3 * table + layer_bytes(8)


def test_a_file_without_layers_is_no_language_model(tmp_path):
    writer = GgufWriter({"general.architecture": "clip", "clip.block_count": 0})
    with (
        open_gguf(writer.write(tmp_path / "x.gguf")) as file,
        pytest.raises(ModelFileError, match="no language model"),
    ):
        read_facts(file)


@needs_model
def test_facts_of_smollm2():
    with open_gguf(smollm2_path()) as file:
        facts = read_facts(file)
    row = find_model("smollm2-135m")
    assert (facts.layers, facts.width, facts.vocabulary_size) == (
        row.layers,
        row.width,
        row.vocabulary_size,
    )
    assert facts.sizes.layer == 2_211_840 + 4_608
    assert facts.layer_bytes(2048) == 2_216_448 + 2048 * 1536
    assert facts.host_bytes == 2 * 30_081_024
