"""Packed weights on a CPU: as exact as promised, the same bits in every company, small."""

import pytest
import torch

from poolhouse_node.engine import choose_precision, load_shard
from poolhouse_node.engine.keeping import PackedKeeper
from poolhouse_node.engine.layers import four_bits
from poolhouse_node.engine.layers.four_bits import FourBitMatrix, is_layout_known
from poolhouse_node.engine.layers.linear import Bfloat16Matrix, DenseMatrix
from poolhouse_node.engine.layers.sized_columns import sized, summed
from poolhouse_node.engine.raw_matrix import RawMatrix
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType
from tests.support.model import needs_model, smollm2_path
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES
from tests.support.vectors import vectors

PROMPTS = vectors("smollm2_greedy")["prompts"]
PROMISED = 0.15
CPU = torch.device("cpu")

needs_packing = pytest.mark.skipif(not is_layout_known(), reason="torch packs otherwise here")


def random_raw(kind: GgmlType, rows: int, columns: int) -> RawMatrix:
    random = torch.Generator().manual_seed(rows + columns)
    block = BLOCKS[kind]
    blocks = rows * columns // block.values
    data = torch.randint(256, (blocks, block.size_bytes), dtype=torch.uint8, generator=random)
    factors = 2 if kind is GgmlType.Q4_1 else 1
    scales = (torch.rand(blocks, factors, generator=random) + 0.5) / 64
    data[:, : 2 * factors] = scales.half().view(torch.uint8)
    return RawMatrix(data.view(rows, -1), kind, columns)


def columns(n: int, width: int) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize("kind", [GgmlType.Q4_0, GgmlType.Q4_1], ids=lambda kind: kind.name)
def test_levels_and_scales_are_the_values_of_the_format(kind):
    raw = random_raw(kind, 5, 96)
    bits = raw.four_bits()
    grouped = bits.levels.view(5, 3, 32) * bits.scales.unsqueeze(2) + bits.leasts.unsqueeze(2)
    assert torch.allclose(grouped.view(5, 96), raw.values(), atol=1e-6)


@needs_packing
@pytest.mark.parametrize("rows", [16, 64, 100, 192])
@pytest.mark.parametrize("n", [1, 3, 16, 17, 40])
def test_a_packed_product_is_the_exact_one_but_for_rounding(rows, n):
    raw = random_raw(GgmlType.Q4_1, rows, 256)
    exact = columns(n, 256) @ raw.values().T
    error = (PackedKeeper().matrix([raw])(columns(n, 256)) - exact) / exact.std()
    assert error.abs().max() < (0.01 if n <= 16 else 1e-4)
    assert error.std() < (0.0015 if n <= 16 else 1e-5)


@needs_packing
@pytest.mark.parametrize("kind", ["four bits", "bfloat16"])
def test_a_column_has_the_same_bits_alone_and_in_a_frame(kind):
    raw = random_raw(GgmlType.Q4_0, 192, 128)
    matrix = FourBitMatrix(raw.four_bits()) if kind == "four bits" else Bfloat16Matrix(raw.values())
    x = columns(16, 128)
    together = matrix(x)
    apart = torch.cat([matrix(column.unsqueeze(0)) for column in x])
    if kind == "four bits":
        assert torch.equal(together, apart)
    else:
        assert torch.allclose(together, apart, rtol=1e-2, atol=1e-2)


def test_sizes_take_most_of_the_rounding():
    weight = columns(64, 128)
    x = columns(4, 128) + 3
    exact = x.double() @ weight.double().T
    one = (x.bfloat16() @ weight.bfloat16().T).float()
    many = summed((sized(x).float() @ weight.T).bfloat16())
    assert (many - exact).std() < (one - exact).std() / 2
    assert torch.equal(sized(x)[:4], x.bfloat16())


def test_matrices_are_kept_by_their_type():
    keeper = PackedKeeper()
    q4, q8 = random_raw(GgmlType.Q4_0, 16, 64), random_raw(GgmlType.Q8_0, 16, 64)
    plain = RawMatrix(torch.zeros(16, 256, dtype=torch.uint8), GgmlType.F32, 64)
    assert isinstance(keeper.matrix([q4, q4]), FourBitMatrix)
    assert isinstance(keeper.matrix([q4, q8]), Bfloat16Matrix)
    assert isinstance(keeper.matrix([plain]), DenseMatrix)


def test_rows_of_a_table_are_its_values():
    raw = random_raw(GgmlType.Q8_0, 20, 64)
    index = torch.tensor([3, 0, 19])
    rows = PackedKeeper().table(raw).rows(index)
    assert torch.allclose(rows, raw.values()[index], rtol=2**-8)


@pytest.mark.parametrize("asked", ["exact", "packed", "auto"])
def test_a_person_may_choose(asked):
    chosen = choose_precision(asked, CPU)
    assert chosen in {"exact", "packed"}
    assert asked in {"auto", chosen}


@pytest.mark.parametrize(("asked", "device"), [("fast", "cpu"), ("packed", "meta")])
def test_what_cannot_be_is_said(asked, device):
    with pytest.raises(ShardError, match="precision"):
        choose_precision(asked, torch.device(device))


def test_another_order_of_packed_levels_is_noticed(monkeypatch):
    monkeypatch.setattr(four_bits, "_convert", lambda levels, _: levels.byte()[:, ::2] * 16)
    assert not is_layout_known()
    assert choose_precision("auto", CPU) == "exact"


def test_a_missing_operator_is_noticed(monkeypatch):
    def missing(*_):
        raise NotImplementedError("not for this machine")

    monkeypatch.setattr(four_bits, "_convert", missing)
    assert choose_precision("auto", CPU) == "exact"


@needs_packing
@pytest.mark.parametrize("name", SMALL_SHAPES)
def test_every_architecture_runs_packed(name, tmp_path):
    path = tmp_path / "model.gguf"
    ModelMaker(SMALL_SHAPES[name]).write_gguf(path)
    logits = []
    for precision in ("exact", "packed"):
        shard = load_shard(
            path, (0, 8), context_size=64, host=True, device="cpu", precision=precision
        )
        logits.append(shard.logits(shard.run(shard.embed([5, 9, 2, 7]), 0)))
        shard.close()
    assert (logits[0] - logits[1]).abs().max() < 0.1 * logits[0].std()


@needs_model
@needs_packing
@pytest.mark.parametrize("name", ["short", "long"])
def test_smollm2_packed_is_close_and_chooses_the_same_where_it_is_clear(name):
    """Token by token over the reference's own ids: the error of every logit, and the choices."""
    ids, answer, gaps = (PROMPTS[name][key] for key in ("prompt_ids", "greedy_ids", "gaps"))
    logits = []
    for precision in ("exact", "packed"):
        shard = load_shard(
            smollm2_path(), (0, 30), context_size=1100, host=True, device="cpu", precision=precision
        )
        rows = [shard.logits(shard.run(shard.embed(ids), 0)[-1:])]
        for place, token in enumerate(answer[:-1], len(ids)):
            rows.append(shard.logits(shard.run(shard.embed([token]), place)))
        logits.append(torch.cat(rows))
        held = shard.held_bytes - shard._part.pool.held_bytes
        shard.close()
    exact, packed = logits
    assert (packed - exact).abs().max() < PROMISED
    first_near = next((i for i, gap in enumerate(gaps) if gap < PROMISED), len(gaps))
    assert packed.argmax(1)[:first_near].tolist() == answer[:first_near]
    assert held < 1.5 * smollm2_path().stat().st_size
