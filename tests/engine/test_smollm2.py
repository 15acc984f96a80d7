"""The real model: the ids of ``smollm2_greedy.json``, whole and dealt, in any batching."""

import pytest

from poolhouse_node.engine import load_shard
from tests.support.model import needs_model, smollm2_path
from tests.support.vectors import vectors

PROMPTS = vectors("smollm2_greedy")["prompts"]
LAYERS = 30


class Chain:
    """Shards in a row; between them hidden states travel as half floats, also back."""

    def __init__(self, *splits: tuple[int, int]) -> None:
        self.host, *self.workers = (
            load_shard(smollm2_path(), layers, context_size=1100, host=index == 0, device="cpu")
            for index, layers in enumerate(splits)
        )

    def run(self, ids, position):
        hidden = self.host.run(self.host.embed(ids), position)
        for worker in self.workers:
            hidden = worker.run(self._sent(hidden, worker), position)
        return self._sent(hidden, self.host) if self.workers else hidden

    def _sent(self, hidden, to):
        packed = self.host.pack(hidden)
        assert packed.sendable
        return to.unpack(packed.data, len(hidden))

    def greedy(self, prompt, count, columns):
        for start in range(0, len(prompt), columns):
            hidden = self.run(prompt[start : start + columns], start)
        tokens = [self._best(hidden)]
        while len(tokens) < count:
            hidden = self.run(tokens[-1:], len(prompt) + len(tokens) - 1)
            tokens.append(self._best(hidden))
        return tokens

    def _best(self, hidden):
        return int(self.host.head(hidden[-1:], 1).ids[0, 0])

    def reset(self):
        for shard in (self.host, *self.workers):
            shard.reset()


@pytest.fixture(scope="module")
def one():
    return Chain((0, LAYERS))


@pytest.fixture(scope="module")
def three():
    return Chain((0, 10), (10, 20), (20, 30))


@needs_model
@pytest.mark.parametrize(
    ("name", "columns"), [("short", 1), ("short", 100), ("long", 16), ("long", 2000)]
)
def test_one_device_gives_the_reference_ids(one, name, columns):
    prompt = PROMPTS[name]
    one.reset()
    assert one.greedy(prompt["prompt_ids"], 64, columns) == prompt["greedy_ids"]


@needs_model
@pytest.mark.parametrize(("name", "columns"), [("short", 16), ("long", 16)])
def test_three_devices_give_the_reference_ids_over_half_floats(three, name, columns):
    prompt = PROMPTS[name]
    three.reset()
    assert three.greedy(prompt["prompt_ids"], 64, columns) == prompt["greedy_ids"]


@needs_model
@pytest.mark.parametrize("name", ["short", "long"])
def test_gaps_between_the_best_two_are_the_references(one, name):
    """Logits within 1e-3: so is half the difference of two of them."""
    prompt = PROMPTS[name]
    ids = prompt["prompt_ids"] + prompt["greedy_ids"][:-1]
    one.reset()
    hidden = one.run(ids, 0)[-64:]
    top = one.host.head(hidden, 2)
    assert top.ids[:, 0].tolist() == prompt["greedy_ids"]
    assert top.values[:, 0] - top.values[:, 1] == pytest.approx(prompt["gaps"], abs=1e-3)
