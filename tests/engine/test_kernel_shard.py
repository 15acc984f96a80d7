"""A room's shard on kernels beside the exact one, and what a room does to its state."""

from functools import partial

import numpy as np
import pytest
import torch

from poolhouse_node.engine import TorchShard, load_shard
from poolhouse_node.engine.loading import PartSpec, _suited
from poolhouse_node.engine.models.qwen3 import Qwen3Config
from poolhouse_node.shard import InPieces, ShardError
from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.gguf import open_gguf
from tests.support.kernel_shards import KERNEL_SHAPES, kernel_part, kernel_shard, make_model
from tests.support.kernels import QUIET

pytestmark = [*QUIET, pytest.mark.slow]
IDS = [5, 9, 2, 7, 1]
STEPS = ("forward_ids", "forward_bytes", "top_of_ids", "top_of_bytes")


def small(name):
    """One layer of each kind, of the least sizes: the interpreter takes seconds for more."""
    shape = KERNEL_SHAPES[name].but(
        vocabulary_size=32, width=32, ffn_width=32, heads=2, kv_heads=1, key_heads=1, value_heads=2
    )
    shape = shape.but(experts=2, experts_used=1) if shape.experts else shape
    return shape.but(layers=2, interval=2) if shape.hybrid else shape.but(layers=1)


@pytest.fixture(scope="module", params=KERNEL_SHAPES)
def pair(request, tmp_path_factory):
    path = make_model(small(request.param), tmp_path_factory.mktemp("kernels"))
    exact = load_shard(
        path, (0, small(request.param).layers), context_size=64, host=True, device="cpu"
    )
    yield kernel_shard(path), exact
    exact.close()


def step(shard, ids, **options):
    return shard.run(shard.embed(ids), shard.position, **options)


def test_logits_are_near_the_exact_ones(pair):
    on_kernels, exact = pair
    exact.reset()
    on_kernels.reset()
    for ids in (IDS[:2], IDS[2:3]):
        near, wanted = (shard.logits(step(shard, ids)).cpu() for shard in pair)
        assert (near - wanted).abs().max() < 3e-3 * wanted.std()
    assert on_kernels.position == exact.position == 3


def test_a_room_goes_back_and_on(tmp_path):
    shard = kernel_shard(make_model(small("qwen35"), tmp_path))
    step(shard, IDS[:1])
    step(shard, [IDS[1], 3, 4], snapshots=True)
    shard.rollback(0)
    shard.save(1)
    first = step(shard, IDS[2:3])
    shard.reset()
    assert shard.position == 0
    shard.load(1)
    assert shard.position == 2
    again = step(shard, IDS[2:3])
    assert torch.equal(first, again)
    shard.drop([1])
    with pytest.raises(ShardError, match="saved state"):
        shard.load(1)
    shard.close()


def test_two_rooms_share_a_part_and_not_their_states(tmp_path):
    part = kernel_part(make_model(small("qwen35"), tmp_path))
    rooms = [TorchShard(part, saved_states=1) for _ in range(3)]
    alone = [step(rooms[0], IDS[:1]), step(rooms[0], IDS[1:2])]
    others = step(rooms[1], [8])
    interleaved = [step(rooms[2], IDS[:1])]
    step(rooms[1], [6])
    interleaved.append(step(rooms[2], IDS[1:2]))
    assert all(map(torch.equal, alone, interleaved))
    assert not torch.equal(others, alone[0])
    for room in rooms:
        room.close()


def test_what_travels_and_what_is_chosen(tmp_path):
    shard = kernel_shard(make_model(small("llama"), tmp_path))
    hidden = shard.unpack(np.array([[1.0, -2.5] * 16], "<f2").tobytes(), 1)
    assert hidden.tolist() == [[1.0, -2.5] * 16]
    packed = shard.pack(hidden)
    assert packed.data == np.array([1.0, -2.5] * 16, "<f2").tobytes()
    assert packed.amax == 2.5
    top, logits = shard.head(hidden, 4), shard.logits(hidden).cpu()
    assert top.ids[0].tolist() == logits[0].topk(4).indices.tolist()
    assert top.values[0].tolist() == logits[0].topk(4).values.tolist()
    assert top.finite
    broken = hidden.clone()
    broken[0, 3] = torch.nan
    assert not shard.pack(broken).sendable
    assert not shard.head(broken, 4).finite
    with pytest.raises(ShardError, match="bytes are not"):
        shard.unpack(b"\0" * 3, 1)
    with pytest.raises(ShardError, match="outside the vocabulary"):
        shard.embed([32])


def test_keys_and_values_are_half_floats_and_all_there_from_the_start(tmp_path):
    part = kernel_part(make_model(small("llama"), tmp_path))
    pages, before = part.pool.pages, part.pool.pages.moves
    room = TorchShard(part, saved_states=0)
    keys, values = pages.blocks(0)
    assert keys.dtype == values.dtype == torch.float16
    assert keys.shape == (5, 16, 1, 32)  # four blocks of a context of 64, and one for padding
    assert pages.moves == before + 1
    room.close()


