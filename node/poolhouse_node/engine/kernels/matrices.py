"""Weight matrices on a CUDA device, packed or bfloat16, that also take columns from kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from poolhouse_node.engine.kernels.activations import COLUMNS, Wide, fill, levels_for, wide_for
from poolhouse_node.engine.kernels.dequantise import dequantise
from poolhouse_node.engine.kernels.packing import (
    BLOCK,
    PACKABLE,
    ROWS,
    PackedWeight,
    pack,
    requantise,
    stack,
    unpack,
)
from poolhouse_node.engine.kernels.products import product
from poolhouse_node.engine.quant import dequantise as dequantise_blocks
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import GgmlType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from poolhouse_node.engine.kernels.activations import Levels, Target

__all__ = ["FileMatrix", "HalfMatrix", "KernelMatrix", "PackedMatrix", "matrix_of"]


@dataclass(frozen=True, slots=True)
class FileMatrix:
    """A matrix as it lies in a model file: its blocks, on any device or mapped."""

    data: NDArray[np.uint8]
    kind: GgmlType
    shape: tuple[int, int]


def matrix_of(parts: Sequence[FileMatrix], device: torch.device) -> KernelMatrix:
    """Matrices of one input, rows one after the other, on ``device``.

    Those of one packable type stay as they are; F16 and BF16 ones become bfloat16; others, and
    mixed ones, eight bits. Raises :class:`ShardError` for what cannot be computed with.
    """
    kinds = {part.kind for part in parts}
    if len(kinds) == 1 and kinds <= PACKABLE:
        packed = [pack(_on(part, device), part.kind, part.shape) for part in parts]
        return PackedMatrix(stack(packed))
    values = torch.cat(
        [dequantise_blocks(part.data.reshape(-1), part.kind, part.shape) for part in parts]
    ).to(device)
    if kinds <= {GgmlType.F16, GgmlType.BF16}:
        return HalfMatrix(values)
    return PackedMatrix(requantise(values))


def _on(part: FileMatrix, device: torch.device) -> Tensor:
    # A copy: torch wants writable memory, and the map is not.
    return torch.from_numpy(np.array(part.data)).to(device)


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
        if isinstance(x, Wide):
            return _wide_product(dequantise(self.weight), x)
        return product(self.weight, x)

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of the matrix as float32 [n, in]: the look-up of a table."""
        weight = self.weight
        tiles = torch.div(index, ROWS, rounding_mode="floor")
        some = PackedWeight(
            rows=len(index) * ROWS,
            columns=weight.columns,
            quants=weight.quants[tiles],
            scales=weight.scales[tiles],
            leasts=None if weight.leasts is None else weight.leasts[tiles],
        )
        places = torch.arange(len(index), device=index.device) * ROWS + index % ROWS
        return unpack(some)[places]


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
    parts = matrix.multiply(target)
    total = parts[0]
    for part in parts[1:]:  # one by one: torch's own sum takes an order of its own
        total = total + part
    return total


def _wide_product(weight: Tensor, x: Wide) -> Tensor:
    if weight.is_cuda:
        result = torch.mm(x.values, weight.T, out_dtype=torch.float32)
    else:
        result = x.values.float() @ weight.float().T
    return result[: x.columns].unsqueeze(0)
