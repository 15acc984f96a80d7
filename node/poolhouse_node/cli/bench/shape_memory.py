"""Whether a shape fits into memory, before any of its weights is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from poolhouse_node.cli.bench.shape_model import config_of, make_blocks
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.engine.layers.feed_forward import DenseFeedForward
from poolhouse_node.engine.layers.linear import DenseMatrix
from poolhouse_node.engine.memory import MemoryNeed, available_bytes
from poolhouse_node.shard import OutOfMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from poolhouse_node.cli.bench.shapes import Shape
    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.layers.linear import Matrix

__all__ = ["dense_weight_bytes", "require_memory"]

_CPU = torch.device("cpu")
_FLOAT32 = 4


class _CountedWeights:
    """Makes empty matrices, and counts what real ones of float32 would take."""

    def __init__(self) -> None:
        self.total_bytes = 0

    def vector(self, size: int, mean: float = 0.0, spread: float = 1.0) -> Tensor:
        self.total_bytes += _FLOAT32 * size
        return torch.full((size,), mean + spread)

    def matrix(self, rows: int, columns: int) -> Matrix:
        self.total_bytes += _FLOAT32 * rows * columns
        return DenseMatrix(torch.empty(0, 0))

    def experts(self, count: int, used: int, width: int, ffn_width: int) -> FeedForward:
        self.matrix(count + 1, width)  # the router, and the share of the shared one
        rows = (count + 1) * ffn_width
        return DenseFeedForward(self.matrix(2 * rows, width), self.matrix(rows, width))


def dense_weight_bytes(shape: Shape, layers: tuple[int, int], *, with_head: bool) -> int:
    """Of the weights in float32."""
    counted = _CountedWeights()
    make_blocks(shape, layers, counted, context_size=1, device=_CPU)
    if with_head:
        counted.matrix(shape.vocabulary_size, shape.width)
    return counted.total_bytes


def require_memory(
    shape: Shape,
    layers: tuple[int, int],
    device: torch.device,
    *,
    context: int,
    with_head: bool,
    available: Callable[[torch.device], int | None] = available_bytes,
) -> None:
    """Raises :class:`CommandFailed` with the figures when float32 weights and state do not fit."""
    weights = dense_weight_bytes(shape, layers, with_head=with_head)
    need = MemoryNeed(weights, config_of(shape).state_shape(layers, context))
    try:
        need.saved_states(0, available(device))
    except OutOfMemory as error:
        advice = "Without CUDA weights are float32: measure fewer layers, such as --layers 0:4."
        raise CommandFailed(f"{error} {advice}") from error
