"""A position as a column of a frame against the same position alone (engine, section 9).

The bits differ on a CPU: torch sums in another order for another number of columns (ADR 11). What
must hold is that the likeliest token is the same.
"""

import pytest
import torch

from poolhouse_node.engine import TorchShard, load_shard
from tests.support.model import needs_model, smollm2_path
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES
from tests.support.vectors import vectors

WIDTHS = [2, 3, 4, 7, 8, 16]
# Logits are about 3 in the random models and 20 in SmolLM2; float32 has seven digits.
SMALL_DIFFERENCE = 1e-4
SMOLLM2_DIFFERENCE = 1e-3


def alone(shard: TorchShard, ids: list[int]) -> torch.Tensor:
    """Logits of every column, computed one by one from where the state is."""
    rows = [shard.logits(shard.run(shard.embed([token]), shard.position)) for token in ids]
    return torch.cat(rows)


def together(shard: TorchShard, ids: list[int], width: int, *, snapshots: bool) -> torch.Tensor:
    rows = []
    for start in range(0, len(ids), width):
        columns = shard.embed(ids[start : start + width])
        rows.append(shard.logits(shard.run(columns, shard.position, snapshots=snapshots)))
    return torch.cat(rows)


def assert_same_choice(got: torch.Tensor, wanted: torch.Tensor, difference: float) -> None:
    """The same likeliest token wherever the best two are further apart than rounding."""
    assert float((got - wanted).abs().max()) < difference
    best = wanted.topk(2).values
    clear = best[:, 0] - best[:, 1] > 2 * difference
    assert clear.float().mean() > 0.9
    assert torch.equal(got.argmax(1)[clear], wanted.argmax(1)[clear])


MODELS = [(name, precision) for name in SMALL_SHAPES for precision in ("exact", "packed")]


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def small(request, tmp_path_factory):
    name, precision = request.param
    path = tmp_path_factory.mktemp("exact") / "model.gguf"
    ModelMaker(SMALL_SHAPES[name]).write_gguf(path)
    shard = load_shard(path, (0, 8), context_size=64, host=True, device="cpu", precision=precision)
    yield shard
    shard.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_column_of_a_verify_frame_chooses_what_it_chooses_alone(small, width):
    ids = [(7 * step * step + 3) % 96 for step in range(48)]
    small.reset()
    wanted = alone(small, ids)
    small.reset()
    got = together(small, ids, width, snapshots=True)
    assert_same_choice(got, wanted, SMALL_DIFFERENCE)


def test_the_same_frame_has_the_same_bits_again(small):
    ids = [(5 * step * step + 1) % 96 for step in range(40)]
    small.reset()
    first = together(small, ids, 9, snapshots=False)
    small.reset()
    assert torch.equal(together(small, ids, 9, snapshots=False), first)


@needs_model
@pytest.mark.parametrize("name", ["short", "long"])
def test_smollm2_chooses_the_same_in_frames_of_every_width(name):
    prompt = vectors("smollm2_greedy")["prompts"][name]
    ids, answer = prompt["prompt_ids"], prompt["greedy_ids"][:32]
    shard = load_shard(smollm2_path(), (0, 30), context_size=1100, host=True, device="cpu")
    shard.run(shard.embed(ids), 0)
    shard.save(1)
    wanted = alone(shard, answer)
    for width in WIDTHS:
        shard.load(1)
        got = together(shard, answer, width, snapshots=True)
        assert float((got - wanted).abs().max()) < SMOLLM2_DIFFERENCE
        assert torch.equal(got.argmax(1), wanted.argmax(1))
    shard.close()
