"""A 4-bit matrix on the CPU: torch's product of bfloat16 columns with packed levels.

It reads an eighth of the bytes of float32 and is the only product of its kind that torch
vectorises, but it rounds columns, scales and results to eight bits: left alone, logits of SmolLM2
are up to 0.4 off. Columns go in several sizes therefore (:mod:`.sized_columns`), and scales are
kept in two parts, of which the second is multiplied on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from poolhouse_node.engine.layers.sized_columns import DIRECT_COLUMNS, sized, summed

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.raw_matrix import FourBits

__all__ = ["GROUP", "FourBitMatrix", "is_layout_known"]

# Operators without a public name, seen in torch 2.14; where they differ all is computed exactly.
_multiply = torch.ops.aten._weight_int4pack_mm_for_cpu  # noqa: SLF001
_convert = torch.ops.aten._convert_weight_to_int4pack_for_cpu  # noqa: SLF001

GROUP = 32
"""Columns that share a scale."""
_ROW_BLOCK = 64
"""torch packs as many rows together at most: with less left over it packs in another way."""


@dataclass(frozen=True, slots=True)
class _Scales:
    """bfloat16 [groups, rows, 2]: scales, and the values of level 8; ``rest`` is what is left."""

    main: Tensor
    rest: Tensor

    @classmethod
    def of(cls, weight: FourBits) -> _Scales:
        middles = weight.leasts + 8 * weight.scales
        exact = torch.stack([weight.scales, middles], dim=2).transpose(0, 1).contiguous()
        main = exact.bfloat16()
        return cls(main, (exact - main.float()).bfloat16())

    def exact(self) -> Tensor:
        """Float32, to sixteen bits."""
        return self.main.float() + self.rest.float()


class FourBitMatrix:
    """Made of levels and scales, which it does not keep. Columns must be a multiple of 32."""

    __slots__ = ("_levels", "_rows", "_scales")

    def __init__(self, weight: FourBits) -> None:
        self._rows = weight.levels.shape[0]
        self._levels = _pack(_filled(weight.levels))
        self._scales = _Scales.of(
            type(weight)(weight.levels, _filled(weight.scales), _filled(weight.leasts))
        )

    @property
    def held_bytes(self) -> int:
        return self._levels.nbytes + self._scales.main.nbytes + self._scales.rest.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] > DIRECT_COLUMNS:
            return x @ self.transposed()[:, : self._rows]
        return self.direct(x)[:, : self._rows]

    def direct(self, x: Tensor) -> Tensor:
        """[n, columns] to [n, rows, filled up], straight from the packed levels."""
        columns = sized(x)
        total = summed(_product(columns, self._levels, self._scales.main))
        return total.add_(_product(columns[: x.shape[0]], self._levels, self._scales.rest))

    def transposed(self) -> Tensor:
        """The whole matrix as float32 [columns, rows, filled up]: for a moment, for many columns.

        Unpacking costs as much as some twenty columns, whatever their number.
        """
        levels = _unpack(self._levels)
        columns, rows = levels.shape
        scales = self._scales.exact()
        grouped = levels.view(columns // GROUP, GROUP, rows)
        grouped.sub_(8.0).mul_(scales[:, None, :, 0]).add_(scales[:, None, :, 1])
        return levels


def _product(x: Tensor, levels: Tensor, scales: Tensor) -> Tensor:
    product: Tensor = _multiply(x, levels, GROUP, scales)
    return product


def _pack(levels: Tensor) -> Tensor:
    packed: Tensor = _convert(levels.int(), 1)
    return packed


def _filled(rows: Tensor) -> Tensor:
    """Rows of zeros up to whole blocks: their scales are 0, whatever their levels are."""
    return functional.pad(rows, (0, 0, 0, -rows.shape[0] % _ROW_BLOCK))


def _unpack(packed: Tensor) -> Tensor:
    """Levels as float32 [columns, rows], out of bytes [rows, columns / 2]: undoes :func:`_pack`.

    With AVX-512 a byte holds two rows of a block of 64, 32 apart; with AVX2 of a block of 32, 16
    apart. Checked by :func:`is_layout_known`.
    """
    block = 64 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 32
    rows, columns = packed.shape[0], 2 * packed.shape[1]
    grid = packed.view(rows // block, columns, block // 2)
    levels = torch.empty(columns, rows // block, 2, block // 2)
    by_column = grid.transpose(0, 1)
    levels[:, :, 0] = by_column & 15
    levels[:, :, 1] = by_column >> 4
    return levels.view(columns, rows)


def is_layout_known() -> bool:
    """Whether torch has these operators here and packs as :func:`_unpack` expects."""
    random = torch.Generator().manual_seed(5)
    levels = torch.randint(16, (2 * _ROW_BLOCK, 2 * GROUP), generator=random, dtype=torch.uint8)
    try:
        return torch.equal(_unpack(_pack(levels)).T, levels.float())
    except (RuntimeError, AttributeError):
        return False
