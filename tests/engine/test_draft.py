"""The draft block against its definition, computed anew for every token, in float64."""

import numpy as np
import pytest
import torch

from poolhouse_node.engine.draft import DraftBlock, Drafter, draft_tensor_names
from poolhouse_node.engine.head import Head
from poolhouse_node.engine.models import find_architecture
from poolhouse_node.engine.paged.pool import StatePool
from poolhouse_node.engine.paged.sequence import RoomState
from poolhouse_node.engine.tensors import LoadWatch, TensorLoader
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.gguf import open_gguf
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES

TOKENS = np.random.default_rng(5).integers(0, 96, 24).tolist()
# Float32 against float64, hidden states of about 1.
TOLERANCE = 1e-4


def rms(x, weight, epsilon):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Definition:
    """Section 6 of the engine page, without any state: all rows are computed for every call."""

    def __init__(self, shape):
        maker = ModelMaker(shape)
        self.shape = shape
        prefix = f"blk.{shape.layers}."
        names = [*shape.layer_tensors(shape.layers)]
        self.w = {name: maker.values(prefix + name).astype(np.float64) for name in names}
        self.table = maker.values("token_embd.weight").astype(np.float64)
        self.output = maker.values("output.weight").astype(np.float64)

    def norm(self, x, name):
        return rms(x, self.w[f"{name}.weight"], self.shape.epsilon)

    def last(self, tokens, hidden):
        """After the block, for the last of ``tokens`` at positions 1, 2, ..."""
        s, w = self.shape, self.w
        parts = [self.norm(self.table[tokens], "nextn.enorm"), self.norm(hidden, "nextn.hnorm")]
        x = np.concatenate(parts, 1) @ w["nextn.eh_proj.weight"].T
        h = self.norm(x, "attn_norm")
        query = (h[-1] @ w["attn_q.weight"].T).reshape(s.heads, 2, s.head_size)
        keys = (h @ w["attn_k.weight"].T).reshape(-1, s.kv_heads, s.head_size)
        values = (h @ w["attn_v.weight"].T).reshape(-1, s.kv_heads, s.head_size)
        places = np.arange(1, len(tokens) + 1)
        queries = self.rotated(self.norm(query[:, 0], "attn_q_norm"), places[-1:])
        keys = self.rotated(self.norm(keys, "attn_k_norm"), places[:, None])
        mixed = []
        for head in range(s.heads):
            shared = head // (s.heads // s.kv_heads)
            scores = np.exp(keys[:, shared] @ queries[head] / np.sqrt(s.head_size))
            mixed.append(scores / scores.sum() @ values[:, shared] * sigmoid(query[head, 1]))
        x = x[-1] + w["attn_output.weight"] @ np.concatenate(mixed)
        h = self.norm(x, "post_attention_norm")
        return x + (self.experts(h) if s.experts else self.network(h))

    def rotated(self, heads, places):
        half = self.shape.rotated // 2
        frequencies = self.shape.rope_base ** (-np.arange(half) / half)
        angles = places[..., None] * frequencies
        a, b = heads[..., :half], heads[..., half : 2 * half]
        turned = [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)]
        return np.concatenate([*turned, heads[..., 2 * half :]], -1)

    def network(self, h, end="", pick=...):
        gate, up, down = (self.w[f"ffn_{n}{end}.weight"][pick] for n in ("gate", "up", "down"))
        return down @ (silu(gate @ h) * (up @ h))

    def experts(self, h):
        shares = np.exp(self.w["ffn_gate_inp.weight"] @ h)
        best = np.argsort(-shares)[: self.shape.experts_used]
        mixed = sum(shares[e] * self.network(h, "_exps", e) for e in best) / shares[best].sum()
        return mixed + sigmoid(self.w["ffn_gate_inp_shexp.weight"] @ h) * self.network(h, "_shexp")

    def best(self, hidden):
        return int((self.output @ self.norm(hidden, "nextn.shared_head_norm")).argmax())


@pytest.fixture(scope="module", params=["qwen35", "qwen35moe"])
def model(request, tmp_path_factory):
    """The definition, and the same from the file: block and head."""
    shape = SMALL_SHAPES[request.param]
    path = ModelMaker(shape).write_gguf(tmp_path_factory.mktemp("draft") / "model.gguf")
    with open_gguf(path) as file:
        config = find_architecture(file).read_config(file)
        names = draft_tensor_names(file, config) + Head.tensor_names(file)
        watch = LoadWatch(lambda _: None, lambda: False)
        loader = TensorLoader(file, names, torch.device("cpu"), watch)
        head = Head.load(file, config.width, config.epsilon, loader)
        block = DraftBlock.load(config, loader, 512)
    return Definition(shape), block, head


