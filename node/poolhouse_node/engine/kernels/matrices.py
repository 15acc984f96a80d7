"""Weight matrices on a CUDA device, packed or bfloat16, that also take columns from kernels."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from poolhouse_node.engine.kernels.activations import COLUMNS, Wide, fill, levels_for, wide_for
from poolhouse_node.engine.kernels.dequantise import dequantise
from poolhouse_node.engine.kernels.lookup import look_up
from poolhouse_node.engine.kernels.packing import (
    BLOCK,
    PACKABLE,
    ROWS,
    PackedWeight,
    pack,
    requantise,
    stack,
)
from poolhouse_node.engine.kernels.products import product
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import GgmlType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.engine.kernels.activations import Levels, Target
    from poolhouse_node.engine.raw_matrix import RawMatrix

__all__ = [
    "HalfMatrix",
    "KernelMatrix",
    "MixedMatrix",
    "PackedMatrix",
    "added",
    "matrix_of",
    "packed_weight",
]

_PACKED_AT_ONCE = 1 << 26
"""Values: packing takes some four bytes for each besides."""


def matrix_of(parts: Sequence[RawMatrix], device: torch.device) -> KernelMatrix:
    """Matrices of one input, rows one after the other, on ``device``.

    Packable types stay as they are; F16 and BF16 ones become bfloat16 if all are; others become
    eight bits. Raises :class:`ShardError` for what cannot be computed with.
    """
    if {part.type for part in parts} <= {GgmlType.F16, GgmlType.BF16}:
        return HalfMatrix(torch.cat([part.values().to(device, torch.bfloat16) for part in parts]))
    runs = itertools.groupby(parts, lambda part: part.type if part.type in PACKABLE else None)
    weights = [packed_weight(list(same), device) for _, same in runs]
    return PackedMatrix(weights[0]) if len(weights) == 1 else MixedMatrix(weights)


def packed_weight(parts: Sequence[RawMatrix], device: torch.device) -> PackedWeight:
    """Parts of one packable type, or of any others, as one matrix on ``device``.

    Some rows at a time: what packing needs besides stays small.
    """
    packs = len({part.type for part in parts}) == 1 and parts[0].type in PACKABLE
    if packs:
        parts = [replace(parts[0], data=torch.cat([part.data for part in parts]))]
    columns = parts[0].columns
    step = max(1, _PACKED_AT_ONCE // columns // ROWS) * ROWS
    pieces = [
        part.some_rows(slice(start, start + step))
        for part in parts
        for start in range(0, part.rows, step)
    ]
    if packs:
        return stack([pack(p.data.to(device), p.type, (p.rows, columns)) for p in pieces])
    values = torch.cat([piece.values() for piece in pieces])
    rows = [values[start : start + step].to(device) for start in range(0, len(values), step)]
    return stack([requantise(some) for some in rows])


class KernelMatrix(Protocol):
    """A ``Matrix`` whose columns another kernel may write, each as it needs them."""

    @property
    def held_bytes(self) -> int:
        """Memory it takes."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """[n, in] to [n, out], float32."""
        ...

    def target(self, columns: int) -> Target:
        """Room for the columns of a product."""
        ...

    def multiply(self, x: Target) -> Tensor:
        """Parts [parts, columns, out], to be added up in order."""
        ...


class PackedMatrix:
    """Multiplies straight from 4-bit or 8-bit blocks.

    Up to :data:`COLUMNS` columns a column's bits do not depend on its neighbours. More are
    multiplied in bfloat16, with the weights unpacked for the moment.
    """

    __slots__ = ("weight",)

    def __init__(self, weight: PackedWeight) -> None:
        self.weight = weight

    @property
    def held_bytes(self) -> int:
        return self.weight.held_bytes

    def __call__(self, x: Tensor) -> Tensor:
        return _multiplied(self, x)

    def target(self, columns: int) -> Target:
        device = self.weight.quants.device
        if columns > COLUMNS:
            return wide_for(columns, self.weight.columns, device)
        return levels_for(columns, self.weight.padded_columns, device)

    def levels_apart(self, columns: int) -> Levels:
        """Room for columns that are multiplied by different experts."""
        device = self.weight.quants.device
        return levels_for(columns, self.weight.padded_columns, device, apart=True)

    def multiply(self, x: Target) -> Tensor:
        return _product(self.weight, x)

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of the matrix as float32 [n, in]: the look-up of a table."""
        return look_up(self.weight, index)


class MixedMatrix:
    """Packed matrices of several types, one below the other. Multiplies as they do."""

    __slots__ = ("_weights",)

    def __init__(self, weights: Sequence[PackedWeight]) -> None:
        self._weights = tuple(weights)

    @property
    def held_bytes(self) -> int:
        return sum(weight.held_bytes for weight in self._weights)

    def __call__(self, x: Tensor) -> Tensor:
        return _multiplied(self, x)

    def target(self, columns: int) -> Target:
        device = self._weights[0].quants.device
        if columns > COLUMNS:
            return wide_for(columns, self._weights[0].columns, device)
        # Types are filled up to steps of their own: the longest has room for the others.
        padded = max(weight.padded_columns for weight in self._weights)
        return levels_for(columns, padded, device)

    def multiply(self, x: Target) -> Tensor:
        rows = [added(_product(weight, x)) for weight in self._weights]
        return torch.cat(rows, dim=1).unsqueeze(0)


class HalfMatrix:
    """bfloat16, made of ``weight`` [out, in]. Activations are rounded to bfloat16 as well.

    Frames of up to :data:`COLUMNS` columns are all multiplied at that width, so that the library
    takes the same order of sums for each.
    """

    __slots__ = ("_weight",)

    def __init__(self, weight: Tensor) -> None:
        if weight.shape[1] % BLOCK:
            raise ShardError(f"A bfloat16 matrix of {weight.shape[1]} columns is not computed.")
        self._weight = weight.to(torch.bfloat16).contiguous()

    @property
    def held_bytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return _multiplied(self, x)

    def target(self, columns: int) -> Target:
        return wide_for(columns, self._weight.shape[1], self._weight.device)

    def multiply(self, x: Target) -> Tensor:
        if not isinstance(x, Wide):
            raise ShardError("A bfloat16 matrix takes bfloat16 columns.")
        return _wide_product(self._weight, x)

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of the matrix as float32 [n, in]."""
        return self._weight[index].float()


def _multiplied(matrix: KernelMatrix, x: Tensor) -> Tensor:
    target = matrix.target(x.shape[0])
    fill(target, x)
    return added(matrix.multiply(target))


def added(parts: Tensor) -> Tensor:
    """The sum of a product's parts, in order."""
    total = parts[0]
    for part in parts[1:]:  # one by one: torch's own sum takes an order of its own
        total = total + part
    return total


def _product(weight: PackedWeight, x: Target) -> Tensor:
    if isinstance(x, Wide):
        return _wide_product(dequantise(weight), x)
    return product(weight, x)


def _wide_product(weight: Tensor, x: Wide) -> Tensor:
    if weight.is_cuda:
        result = torch.mm(x.values, weight.T, out_dtype=torch.float32)
    else:
        result = x.values.float() @ weight.float().T
    return result[: x.columns].unsqueeze(0)
