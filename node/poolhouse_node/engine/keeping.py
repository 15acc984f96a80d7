"""How weights are kept in memory: as float32, or about as small as their file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from poolhouse_node.engine.layers.experts import ExpertBank, MatrixExperts
from poolhouse_node.engine.layers.four_bits import GROUP, FourBitMatrix
from poolhouse_node.engine.layers.linear import Bfloat16Matrix, DenseMatrix
from poolhouse_node.engine.raw_matrix import FOUR_BIT_TYPES, stacked_values
from poolhouse_node.weights.ggml_types import GgmlType

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
    """On a CPU: 4-bit weights stay so, float32 ones too, all others are bfloat16."""

    def matrix(self, parts: Sequence[RawMatrix]) -> Matrix:
        kinds = {part.type for part in parts}
        if len(kinds) == 1 and kinds <= FOUR_BIT_TYPES and parts[0].columns % GROUP == 0:
            return FourBitMatrix(_stacked(parts).four_bits())
        if kinds == {GgmlType.F32}:  # small ones, on which choices hang: routers
            return DenseMatrix(stacked_values(parts))
        return Bfloat16Matrix(stacked_values(parts))

    def table(self, raw: RawMatrix) -> Table:
        return Bfloat16Matrix(raw.values())

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


def _stacked(parts: Sequence[RawMatrix]) -> RawMatrix:
    first, *others = parts
    if not others:
        return first
    return first.reordered(lambda data: torch.cat([data, *(part.data for part in others)]))


def _one_of(raw: RawMatrix, count: int, expert: int) -> RawMatrix:
    each = raw.rows // count
    return raw.some_rows(slice(expert * each, (expert + 1) * each))