@pytest.fixture
def drafter(model):
    _, block, head = model
    shape = block.state_shape(512)
    return Drafter(block, head, RoomState(StatePool(shape, torch.device("cpu")), shape, 1))


def hiddens(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 64)).astype(np.float32)


def distance(tensor, expected):
    return np.abs(tensor.numpy()[0] - expected).max()


def test_a_chain_of_drafts_follows_the_definition(model, drafter):
    definition = model[0]
    seen, hidden = TOKENS[:10], hiddens(10)
    drafter.fill(seen[:-1], torch.from_numpy(hidden[:-1]), 1)
    draft = drafter.draft(seen[-1], torch.from_numpy(hidden[-1:]), 10)
    for position in range(11, 15):
        expected = definition.last(seen, hidden)
        assert distance(draft.hidden, expected) < TOLERANCE
        assert draft.token == definition.best(expected)
        # The next guess stands on this one: its token, and its hidden state.
        seen, hidden = [*seen, draft.token], np.concatenate([hidden, expected[None]])
        draft = drafter.draft(draft.token, draft.hidden, position)


def test_rows_of_drafts_are_overwritten_by_exact_ones(model, drafter):
    definition, hidden = model[0], hiddens(12, seed=1)
    exact = torch.from_numpy(hidden)
    drafter.fill(TOKENS[:8], exact[:8], 1)
    draft = drafter.draft(TOKENS[8], exact[8:9], 9)
    drafter.draft(draft.token, draft.hidden, 10)
    drafter.fill(TOKENS[8:11], exact[8:11], 9)
    last = drafter.draft(TOKENS[11], exact[11:12], 12)
    assert distance(last.hidden, definition.last(TOKENS[:12], hidden)) < TOLERANCE


def test_filling_in_any_split_is_filling_at_once(model, drafter):
    definition = model[0]
    tokens = [token % 96 for token in range(300)]
    hidden = hiddens(300, seed=2)
    exact = torch.from_numpy(hidden)
    drafter.fill(tokens[:299], exact[:299], 1)
    at_once = drafter.draft(tokens[299], exact[299:], 300).hidden
    drafter.state.reset()
    for start in (0, 1, 40, 100):
        end = {0: 1, 1: 40, 40: 100, 100: 299}[start]
        drafter.fill(tokens[start:end], exact[start:end], start + 1)
    in_parts = drafter.draft(tokens[299], exact[299:], 300).hidden
    assert (at_once - in_parts).abs().max() < TOLERANCE
    assert distance(at_once, definition.last(tokens, hidden)) < TOLERANCE


def test_a_saved_state_goes_on(model, drafter):
    exact = torch.from_numpy(hiddens(12, seed=3))
    drafter.fill(TOKENS[:9], exact[:9], 1)
    drafter.state.save(1)
    expected = drafter.draft(TOKENS[9], exact[9:10], 10).hidden
    drafter.state.reset()
    drafter.fill(TOKENS[10:14], exact[:4], 1)
    drafter.state.load(1)
    assert torch.equal(drafter.draft(TOKENS[9], exact[9:10], 10).hidden, expected)


def test_what_cannot_be_drafted_is_a_sentence(drafter):
    hidden = torch.from_numpy(hiddens(2))
    with pytest.raises(ShardError, match="before the second position"):
        drafter.draft(1, hidden[:1], 0)
    with pytest.raises(ShardError, match="leaves a gap"):
        drafter.draft(1, hidden[:1], 2)
    with pytest.raises(ShardError, match="3 tokens need as many hidden states"):
        drafter.fill([1, 2, 3], hidden, 1)
    with pytest.raises(ShardError, match="outside the vocabulary"):
        drafter.draft(96, hidden[:1], 1)


def test_it_holds_its_tensors(model):
    definition, block, _ = model
    rope = 2 * 512 * definition.shape.rotated * 4
    assert block.held_bytes == rope + sum(w.size * 4 for w in definition.w.values())


@pytest.mark.parametrize("change", ["no block in the header", "no projection"])
def test_a_file_without_a_draft_block_has_none(tmp_path, change):
    shape = SMALL_SHAPES["qwen35"]
    writer = ModelMaker(shape.but(draft_blocks=0) if "header" in change else shape).writer()
    writer.tensors.pop(f"blk.{shape.layers}.nextn.eh_proj.weight", None)
    with open_gguf(writer.write(tmp_path / "model.gguf")) as file:
        config = find_architecture(file).read_config(file)
        assert draft_tensor_names(file, config) == []
        assert config.layers == shape.layers
