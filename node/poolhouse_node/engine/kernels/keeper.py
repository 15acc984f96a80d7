"""Weights of a model file as kernels multiply them, on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.kernels.matrices import PackedMatrix, matrix_of, packed_weight
from poolhouse_node.engine.kernels.moe import PackedExperts
from poolhouse_node.engine.layers.feed_forward import DenseFeedForward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from poolhouse_node.engine.expert_weights import ExpertWeights
    from poolhouse_node.engine.kernels.matrices import KernelMatrix
    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.layers.linear import Matrix, Table
    from poolhouse_node.engine.raw_matrix import RawMatrix

__all__ = ["KernelKeeper"]


class KernelKeeper:
    """Satisfies :class:`~poolhouse_node.engine.keeping.Keeper`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def matrix(self, parts: Sequence[RawMatrix]) -> Matrix:
        return matrix_of(parts, self._device)

    def table(self, raw: RawMatrix) -> Table:
        return _table(matrix_of([raw], self._device))

    def expert_feed_forward(self, weights: ExpertWeights) -> FeedForward:
        """Packed experts; a shared one of their width and types is stacked behind them."""
        sizes, shared = weights.sizes, weights.shared
        gate, up, down, beside = weights.gate, weights.up, weights.down, None
        router = weights.router.values().to(self._device)
        if shared is not None:
            router = torch.cat([router, shared.share.to(self._device).unsqueeze(0)])
            if _is_one_of(weights):
                gate, up, down = (
                    one.reordered(lambda data, more=more: torch.cat([data, more.data]))
                    for one, more in ((gate, shared.gate), (up, shared.up), (down, shared.down))
                )
            else:
                both = self.matrix([shared.gate, shared.up])
                beside = DenseFeedForward(both, self.matrix([shared.down]))
        stacked = sizes.count + (1 if shared is not None and beside is None else 0)
        return PackedExperts(
            router=router,
            gate_up=PackedMatrix(packed_weight(_interleaved(gate, up, stacked), self._device)),
            down=PackedMatrix(packed_weight([down], self._device)),
            experts=sizes.count,
            used=sizes.used,
            shared=stacked > sizes.count,
            normalised=sizes.normalised,
            beside=beside,
        )


def _is_one_of(weights: ExpertWeights) -> bool:
    """The shared expert is just like the others."""
    shared, sizes = weights.shared, weights.sizes
    return shared is not None and (
        sizes.shared_width == sizes.width
        and (shared.gate.type, shared.up.type, shared.down.type)
        == (weights.gate.type, weights.up.type, weights.down.type)
    )


def _interleaved(gate: RawMatrix, up: RawMatrix, count: int) -> list[RawMatrix]:
    """Each expert's gate and then its up."""

    def rows(raw: RawMatrix, expert: int) -> RawMatrix:
        each = raw.rows // count
        return raw.some_rows(slice(expert * each, (expert + 1) * each))

    if gate.type is not up.type:
        return [rows(raw, expert) for expert in range(count) for raw in (gate, up)]

    def by_expert(raw: RawMatrix) -> Tensor:
        return raw.data.view(count, raw.rows // count, -1)

    both = torch.cat([by_expert(gate), by_expert(up)], dim=1)
    return [gate.reordered(lambda _: both.flatten(0, 1))]


def _table(matrix: KernelMatrix) -> Table:
    if not hasattr(matrix, "rows"):  # one matrix is of one type
        raise TypeError("A table is one matrix.")
    return matrix
