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
from poolhouse_node.engine.layers.linear import DenseMatrix, fill_columns
from poolhouse_node.engine.layers.packed import (
    BLOCK_ROWS,
    JoinedMatrix,
    PackedMatrix,
    can_pack,
)
from poolhouse_node.engine.quant import QUANTISED_TYPES
from poolhouse_node.engine.raw_matrix import HALF_TYPES, in_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

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
        return _dense(parts, self._device)

    def table(self, raw: RawMatrix) -> Table:
        return _dense([raw], self._device)

    def expert_feed_forward(self, weights: ExpertWeights) -> FeedForward:
        count = weights.sizes.count
        gate, up, down = (_split(raw, count) for raw in (weights.gate, weights.up, weights.down))
        bank = ExpertBank.empty(count, down[0].rows, gate[0].rows, self._device)
        for expert in range(count):
            fill_columns(bank.gate_up[expert], _values([gate[expert], up[expert]]))
            fill_columns(bank.down[expert], _values([down[expert]]))
        return _expert_feed_forward(self, weights, bank)


class PackedKeeper:
    """On a CPU: the values of the file in about as many bytes as there; float32 stays float32."""

    def matrix(self, parts: Sequence[RawMatrix]) -> Matrix:
        if len({part.type for part in parts}) == 1:
            return _kept(parts)
        return JoinedMatrix(tuple(_kept([part]) for part in parts))

    def table(self, raw: RawMatrix) -> Table:
        return _kept([raw])

    def expert_feed_forward(self, weights: ExpertWeights) -> FeedForward:
        count = weights.sizes.count
        gates, ups, downs = (_split(raw, count) for raw in (weights.gate, weights.up, weights.down))
        pairs = tuple(
            (self.matrix([gate, up]), self.matrix([down]))
            for gate, up, down in zip(gates, ups, downs, strict=True)
        )
        return _expert_feed_forward(self, weights, MatrixExperts(pairs))


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


def _split(raw: RawMatrix, count: int) -> list[RawMatrix]:
    """``count`` matrices that are stacked along their rows."""
    each = raw.rows // count
    return [raw.some_rows(slice(first, first + each)) for first in range(0, raw.rows, each)]


def _kept(parts: Sequence[RawMatrix]) -> Table:
    """Matrices of one type, rows one after the other."""
    kind, rows = parts[0].type, sum(part.rows for part in parts)
    pieces = in_pieces(parts, BLOCK_ROWS)
    if kind in QUANTISED_TYPES:
        return PackedMatrix.of_levels(rows, (piece.levels() for piece in pieces))
    if kind in HALF_TYPES and can_pack(parts[0].columns):
        return PackedMatrix.of_halves(rows, (piece.halves() for piece in pieces))
    return _dense(parts, torch.device("cpu"))


def _dense(parts: Sequence[RawMatrix], device: torch.device) -> DenseMatrix:
    rows = sum(part.rows for part in parts)
    return DenseMatrix.of_pieces(rows, parts[0].columns, _values(parts), device)


def _values(parts: Sequence[RawMatrix]) -> Iterator[Tensor]:
    """Float32, some rows at a time; the parts may have several types."""
    return (piece.values() for part in parts for piece in in_pieces([part]))