def test_a_part_compiles_before_its_first_room(tmp_path, monkeypatch):
    part = kernel_part(make_model(small("llama"), tmp_path), page_rows=8)
    monkeypatch.setattr(type(part.compute), "first_widths", (1, 3, 65))
    runs = []
    for name in ("forward_ids", "forward_bytes", "top_of_bytes"):
        monkeypatch.setattr(
            part.compute.steps, name, lambda *given, name=name, **_: runs.append(name)
        )
    part.warm_up()
    # The context has 64 positions: no third width.
    assert runs == 2 * ["forward_bytes", "forward_ids", "top_of_bytes"]
    moves = part.pool.pages.moves
    room = TorchShard(part, saved_states=0)
    assert room.position == 0
    assert part.pool.pages.moves == moves
    part.warm_up(lambda: True)
    assert len(runs) == 6

    def fails(*_, **__):
        raise RuntimeError("no compiler\nat all")

    monkeypatch.setattr(part.compute.steps, "forward_bytes", fails)
    with pytest.raises(ShardError, match=r"\(no compiler\): use --precision exact"):
        part.warm_up()
    room.close()


@pytest.mark.timeout(60)
def test_steps_give_what_their_pieces_give(pair):
    """And frames of one part go on from each other, whichever way they came."""
    shard, _ = pair
    results = []
    for forward_ids, forward_bytes, top_of_ids, top_of_bytes in (
        (shard.forward_ids, shard.forward_bytes, shard.top_of_ids, shard.top_of_bytes),
        [partial(getattr(InPieces, name), shard) for name in STEPS],
    ):
        shard.reset()
        sent = forward_ids(IDS[:2], 0)
        onward = forward_bytes(sent.data, 2, 2, snapshots=True)
        shard.rollback(0)
        assert shard.position == 3
        tops = [top_of_bytes(onward.data[: len(onward.data) // 2], 3), top_of_ids(IDS[2:3], 3, 3)]
        results.append([sent, onward, *[(top.ids.tolist(), top.values.tolist()) for top in tops]])
        assert all(top.ids.shape == (1, 3) and top.finite for top in tops)
    assert results[0] == results[1]


def test_whoever_draws_from_a_few_logits_shares_a_graph(pair, monkeypatch):
    shard, _ = pair
    shard.reset()
    data, keys, run = shard.forward_ids([1], 0).data, set(), shard.graphs.run
    monkeypatch.setattr(shard.graphs, "run", lambda key, step: keys.add(key) or run(key, step))
    tops = {k: shard.top_of_bytes(data, k) for k in (1, 2, 20, 31, 32)}
    assert len(keys) == 2
    for k, top in tops.items():
        assert top.ids.shape == top.values.shape == (1, k)
        assert top.ids.tolist() == tops[32].ids[:, :k].tolist()


def test_steps_refuse_what_their_pieces_refuse(pair):
    shard, _ = pair
    shard.reset()
    for call, match in (
        (lambda: shard.forward_ids([32], 0), "outside the vocabulary"),
        (lambda: shard.top_of_ids([-1], 0, 1), "outside the vocabulary"),
        (lambda: shard.forward_bytes(b"123", 1, 0), "bytes are not"),
        (lambda: shard.forward_bytes(b"", 0, 0), "bytes are not"),
        (lambda: shard.top_of_bytes(b"\0" * 6, 1), "bytes are not"),
        (lambda: shard.forward_ids([1], 1), "gap"),
        (lambda: shard.forward_ids([1], 64), "past the context|gap"),
    ):
        with pytest.raises(ShardError, match=match):
            call()
        assert shard.position == 0
    shard.forward_ids([1], 0)  # nothing has to be reset


def test_a_step_says_when_a_value_is_no_number(tmp_path):
    shard = kernel_shard(make_model(small("llama"), tmp_path))
    odd = np.array([[1.0, np.nan] * 16], "<f2").tobytes()
    assert not shard.forward_bytes(odd, 1, 0).sendable
    assert not shard.top_of_bytes(odd, 2).finite


def test_models_whose_sizes_do_not_suit_are_computed_exactly(tmp_path):
    shape = KERNEL_SHAPES["qwen3"].but(head_size=16, rotated=16, layers=1, kind=GgmlType.F32)
    with open_gguf(make_model(shape, tmp_path)) as file:
        config = Qwen3Config.read(file)
    spec = PartSpec(tmp_path, (0, 1), 64, True, torch.device("cuda"), "packed", may_be_exact=True)
    assert _suited(spec, config).precision == "exact"
    insisting = PartSpec(tmp_path, (0, 1), 64, True, torch.device("cuda"), "packed")
    with pytest.raises(ShardError, match="--precision exact"):
        _suited(insisting, config)
