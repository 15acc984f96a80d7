"""A matrix on the CPU whose weights stay about as small as in their file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from poolhouse_node.engine.layers.linear import Matrix
    from poolhouse_node.engine.quant import Levels

__all__ = ["BLOCK_ROWS", "JoinedMatrix", "PackedMatrix", "can_pack"]

BLOCK_ROWS = 64
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

        self._rows, self._filled_rows = rows, len(levels) * BLOCK_ROWS
        self._weights = levels.numpy(), scales.numpy(), leasts.numpy()
        prepare(self._weights[0].dtype.name, torch.get_num_threads())

    @classmethod
    def of_levels(cls, rows: int, pieces: Iterable[Levels]) -> PackedMatrix:
        """Of quantised weights that come some rows at a time, all but the last in whole blocks."""
        return cls(rows, *_gathered(rows, (_level_blocks(piece) for piece in pieces)))

    @classmethod
    def of_halves(cls, rows: int, pieces: Iterable[Tensor]) -> PackedMatrix:
        """Of bfloat16 or half floats [n, columns] that come as those of :meth:`of_levels`."""
        return cls(rows, *_gathered(rows, (_half_blocks(piece) for piece in pieces)))

    @property
    def held_bytes(self) -> int:
        return sum(array.nbytes for array in self._weights)

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] > _DIRECT_COLUMNS:
            return x @ _unpacked(*self._weights)[:, : self._rows]
        return self._direct(x)[:, : self._rows]

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of ``W``, float32 [n, in]."""
        blocks, lanes = (index // BLOCK_ROWS).numpy(), index % BLOCK_ROWS
        unpacked = _unpacked(*(array[blocks] for array in self._weights))
        return unpacked[:, torch.arange(len(index)) * BLOCK_ROWS + lanes].T.contiguous()

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


type _Blocks = tuple[Tensor, Tensor, Tensor]
"""Levels, scales and leasts as :class:`PackedMatrix` takes them."""


def _level_blocks(weight: Levels) -> _Blocks:
    """Levels that have four bits share bytes."""
    levels, scales = _in_blocks(weight.levels), _in_blocks(weight.scales)
    if weight.have_four_bits:
        low, high = levels.view(torch.uint8).split(BLOCK_ROWS // 2, dim=2)
        levels = low | (high << 4)
    return levels, scales, scales[:, :0] if weight.leasts is None else _in_blocks(weight.leasts)


def _half_blocks(weight: Tensor) -> _Blocks:
    levels = _in_blocks(weight.view(torch.int16)).view(_BITS[weight.dtype])
    ones = torch.ones(len(levels), 1, BLOCK_ROWS)
    return levels, ones, ones[:, :0]


def _gathered(rows: int, pieces: Iterable[_Blocks]) -> _Blocks:
    """One below the other. A piece may go when the next is made: together they would take as much
    as the result."""
    whole: list[Tensor] = []
    done = 0
    for piece in pieces:
        if not whole:
            count = -(-rows // BLOCK_ROWS)
            whole = [torch.empty((count, *part.shape[1:]), dtype=part.dtype) for part in piece]
        stop = done + len(piece[0])
        for to, part in zip(whole, piece, strict=True):
            to[done:stop] = part
        done = stop
    levels, scales, leasts = whole
    return levels, scales, leasts


def _in_blocks(values: Tensor) -> Tensor:
    """[rows, n] to [blocks, n, 64], filled up with zeros: a scale of 0 makes nothing of them."""
    filled = functional.pad(values, (0, 0, 0, -len(values) % BLOCK_ROWS))
    return filled.view(-1, BLOCK_ROWS, values.shape[1]).transpose(1, 2).contiguous()


def _unpacked(
    levels: NDArray[np.generic], scales: NDArray[np.float32], leasts: NDArray[np.float32]
) -> Tensor:
    """A whole matrix as float32 [in, out, filled up], for a moment."""
    from poolhouse_node.engine.compiled.products import unpack

    out = torch.empty(levels.shape[1], len(levels) * BLOCK_ROWS)
    unpack(levels, scales, leasts, out.numpy())
    return out
