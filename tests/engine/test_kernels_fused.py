"""Layers on kernels beside the same layers in plain torch, in frames of every kind."""

from functools import partial

import pytest
import torch

from poolhouse_node.cli.bench.shape_model import config_of
from poolhouse_node.cli.bench.shapes import Shape
from poolhouse_node.engine.models.blocks import BlockStack
from poolhouse_node.shard import ShardError
from tests.support.dense_pass import DenseState
from tests.support.kernels import DEVICE, QUIET, FusedRoom, relative_error, twin_blocks

pytestmark = QUIET
POSITIONS = 64
# Unequal head counts of both kinds, and layers of both: with four layers one attends.
HYBRID = Shape(4, 64, 4, 2, 32, 16, 1e4, 96, 0, (1, 2), 32)
EXPERTS = Shape(4, 64, 2, 1, 32, 16, 1e4, 32, 0, (1, 2), 32, experts=4, experts_used=2)


def columns(n, seed=1):
    return torch.randn(n, HYBRID.width, generator=torch.Generator().manual_seed(seed))


def both(shape):
    packed, dense = twin_blocks(shape, POSITIONS)
    config = config_of(shape)
    stack = BlockStack(dense, partial(config.state_shape, (0, shape.layers)), 0)
    return FusedRoom(shape, packed, POSITIONS), stack, DenseState(stack.state_shape(POSITIONS))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [HYBRID, EXPERTS], ids=["dense", "experts"])
def test_frames_equal_the_plain_layers(shape):
    fused, stack, plain = both(shape)
    x, position = columns(6), 0
    for n in (3, 1, 2):
        frame = x[position : position + n]
        assert relative_error(fused.run(frame, position), plain.run(stack, frame)) < 2e-3
        position += n
    for layer, state in enumerate(plain.memories):
        assert relative_error(fused.memory[layer], state.memory) < 2e-3
        assert relative_error(fused.window[layer], state.window) < 2e-3


@pytest.mark.slow
def test_a_wide_frame_equals_the_plain_layers_and_can_be_continued():
    fused, stack, plain = both(HYBRID)
    x = columns(20)
    # Weights and columns of a wide frame are bfloat16.
    assert relative_error(fused.run(x[:18], 0), plain.run(stack, x[:18])) < 5e-2
    assert relative_error(fused.run(x[18:], 18), plain.run(stack, x[18:])) < 5e-2


@pytest.mark.slow
@pytest.mark.parametrize("shape", [HYBRID, EXPERTS], ids=["dense", "experts"])
def test_a_column_of_a_frame_has_the_bits_it_has_alone(shape):
    fused, _, _ = both(shape)
    x = columns(4)
    fused.run(x[:1], 0)
    before = fused.memory.clone(), fused.window.clone()
    together = fused.run(x[1:], 1, keeps=True)
    after = fused.memory.clone(), fused.window.clone()
    fused.memory.copy_(before[0])
    fused.window.copy_(before[1])
    for column in range(3):
        alone = fused.run(x[1 + column : 2 + column], 1 + column)
        assert torch.equal(alone[0], together[column])
        if column < 2:  # what a rollback goes back to
            assert torch.equal(fused.memory, fused.memories[1 + column])
            assert torch.equal(fused.window, fused.windows[1 + column])
    assert torch.equal(fused.memory, after[0])
    assert torch.equal(fused.window, after[1])


def test_a_wide_frame_wants_its_position():
    fused, _, _ = both(HYBRID)
    with pytest.raises(ShardError, match="position"):
        fused.blocks.run(columns(17).to(DEVICE), fused.state)
