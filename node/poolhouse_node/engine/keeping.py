"""How weights are kept in memory: as float32, or about as small as their file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from poolhouse_node.engine.layers.experts import ExpertBank, MatrixExperts
from poolhouse_node.engine.layers.feed_forward import (
    DenseFeedForward,
    ExpertFeedForward,
    SharedExpert,
)
from poolhouse_node.engine.layers.linear import DenseMatrix
from poolhouse_node.engine.layers.packed import JoinedMatrix, PackedMatrix, can_pack
from poolhouse_node.engine.quant import QUANTISED_TYPES
from poolhouse_node.engine.raw_matrix import HALF_TYPES, stacked_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.engine.expert_weights import ExpertWeights, SharedWeights
    from poolhouse_node.engine.layers.experts import Experts
    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.layers.linear import Matrix, Table
    from poolhouse_node.engine.raw_matrix import RawMatrix

__all__ = ["ExactKeeper", "Keeper", "PackedKeeper"]


class Keeper(Protocol):
    """Makes what layers multiply by out of what a file holds."""

    def matrix(self, parts: Sequence[RawMatrix]) -> Matrix:
        """Matrices of the same input as one, rows one after the other."""
        ...

    def table(self, raw: RawMatrix) -> Table:
        """An embedding or a head."""
        ...

    def expert_feed_forward(self, weights: ExpertWeights) -> FeedForward:
        """A mixture of experts with its router."""
        ...


class ExactKeeper:
    """Everything in float32: products are as exact as float32 is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def matrix(self, parts: Sequence[RawMatrix]) -> Matrix:
        return DenseMatrix(stacked_values(parts).to(self._device))

    def table(self, raw: RawMatrix) -> Table:
        return DenseMatrix(raw.values().to(self._device))

    def expert_feed_forward(self, weights: ExpertWeights) -> FeedForward:
        stacks = (
            raw.values().view(weights.sizes.count, -1, raw.columns).to(self._device)
            for raw in (weights.gate, weights.up, weights.down)
        )
        return _expert_feed_forward(self, weights, ExpertBank.of_matrices(*stacks))


class PackedKeeper:
    """On a CPU: the values of the file in about as many bytes as there; float32 stays float32."""

    def matrix(self, parts: Sequence[RawMatrix]) -> Matrix:
        if len({part.type for part in parts}) == 1:
            return _kept(_stacked(parts))
        return JoinedMatrix(tuple(_kept(part) for part in parts))

    def table(self, raw: RawMatrix) -> Table:
        return _kept(raw)

    def expert_feed_forward(self, weights: ExpertWeights) -> FeedForward:
        count = weights.sizes.count

        def one(raw: RawMatrix, expert: int) -> RawMatrix:
            each = raw.rows // count
            return raw.some_rows(slice(expert * each, (expert + 1) * each))

        pairs = (
            (
                self.matrix([one(weights.gate, expert), one(weights.up, expert)]),
                self.matrix([one(weights.down, expert)]),
            )
            for expert in range(count)
        )
        return _expert_feed_forward(self, weights, MatrixExperts(tuple(pairs)))


def _expert_feed_forward(keeper: Keeper, weights: ExpertWeights, experts: Experts) -> FeedForward:
    return ExpertFeedForward(
        router=keeper.matrix([weights.router]),
        experts=experts,
        shared=_shared(keeper, weights.shared) if weights.shared else None,
        used=weights.sizes.used,
        normalised=weights.sizes.normalised,
    )


def _shared(keeper: Keeper, weights: SharedWeights) -> SharedExpert:
    network = DenseFeedForward(
        keeper.matrix([weights.gate, weights.up]), keeper.matrix([weights.down])
    )
    return SharedExpert(weights.share, network)


def _kept(raw: RawMatrix) -> Table:
    if raw.type in QUANTISED_TYPES:
        return PackedMatrix.of_levels(raw.levels())
    if raw.type in HALF_TYPES and can_pack(raw.columns):
        return PackedMatrix.of_halves(raw.halves())
    return DenseMatrix(raw.values())


def _stacked(parts: Sequence[RawMatrix]) -> RawMatrix:
    first, *others = parts
    if not others:
        return first
    return first.reordered(lambda data: torch.cat([data, *(part.data for part in others)]))
