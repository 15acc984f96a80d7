"""What only a GPU shows: frames of every width have the same bits, graphs repeat what they saw."""

import asyncio

import pytest
import torch

from poolhouse_node.cli.bench.shape import ShapeBench, bench_shape
from poolhouse_node.cli.bench.shapes import Shape
from poolhouse_node.weights.ggml_types import GgmlType

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

WIDE = Shape(8, 512, 8, 2, 64, 32, 1e4, 1024, 0, (4, 12), 128)
EXPERTS = Shape(4, 512, 8, 2, 64, 32, 1e4, 128, 0, (4, 8), 128, experts=32, experts_used=4)


@pytest.fixture(autouse=True)
def needs_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def columns(n, width, seed=1):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed)).cuda()


@pytest.mark.parametrize("kind", [GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q8_0])
@pytest.mark.parametrize("shape", [(5120, 4096), (16480, 1024), (272, 17408)])
def test_large_products_are_right_and_the_same_in_any_company(kind, shape):
    from poolhouse_node.engine.kernels.matrices import PackedMatrix
    from poolhouse_node.engine.kernels.packing import pack, unpack
    from tests.support.kernels import random_blocks, relative_error

    weight = pack(random_blocks(kind, *shape).cuda(), kind, shape)
    matrix, x = PackedMatrix(weight), columns(16, shape[1])
    together = matrix(x)
    assert relative_error(together, x.double() @ unpack(weight).double().T) < 1e-4
    for n in (1, 2, 4, 5, 8, 9):
        assert torch.equal(matrix(x[16 - n :]), together[16 - n :])


@pytest.mark.parametrize("shape", [WIDE, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_a_column_of_a_frame_has_the_bits_it_has_alone(shape, width):
    from tests.support.kernels import FusedRoom, twin_blocks

    room = FusedRoom(shape, twin_blocks(shape, 256)[0], 256)
    x = columns(100 + width, shape.width)
    for position in range(0, 100, 10):
        room.run(x[position : position + 10], position)
    before = room.memory.clone(), room.window.clone()
    together = room.run(x[100:], 100, keeps=True)
    after = room.memory.clone(), room.window.clone()
    room.memory.copy_(before[0])
    room.window.copy_(before[1])
    for column in range(width):
        alone = room.run(x[100 + column : 101 + column], 100 + column)
        assert torch.equal(alone[0], together[column])
        if column < width - 1:
            assert torch.equal(room.memory, room.memories[1 + column])
            assert torch.equal(room.window, room.windows[1 + column])
    assert torch.equal(room.memory, after[0])
    assert torch.equal(room.window, after[1])


def test_a_wide_prefill_is_near_the_narrow_one():
    from tests.support.kernels import FusedRoom, relative_error, twin_blocks

    blocks = twin_blocks(WIDE, 256)[0]
    x = columns(65, WIDE.width)
    wide, narrow = FusedRoom(WIDE, blocks, 256), FusedRoom(WIDE, blocks, 256)
    wide.run(x[:64], 0)
    for position in range(0, 64, 16):
        narrow.run(x[position : position + 16], position)
    last = wide.run(x[64:], 64)
    assert relative_error(last, narrow.run(x[64:], 64)) < 3e-2


def test_a_graph_repeats_with_other_data():
    from poolhouse_node.engine.graphs import FrameGraphs
    from tests.support.kernels import FusedRoom, twin_blocks

    blocks = twin_blocks(WIDE, 256)[0]
    plain, graphed = FusedRoom(WIDE, blocks, 256), FusedRoom(WIDE, blocks, 256)
    x = columns(6, WIDE.width)
    buffer = x[:1].clone()
    graphs = FrameGraphs(buffer.device)

    def step():
        hidden = buffer.clone()
        for part in graphed.blocks.run(hidden, graphed.state):
            hidden = hidden + part
        return hidden

    for position in range(6):
        buffer.copy_(x[position : position + 1])
        graphed.state.position.fill_(position)
        result = graphs.run("one column", step)
        assert torch.equal(result, plain.run(x[position : position + 1], position))


@pytest.mark.parametrize("quant", ["q4_0", "q4_1", "q8_0", "bf16"])
def test_the_bench_runs(quant, capsys):
    bench = ShapeBench("tiny", quant, device="cuda", prompt=40, tokens=4, repeats=1, profile=True)
    assert asyncio.run(bench_shape(bench, as_json=False)) == 0
    assert "residual sums and norms" in capsys.readouterr().out
