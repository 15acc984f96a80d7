"""Random llama models against a slow, clear forward in float64; state; refusals."""

import numpy as np
import pytest
import torch

from poolhouse_node.engine import LoadCancelled, load_shard
from poolhouse_node.engine.torch_shard import TorchShard
from poolhouse_node.shard import Shard, ShardError
from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.gguf import GgufFile
from tests.support.gguf_writer import TinyLlama

IDS = [5, 17, 3, 88, 88, 0, 41, 95, 2, 60, 11, 7]
# Float32 over a few layers of width 64 keeps six digits; logits are about 3.
TOLERANCE = 2e-5


def rms(x, weight, epsilon):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * weight


def rotated_pairs(head, position, base):
    """Rotate adjacent pairs: the file's own row order needs no rearranging here."""
    out = head.copy()
    for pair in range(len(head) // 2):
        angle = position * base ** (-2 * pair / len(head))
        a, b = head[2 * pair], head[2 * pair + 1]
        out[2 * pair] = a * np.cos(angle) - b * np.sin(angle)
        out[2 * pair + 1] = b * np.cos(angle) + a * np.sin(angle)
    return out


def reference_logits(tiny: TinyLlama, ids):
    """The whole model in float64, one position and one head at a time. [n, vocabulary]"""
    w = {name: values.astype(np.float64) for name, values in tiny.weights.items()}
    size, group = tiny.width // tiny.heads, tiny.heads // tiny.kv_heads
    x = w["token_embd.weight"][ids]
    for layer in range(tiny.layers):
        part = {
            name.split(".")[2]: values
            for name, values in w.items()
            if name.startswith(f"blk.{layer}.")
        }
        h = rms(x, part["attn_norm"], tiny.epsilon)
        q = (h @ part["attn_q"].T).reshape(len(ids), tiny.heads, size)
        k = (h @ part["attn_k"].T).reshape(len(ids), tiny.kv_heads, size)
        v = (h @ part["attn_v"].T).reshape(len(ids), tiny.kv_heads, size)
        mixed = np.zeros_like(q)
        for head in range(tiny.heads):
            shared = head // group
            keys = [rotated_pairs(k[p, shared], p, tiny.rope_base) for p in range(len(ids))]
            for p in range(len(ids)):
                query = rotated_pairs(q[p, head], p, tiny.rope_base)
                scores = np.array([query @ keys[t] for t in range(p + 1)]) / np.sqrt(size)
                weights = np.exp(scores - scores.max())
                mixed[p, head] = weights / weights.sum() @ v[: p + 1, shared]
        x = x + mixed.reshape(len(ids), -1) @ part["attn_output"].T
        h = rms(x, part["ffn_norm"], tiny.epsilon)
        gate = h @ part["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ part["ffn_up"].T)) @ part["ffn_down"].T
    head = w["token_embd.weight"] if tiny.tied else w["output.weight"]
    return rms(x, w["output_norm.weight"], tiny.epsilon) @ head.T


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    model = TinyLlama(layers=3, seed=1)
    path = model.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return model, path


def whole(path, context_size=64, **more) -> TorchShard:
    layers = more.pop("layers", (0, 3))
    return load_shard(path, layers, context_size=context_size, host=True, device="cpu", **more)


@pytest.fixture
def shard(tiny):
    loaded = whole(tiny[1])
    yield loaded
    loaded.close()


def feed(shard, ids, *, at=0, step=None):
    """Run ids in frames of ``step`` columns; all logits, [n, vocabulary]."""
    step = step or len(ids)
    hidden = [
        shard.run(shard.embed(ids[start : start + step]), at + start)
        for start in range(0, len(ids), step)
    ]
    return shard.logits(torch.cat(hidden)).numpy()


MODELS = {
    "grouped heads": {},
    "one head each": {"kv_heads": 4},
    "one shared head": {"kv_heads": 1, "heads": 8},
    "a head of its own": {"tied": False},
    "eight layers": {"layers": 8},
    "another base": {"rope_base": 1e6, "epsilon": 1e-3},
    "Q4_0": {"kind": GgmlType.Q4_0},
    "Q4_1": {"kind": GgmlType.Q4_1},
    "Q8_0": {"kind": GgmlType.Q8_0},
    "F16": {"kind": GgmlType.F16},
    "BF16": {"kind": GgmlType.BF16},
}


@pytest.mark.parametrize("shape", MODELS.values(), ids=MODELS)
def test_logits_equal_the_reference(tmp_path, shape):
    tiny = TinyLlama(seed=3, **shape)
    path = tiny.write(tmp_path / "tiny.gguf")
    expected = reference_logits(tiny, IDS)
    shard = whole(path, layers=(0, tiny.layers))
    for step in (len(IDS), 5, 1):
        shard.reset()
        assert np.abs(feed(shard, IDS, step=step) - expected).max() < TOLERANCE
    assert np.abs(expected).max() > 0.5


def test_shards_of_layers_in_a_row_are_the_whole_model(tiny):
    model, path = tiny
    first = load_shard(path, (0, 1), context_size=64, host=True, device="cpu")
    rest = [
        load_shard(path, layers, context_size=64, host=False, device="cpu")
        for layers in ((1, 2), (2, 3))
    ]
    hidden = first.run(first.embed(IDS), 0)
    for worker in rest:
        hidden = worker.run(hidden, 0)
    assert np.abs(first.logits(hidden).numpy() - reference_logits(model, IDS)).max() < TOLERANCE
    assert [(each.lo, each.hi, each.has_embedding) for each in (first, *rest)] == [
        (0, 1, True),
        (1, 2, False),
        (2, 3, False),
    ]
    for call in (lambda: rest[0].embed([1]), lambda: rest[0].head(hidden, 1)):
        with pytest.raises(ShardError, match="no embedding"):
            call()


def test_a_worker_reads_only_its_layers(tiny, monkeypatch):
    """Bytes of other layers are never touched: they need not even be there."""
    read = []
    original = GgufFile.tensor_data
    monkeypatch.setattr(
        GgufFile, "tensor_data", lambda file, name: read.append(name) or original(file, name)
    )
    load_shard(tiny[1], (1, 2), context_size=64, host=False, device="cpu")
    assert len(read) == len(set(read)) == 9
    assert all(name.startswith("blk.1.") for name in read)


def test_it_is_a_shard(shard):
    as_protocol: Shard = shard
    assert (as_protocol.lo, as_protocol.hi, as_protocol.width) == (0, 3, 64)
    assert (as_protocol.context_size, as_protocol.has_embedding) == (64, True)


def test_head_gives_the_best_of_each_column(shard, tiny):
    expected = reference_logits(tiny[0], IDS)
    top = shard.head(shard.run(shard.embed(IDS), 0), 3)
    assert top.finite
    assert (top.ids == np.argsort(-expected, axis=1)[:, :3]).all()
    assert top.values == pytest.approx(-np.sort(-expected, axis=1)[:, :3], abs=TOLERANCE)


def test_pack_and_unpack(shard):
    hidden = shard.run(shard.embed(IDS), 0)
    packed = shard.pack(hidden)
    assert len(packed.data) == 2 * len(IDS) * 64
    assert packed.sendable
    assert packed.amax == float(hidden.abs().max())
    back = shard.unpack(packed.data, len(IDS))
    assert torch.equal(back, back.half().float())
    assert (back - hidden).abs().max() <= packed.amax * 2**-11
    assert not shard.pack(hidden * 1e6).sendable
    assert not shard.pack(hidden * float("nan")).sendable


@pytest.mark.parametrize("columns", [-1, 0, 1, 3])
def test_unpack_checks_the_length(shard, columns):
    with pytest.raises(ShardError, match="256 bytes are not"):
        shard.unpack(bytes(256), columns)


def test_the_state_grows_and_grows_not_past_the_context(tiny):
    """Columns past the first buffer give what a big buffer gives."""
    ids = [number % 96 for number in range(700)]
    shard = whole(tiny[1], context_size=700)
    before = shard.held_bytes
    logits = feed(shard, ids, step=90)
    assert shard.held_bytes > before
    again = whole(tiny[1], context_size=700)
    assert np.abs(feed(again, ids) - logits).max() < TOLERANCE
    with pytest.raises(ShardError, match="past the context of 700"):
        shard.run(shard.embed([1]), 700)
    assert shard.position == 700


def test_overwriting_and_reset(shard):
    expected = feed(shard, IDS)
    feed(shard, [9, 9, 9, 9], at=4)
    assert np.abs(feed(shard, IDS[4:], at=4) - expected[4:]).max() < TOLERANCE
    shard.reset()
    with pytest.raises(ShardError, match="leaves a gap"):
        shard.run(shard.embed([1]), 1)
    assert np.abs(feed(shard, IDS) - expected).max() < TOLERANCE


def test_rollback_goes_on_after_the_kept_column(shard):
    expected = feed(shard, IDS)
    shard.reset()
    feed(shard, IDS[:4])
    shard.run(shard.embed([*IDS[4:6], 90, 91]), 4, snapshots=True)
    shard.rollback(1)
    assert shard.position == 6
    assert np.abs(feed(shard, IDS[6:], at=6) - expected[6:]).max() < TOLERANCE
    with pytest.raises(ShardError, match="no snapshot after column 4"):
        shard.rollback(4)
    shard.reset()
    with pytest.raises(ShardError, match="no snapshot"):
        shard.rollback(0)


def test_a_saved_state_goes_on_as_if_never_left(shard):
    expected = feed(shard, IDS)
    feed(shard, IDS[:5], at=0)
    shard.save(7)
    feed(shard, [1, 2, 3, 4, 5, 6], at=0)
    shard.load(7)
    assert shard.position == 5
    assert (feed(shard, IDS[5:], at=5, step=1) == feed_fresh(shard, IDS, 5)).all()
    assert np.abs(feed_fresh(shard, IDS, 5) - expected[5:]).max() < TOLERANCE


def feed_fresh(shard, ids, cut):
    """Never saved: the first ``cut`` ids in one frame, then one by one."""
    shard.reset()
    feed(shard, ids[:cut])
    return feed(shard, ids[cut:], at=cut, step=1)


def test_slots_are_dropped(shard):
    feed(shard, IDS)
    before = shard.held_bytes
    for slot in (1, 2, 65534):
        shard.save(slot)
    assert shard.held_bytes == before
    shard.drop([2, 999])
    with pytest.raises(ShardError, match="no saved state 2"):
        shard.load(2)
    shard.load(1)
    shard.drop_all()
    with pytest.raises(ShardError, match="no saved state 1"):
        shard.load(1)


def test_a_saved_state_of_nothing_is_the_start(shard):
    shard.save(1)
    feed(shard, IDS)
    shard.load(1)
    assert shard.position == 0


@pytest.mark.parametrize("ids", [[96], [-1], [1 << 40]])
def test_ids_outside_the_vocabulary_are_refused(shard, ids):
    with pytest.raises(ShardError, match="outside the vocabulary of 96"):
        shard.embed(ids)


def test_hidden_states_of_another_width_are_an_error_of_ours(shard):
    with pytest.raises(ShardError, match="engine failed"):
        shard.run(torch.zeros(1, 65), 0)


def test_a_frame_without_columns_is_refused(shard):
    with pytest.raises(ShardError, match="without columns"):
        shard.run(torch.zeros(0, 64), 0)


def test_nothing_works_after_close(tiny):
    shard = whole(tiny[1])
    x = shard.embed([1])
    shard.close()
    for call in (lambda: shard.run(x, 0), lambda: shard.embed([1]), lambda: shard.save(1)):
        with pytest.raises(ShardError):
            call()
    assert shard.held_bytes == 0


def test_progress_rises_to_one_and_loading_can_be_stopped(tiny):
    seen = []
    whole(tiny[1], progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1)
    assert len(seen) == 3 * 9 + 2
    seen.clear()
    with pytest.raises(LoadCancelled, match="cancelled"):
        whole(tiny[1], progress=seen.append, cancelled=lambda: len(seen) == 4)
    assert len(seen) == 4


def broken(path, change):
    writer = TinyLlama().writer()
    change(writer)
    return writer.write(path)


def rename(writer, old, new):
    writer.tensors = {new if name == old else name: t for name, t in writer.tensors.items()}


REFUSALS = {
    "another architecture": (
        lambda w: w.metadata.update({"general.architecture": "mamba"}),
        "architecture 'mamba'",
    ),
    "no architecture": (lambda w: w.metadata.pop("general.architecture"), "general.architecture"),
    "no width": (lambda w: w.metadata.pop("llama.embedding_length"), "lacks the metadata"),
    "a missing tensor": (lambda w: w.tensors.pop("blk.2.attn_k.weight"), "lacks the tensor blk.2"),
    "no embedding": (lambda w: w.tensors.pop("token_embd.weight"), "lacks the tensor token_embd"),
    "shapes that do not fit": (
        lambda w: w.metadata.update({"llama.feed_forward_length": 128}),
        r"shape \[96, 64\]; \[128, 64\] fits",
    ),
    "heads that do not fit": (
        lambda w: w.metadata.update({"llama.attention.head_count_kv": 3}),
        "do not fit each other",
    ),
    "no heads": (
        lambda w: w.metadata.update({"llama.attention.head_count": 0}),
        "do not fit each other",
    ),
    "a tensor of a richer model": (
        lambda w: w.add("blk.1.attn_q.bias", np.zeros(64)),
        "does not know the tensor blk.1.attn_q.bias",
    ),
    "stretched positions": (
        lambda w: w.metadata.update({"llama.rope.scaling.type": "yarn"}),
        "cannot stretch positions",
    ),
    "rotation factors": (
        lambda w: w.add("rope_freqs.weight", np.ones(8)),
        "cannot stretch positions",
    ),
    "partly rotated heads": (
        lambda w: w.metadata.update({"llama.rope.dimension_count": 8}),
        "asks for a part",
    ),
    "an unknown block type": (
        lambda w: w.tensors.update(
            {"blk.0.attn_q.weight": (GgmlType.F64, (64, 64), bytes(8 * 64 * 64))}
        ),
        "cannot read F64",
    ),
}


@pytest.mark.parametrize(
    ("change", "sentence"), [pytest.param(*each, id=name) for name, each in REFUSALS.items()]
)
def test_files_it_cannot_compute_are_a_sentence(tmp_path, change, sentence):
    path = broken(tmp_path / "broken.gguf", change)
    with pytest.raises(ShardError, match=sentence):
        load_shard(path, (0, 4), context_size=64, host=True, device="cpu")


@pytest.mark.parametrize("layers", [(0, 4), (-1, 2), (2, 2), (3, 1)])
def test_layers_outside_the_model_are_refused(tiny, layers):
    with pytest.raises(ShardError, match="not in a model of 3 layers"):
        whole(tiny[1], layers=layers)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_a_device_that_is_not_there_is_a_sentence(tiny, device):
    with pytest.raises(ShardError, match=f"no compute device '{device}'"):
        load_shard(tiny[1], (0, 3), context_size=64, host=True, device=device)


def test_a_truncated_file_is_a_sentence(tiny, tmp_path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny[1].read_bytes()[:-5000])
    with pytest.raises(ShardError, match="cut short"):
        whole(path)
