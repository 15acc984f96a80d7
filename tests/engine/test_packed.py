"""Packed weights on a CPU: the values of the file, the same bits in every company, small."""

import math

import numpy as np
import pytest
import torch

from poolhouse_node.engine import choose_precision, load_shard
from poolhouse_node.engine import precision as precisions
from poolhouse_node.engine.keeping import PackedKeeper
from poolhouse_node.engine.layers.linear import DenseMatrix
from poolhouse_node.engine.layers.packed import JoinedMatrix, PackedMatrix
from poolhouse_node.engine.quant import SUPPORTED_TYPES
from poolhouse_node.engine.raw_matrix import RawMatrix
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType
from poolhouse_node.weights.gguf_header import TensorInfo
from poolhouse_node.weights.held import held_bytes
from tests.support.model import needs_model, smollm2_path
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES
from tests.support.random_blocks import random_blocks
from tests.support.vectors import vectors

PROMPTS = vectors("smollm2_greedy")["prompts"]
PROMISED = 1e-3
CPU = torch.device("cpu")
PACKED_TYPES = sorted(SUPPORTED_TYPES - {GgmlType.F32})
ROUNDING = 1e-5
"""Of a sum of float32 products, beside the size that the sum has most likely."""

every_type = pytest.mark.parametrize("kind", PACKED_TYPES, ids=lambda kind: kind.name)


def random_raw(kind: GgmlType, rows: int, columns: int) -> RawMatrix:
    data = random_blocks(kind, rows * columns, 1.0, np.random.default_rng(rows + columns))
    return RawMatrix(torch.from_numpy(data.view(np.uint8)).view(rows, -1), kind, columns)


def columns(n: int, width: int) -> torch.Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(n))


@every_type
@pytest.mark.parametrize("rows", [1, 64, 100])
@pytest.mark.parametrize("n", [1, 3, 16, 17])
def test_a_product_is_that_of_the_files_values(kind, rows, n):
    raw = random_raw(kind, rows, 512)
    exact = columns(n, 512).double() @ raw.values().double().T
    error = PackedKeeper().matrix([raw])(columns(n, 512)) - exact
    assert error.shape == (n, rows)
    assert error.abs().max() < ROUNDING * 512**0.5


@every_type
def test_a_column_has_the_same_bits_alone_and_in_a_frame(kind):
    matrix = PackedKeeper().matrix([random_raw(kind, 192, 256)])
    x = columns(16, 256)
    assert torch.equal(matrix(x), torch.cat([matrix(column.unsqueeze(0)) for column in x]))


@every_type
def test_rows_of_a_table_are_its_values(kind):
    raw = random_raw(kind, 130, 256)
    index = torch.tensor([3, 0, 129, 64, 3, 40])
    rows = PackedKeeper().table(raw).rows(index)
    assert torch.allclose(rows, raw.values()[index], rtol=1e-5, atol=1e-6)


@every_type
def test_memory_is_what_was_counted_before_loading(kind):
    raw = random_raw(kind, 128, 512)
    counted = held_bytes(TensorInfo("blk.0.x.weight", kind, (128, 512), 0, 0), "cpu-packed")
    ones_of_halves = 4 * 128 if BLOCKS[kind].values == 1 else 0
    assert PackedKeeper().matrix([raw]).held_bytes == counted + ones_of_halves


def test_a_strange_number_stays_in_its_row_and_column():
    matrix = PackedKeeper().matrix([random_raw(GgmlType.Q4_1, 64, 64)])
    x = columns(3, 64)
    x[1, 7] = math.nan
    assert matrix(x).isfinite().all(1).tolist() == [True, False, True]


def test_half_floats_of_every_size_are_read():
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    weight = bits[bits.isfinite()].view(-1, 4)
    rows = PackedMatrix.of_halves(len(weight), [weight]).rows(torch.arange(len(weight)))
    assert torch.equal(rows, weight.float())


def test_matrices_are_kept_by_their_type():
    keeper = PackedKeeper()
    q4, q8 = random_raw(GgmlType.Q4_0, 16, 64), random_raw(GgmlType.Q8_0, 16, 64)
    assert isinstance(keeper.matrix([q4, q4]), PackedMatrix)
    assert isinstance(keeper.matrix([random_raw(GgmlType.F32, 16, 64)]), DenseMatrix)
    assert isinstance(keeper.matrix([random_raw(GgmlType.F16, 16, 63)]), DenseMatrix)
    joined = keeper.matrix([q4, q8])
    assert isinstance(joined, JoinedMatrix)
    exact = columns(2, 64) @ torch.cat([q4.values(), q8.values()]).T
    assert torch.allclose(joined(columns(2, 64)), exact, rtol=1e-4, atol=1e-4 * float(exact.std()))
    assert joined.held_bytes == keeper.matrix([q4]).held_bytes + keeper.matrix([q8]).held_bytes


@pytest.mark.parametrize("asked", ["exact", "packed", "auto"])
def test_a_person_may_choose(asked):
    chosen = choose_precision(asked, CPU)
    assert chosen in {"exact", "packed"}
    assert asked in {"auto", chosen}


@pytest.mark.parametrize(("asked", "device"), [("fast", "cpu"), ("packed", "meta")])
def test_what_cannot_be_is_said(asked, device):
    with pytest.raises(ShardError, match="precision"):
        choose_precision(asked, torch.device(device))


def test_without_a_compiler_everything_is_float32(monkeypatch):
    monkeypatch.setattr(precisions, "cpu_fault", lambda: "numba is not installed (pip install it)")
    assert choose_precision("auto", CPU) == "exact"
    with pytest.raises(ShardError, match=r"numba is not installed .* Or use --precision exact"):
        choose_precision("packed", CPU)


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


@pytest.fixture(scope="module")
def smollm2():
    """The whole model by precision."""
    return {
        precision: load_shard(
            smollm2_path(), (0, 30), context_size=1100, host=True, device="cpu", precision=precision
        )
        for precision in ("exact", "packed")
    }


@needs_model
@pytest.mark.parametrize("name", ["short", "long"])
def test_smollm2_packed_is_the_same_but_for_rounding(smollm2, name):
    """Token by token over the reference's own ids: the error of every logit, and the choices."""
    ids, answer = (PROMPTS[name][key] for key in ("prompt_ids", "greedy_ids"))
    exact, packed = smollm2["exact"], smollm2["packed"]
    reference = exact.logits(exact.run(exact.embed(ids + answer[:-1]), 0)[-len(answer) :])
    rows = [packed.logits(packed.run(packed.embed(ids), 0)[-1:])]
    for place, token in enumerate(answer[:-1], len(ids)):
        rows.append(packed.logits(packed.run(packed.embed([token]), place)))
    logits = torch.cat(rows)
    assert (logits - reference).abs().max() < PROMISED
    assert logits.argmax(1).tolist() == answer


@needs_model
def test_smollm2_packed_is_not_much_larger_than_its_file(smollm2):
    part = smollm2["packed"]._part
    held = part.model.held_bytes + part.head.held_bytes
    assert held < 1.3 * smollm2_path().stat().st_size
