"""Products with packed weights: right, and the same bits in any company."""

import pytest
import torch

from poolhouse_node.engine.raw_matrix import RawMatrix
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import GgmlType
from tests.support.kernels import DEVICE, QUIET, levels_of, random_blocks, relative_error

from poolhouse_node.engine.kernels.dequantise import dequantise  # isort: skip
from poolhouse_node.engine.kernels.matrices import HalfMatrix, MixedMatrix, PackedMatrix, matrix_of  # isort: skip
from poolhouse_node.engine.kernels import matrices  # isort: skip
from poolhouse_node.engine.kernels.packing import pack, unpack  # isort: skip
from poolhouse_node.engine.kernels.products import expert_product, product  # isort: skip

pytestmark = QUIET
KINDS = [GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q8_0]
ROWS, COLUMNS = 40, 576  # neither fills tiles and steps


def packed(kind, rows=ROWS, columns=COLUMNS):
    return pack(random_blocks(kind, rows, columns).to(DEVICE), kind, (rows, columns))


def columns(n, values=COLUMNS, seed=1):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(n, values, generator=random).to(DEVICE)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("n", [1, 3, 7, 16])
def test_a_product_keeps_fifteen_bits(kind, n):
    weight, x = packed(kind), columns(n)
    # Columns of very different sizes, as outliers make them.
    x *= torch.logspace(-4, 4, n, device=DEVICE).unsqueeze(1)
    wanted = x.double() @ unpack(weight).double().T
    for column, exact in zip(PackedMatrix(weight)(x), wanted, strict=True):
        assert relative_error(column, exact) < 1e-4


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_column_has_the_same_bits_in_any_company(kind):
    weight, x = packed(kind), columns(16)
    matrix = PackedMatrix(weight)
    together = matrix(x)
    for n in (1, 4, 5, 9):
        assert torch.equal(matrix(x[2 : 2 + n]), together[2 : 2 + n])


def test_many_columns_are_multiplied_in_bfloat16():
    weight, x = packed(GgmlType.Q4_0), columns(20)
    result = PackedMatrix(weight)(x)
    assert relative_error(result, x @ unpack(weight).T) < 1e-2


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_unpacking_on_the_device_rounds_once(kind):
    weight = packed(kind)
    got, wanted = dequantise(weight).cpu(), unpack(weight).cpu()
    if DEVICE.type == "cuda":
        assert torch.equal(got, wanted.bfloat16())
    assert torch.allclose(got.float(), wanted, rtol=2**-7)  # the interpreter cuts bits off


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_not_lost_and_stays_in_its_column(bad):
    x = columns(3)
    x[1, 40] = bad
    result = PackedMatrix(packed(GgmlType.Q4_0))(x)
    assert torch.isnan(result).any(1).tolist() == [False, True, False]


def test_zeros_give_zeros():
    assert not PackedMatrix(packed(GgmlType.Q4_0))(torch.zeros(2, COLUMNS, device=DEVICE)).any()


def test_rows_are_looked_up():
    weight = packed(GgmlType.Q4_0)
    index = torch.tensor([39, 0, 17, 17], device=DEVICE)
    assert torch.equal(PackedMatrix(weight).rows(index), unpack(weight)[index])


def test_each_job_takes_its_own_expert():
    experts, rows, n, used = 4, 32, 3, 2
    weight = packed(GgmlType.Q4_0, experts * rows, 256)
    x = columns(n, 256)
    chosen = torch.tensor([[3, 0], [1, 1], [2, 3]], dtype=torch.int32, device=DEVICE)
    jobs = expert_product(weight, experts, chosen.flatten(), levels_of(x, 256, apart=True))
    by_expert = unpack(weight).view(experts, rows, 256)
    for job, expert in enumerate(chosen.flatten().tolist()):
        assert relative_error(jobs[job], by_expert[expert] @ x[job // used]) < 1e-4


def test_experts_that_share_a_tile_are_refused():
    chosen = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    levels = levels_of(columns(1, 256), 256, apart=True)
    with pytest.raises(ShardError, match="multiple of 16"):
        expert_product(packed(GgmlType.Q4_0, 48, 256), 2, chosen, levels)


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(ShardError, match="do not fit"):
        product(packed(GgmlType.Q4_0), levels_of(columns(1, 128), 128))


def test_bfloat16_matrices_multiply_narrow_and_wide_frames():
    weight = torch.randn(24, 64, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    matrix, x = HalfMatrix(weight), columns(20, 64)
    together = matrix(x[:16])
    assert relative_error(together, x[:16] @ weight.T) < 1e-2
    assert torch.equal(matrix(x[3:4])[0], together[3])
    assert matrix(x).shape == (20, 24)
    assert torch.equal(
        matrix.rows(torch.tensor([5], device=DEVICE))[0], weight[5].bfloat16().float()
    )


def as_in_a_file(kind, rows, seed):
    values = torch.randn(rows, 64, generator=torch.Generator().manual_seed(seed))
    if kind is GgmlType.F32:
        data = values
    elif kind is GgmlType.BF16:
        data = values.bfloat16()
    else:
        data = random_blocks(kind, rows, 64, seed)
    return RawMatrix(data.contiguous().view(torch.uint8).view(rows, -1), kind, 64)


FOUR, EIGHT = 0.5625 * 4, 1.0625 * 2  # bytes a weight, and 64 columns are filled up to steps


@pytest.mark.parametrize(
    ("kinds", "made", "bytes_a_weight"),
    [
        ([GgmlType.Q4_0, GgmlType.Q4_0], PackedMatrix, [FOUR, FOUR]),
        ([GgmlType.Q8_0], PackedMatrix, [EIGHT]),
        ([GgmlType.BF16, GgmlType.BF16], HalfMatrix, [2, 2]),
        ([GgmlType.Q4_0, GgmlType.F32, GgmlType.BF16], MixedMatrix, [FOUR, EIGHT, EIGHT]),
        ([GgmlType.Q8_0, GgmlType.Q4_0], MixedMatrix, [EIGHT, FOUR]),
        ([GgmlType.Q5_0], PackedMatrix, [EIGHT]),
    ],
    ids=["four bits", "eight bits", "bfloat16", "mixed", "mixed packed", "another type"],
)
@pytest.mark.parametrize("n", [3, 20])
def test_matrices_of_a_file_are_kept_small(kinds, made, bytes_a_weight, n):
    parts = [as_in_a_file(kind, 16, seed) for seed, kind in enumerate(kinds)]
    matrix = matrix_of(parts, DEVICE)
    assert isinstance(matrix, made)
    assert matrix.held_bytes == 16 * 64 * sum(bytes_a_weight)
    x = columns(n, 64)
    wanted = x.cpu() @ torch.cat([part.values() for part in parts]).T
    assert relative_error(matrix(x), wanted) < 1e-2


def test_a_large_matrix_is_packed_by_pieces(monkeypatch):
    monkeypatch.setattr(matrices, "_PACKED_AT_ONCE", 64 * 16)
    for kind in (GgmlType.Q4_0, GgmlType.Q5_0):
        part = as_in_a_file(kind, 40, 1)
        together = unpack(matrices.packed_weight([part, part], DEVICE))
        wanted = torch.cat([part.values(), part.values()])
        assert relative_error(together, wanted) < (1e-6 if kind is GgmlType.Q4_0 else 1e-2)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_rows_of_a_table_are_those_of_the_matrix(kind):
    weight = packed(kind)
    index = torch.tensor([39, 0, 17, 16, 0], device=DEVICE)
    assert torch.equal(PackedMatrix(weight).rows(index), unpack(weight)[index])
