"""A matrix on the CPU whose weights stay about as small as in their file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from poolhouse_node.engine.layers.linear import Matrix
    from poolhouse_node.engine.quant import Levels

__all__ = ["JoinedMatrix", "PackedMatrix", "can_pack"]

_LANES = 64
"""Rows of a block, computed together: :mod:`poolhouse_node.engine.compiled.products`."""
_DIRECT_COLUMNS = 16
"""So many get the same bits in any company. More are multiplied after unpacking, which takes as
long as some ten of them."""
_BITS = {torch.bfloat16: torch.uint16, torch.float16: torch.int16}
"""The integers by which compiled code knows them."""


def can_pack(columns: int) -> bool:
    """Compiled code reads four columns at a time."""
    return columns % 4 == 0


class PackedMatrix:
    """Weights ``scale * level + least``: the values that a ``DenseMatrix`` would have."""

    __slots__ = ("_filled_rows", "_rows", "_weights")

    def __init__(self, rows: int, levels: Tensor, scales: Tensor, leasts: Tensor) -> None:
        """Everything in blocks of 64 rows: the levels as compiled code reads them, the others
        [blocks, groups, 64]. ``leasts`` may have no group. Compiles code, if need be."""
        from poolhouse_node.engine.compiled.products import prepare

        self._rows, self._filled_rows = rows, len(levels) * _LANES
        self._weights = levels.numpy(), scales.numpy(), leasts.numpy()
        prepare(self._weights[0].dtype.name, torch.get_num_threads())

    @classmethod
    def of_levels(cls, weight: Levels) -> PackedMatrix:
        """Of quantised weights. Levels that have four bits share bytes."""
        levels, scales = _in_blocks(weight.levels), _in_blocks(weight.scales)
        if weight.have_four_bits:
            low, high = levels.view(torch.uint8).split(_LANES // 2, dim=2)
            levels = low | (high << 4)
        leasts = scales[:, :0] if weight.leasts is None else _in_blocks(weight.leasts)
        return cls(len(weight.levels), levels, scales, leasts.contiguous())

    @classmethod
    def of_halves(cls, weight: Tensor) -> PackedMatrix:
        """Of bfloat16 or half floats [rows, columns]."""
        levels = _in_blocks(weight.view(torch.int16)).view(_BITS[weight.dtype])
        ones = torch.ones(len(levels), 1, _LANES)
        return cls(len(weight), levels, ones, ones[:, :0].contiguous())

    @property
    def held_bytes(self) -> int:
        return sum(array.nbytes for array in self._weights)

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] > _DIRECT_COLUMNS:
            return x @ _unpacked(*self._weights)[:, : self._rows]
        return self._direct(x)[:, : self._rows]

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of ``W``, float32 [n, in]."""
        blocks, lanes = (index // _LANES).numpy(), index % _LANES
        unpacked = _unpacked(*(array[blocks] for array in self._weights))
        return unpacked[:, torch.arange(len(index)) * _LANES + lanes].T.contiguous()

    def _direct(self, x: Tensor) -> Tensor:
        """[n, in] to [n, out, filled up], straight from the levels."""
        from poolhouse_node.engine.compiled.products import multiply

        out = torch.empty(x.shape[0], self._filled_rows)
        multiply(*self._weights, x.contiguous().numpy(), out.numpy())
        return out


@dataclass(frozen=True, slots=True)
class JoinedMatrix:
    """Matrices of the same input that are kept in different ways, rows one after the other."""

    parts: tuple[Matrix, ...]

    @property
    def held_bytes(self) -> int:
        return sum(part.held_bytes for part in self.parts)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], dim=-1)


def _in_blocks(values: Tensor) -> Tensor:
    """[rows, n] to [blocks, n, 64], filled up with zeros: a scale of 0 makes nothing of them."""
    filled = functional.pad(values, (0, 0, 0, -len(values) % _LANES))
    return filled.view(-1, _LANES, values.shape[1]).transpose(1, 2).contiguous()


def _unpacked(
    levels: NDArray[np.generic], scales: NDArray[np.float32], leasts: NDArray[np.float32]
) -> Tensor:
    """A whole matrix as float32 [in, out, filled up], for a moment."""
    from poolhouse_node.engine.compiled.products import unpack

    out = torch.empty(levels.shape[1], len(levels) * _LANES)
    unpack(levels, scales, leasts, out.numpy())
    return out
