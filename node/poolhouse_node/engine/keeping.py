"""How weights are kept in memory: as float32, or about as small as their file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from poolhouse_node.engine.layers.experts import ExpertBank, MatrixExperts
from poolhouse_node.engine.layers.linear import DenseMatrix
from poolhouse_node.engine.layers.packed import JoinedMatrix, PackedMatrix, can_pack
from poolhouse_node.engine.quant import QUANTISED_TYPES
from poolhouse_node.engine.raw_matrix import HALF_TYPES, stacked_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.engine.layers.experts import Experts
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

    def experts(self, gate: RawMatrix, up: RawMatrix, down: RawMatrix, count: int) -> Experts:
        """``count`` networks, stacked along the rows of each matrix."""
        ...


class ExactKeeper:
    """Everything in float32: products are as exact as float32 is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def matrix(self, parts: Sequence[RawMatrix]) -> Matrix:
        return DenseMatrix(stacked_values(parts).to(self._device))

    def table(self, raw: RawMatrix) -> Table:
        return DenseMatrix(raw.values().to(self._device))

    def experts(self, gate: RawMatrix, up: RawMatrix, down: RawMatrix, count: int) -> Experts:
        stacks = (
            raw.values().view(count, -1, raw.columns).to(self._device) for raw in (gate, up, down)
        )
        return ExpertBank.of_matrices(*stacks)


class PackedKeeper:
    """On a CPU: the values of the file in about as many bytes as there; float32 stays float32."""

    def matrix(self, parts: Sequence[RawMatrix]) -> Matrix:
        if len({part.type for part in parts}) == 1:
            return _kept(_stacked(parts))
        return JoinedMatrix(tuple(_kept(part) for part in parts))

    def table(self, raw: RawMatrix) -> Table:
        return _kept(raw)

    def experts(self, gate: RawMatrix, up: RawMatrix, down: RawMatrix, count: int) -> Experts:
        return MatrixExperts(
            tuple(
                (
                    self.matrix([_one_of(gate, count, expert), _one_of(up, count, expert)]),
                    self.matrix([_one_of(down, count, expert)]),
                )
                for expert in range(count)
            )
        )


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


def _one_of(raw: RawMatrix, count: int, expert: int) -> RawMatrix:
    each = raw.rows // count
    return raw.some_rows(slice(expert * each, (expert + 1) * each))
