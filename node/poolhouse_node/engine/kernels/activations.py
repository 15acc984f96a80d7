"""Columns as the right side of a product: two levels of int8 for packed weights, or bfloat16.

Kernels that end in values for a product write them in this form themselves; a :class:`Target`
tells them where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from poolhouse_node.engine.kernels.language import put_blocks
from poolhouse_node.engine.kernels.launch import EXACT
from poolhouse_node.engine.kernels.packing import BLOCK

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "COLUMNS",
    "Levels",
    "Target",
    "Wide",
    "clear_from",
    "fill",
    "levels_for",
    "target_arguments",
    "wide_for",
]

COLUMNS = 16
"""As many columns as the widest frame of drafts has."""
_LEAST_WIDTH = 8
"""Of a tensor-core product."""


@dataclass(frozen=True, slots=True)
class Levels:
    """``columns`` columns, level by level; for packed weights.

    ``levels`` [inputs, blocks, width, 32] int8; ``factors`` [inputs, blocks, width] float32 are
    the scales; ``sums`` the scaled sums of each block, for formats with a least value. Either one
    input holds all columns, column c with its two levels at ``2 * c``, or (``apart``) each column
    is an input of its own. Places of columns that are not used are not written.
    """

    columns: int
    apart: bool
    levels: Tensor
    factors: Tensor
    sums: Tensor

    @property
    def width(self) -> int:
        return self.levels.shape[2]


@dataclass(frozen=True, slots=True)
class Wide:
    """``columns`` columns as bfloat16, the first rows of ``values`` [rows, n]."""

    columns: int
    values: Tensor


type Target = Levels | Wide
"""Where a kernel writes columns."""


def levels_for(columns: int, values: int, device: torch.device, *, apart: bool = False) -> Levels:
    """Room for columns of ``values`` values, a multiple of 32."""
    inputs, blocks = (columns if apart else 1), values // BLOCK
    width = _LEAST_WIDTH
    if not apart:
        width = max(width, 2 * triton.next_power_of_2(columns))
    return Levels(
        columns,
        apart,
        torch.empty(inputs, blocks, width, BLOCK, dtype=torch.int8, device=device),
        torch.empty(inputs, blocks, width, device=device),
        torch.empty(inputs, blocks, width, device=device),
    )


def wide_for(columns: int, values: int, device: torch.device) -> Wide:
    """Room for columns; never less than :data:`COLUMNS` rows, so that a product of a narrow frame
    has the shape of that of a wide one and so its order of sums."""
    # What lies in rows that are not used changes no other row of the product.
    shape = (max(columns, COLUMNS), values)
    return Wide(columns, torch.empty(shape, dtype=torch.bfloat16, device=device))


def target_arguments(target: Target) -> dict[str, Any]:
    """The keyword arguments of kernels that end in ``put_blocks``."""
    if isinstance(target, Wide):
        unused, values = target.values, target.values.shape[1]
        return {
            "levels": unused,
            "factors": unused,
            "sums": unused,
            "wide": target.values,
            "blocks": triton.cdiv(values, BLOCK),
            "values": values,
            "IS_WIDE": True,
            "APART": False,
            "WIDTH": _LEAST_WIDTH,
        }
    blocks = target.levels.shape[1]
    return {
        "levels": target.levels,
        "factors": target.factors,
        "sums": target.sums,
        "wide": target.levels,
        "blocks": blocks,
        "values": blocks * BLOCK,
        "IS_WIDE": False,
        "APART": target.apart,
        "WIDTH": target.width,
    }


def clear_from(target: Target, used: int) -> None:
    """Zeros past the first ``used`` values, for kernels that write no more: padded matrices read
    on. Nothing is launched when there is no padding."""
    if isinstance(target, Levels) and used < target.levels.shape[1] * BLOCK:
        for tensor in (target.levels, target.factors, target.sums):
            tensor[:, used // BLOCK :].zero_()


@triton.jit
def _fill(
    x,  # [columns, length] float32
    length,
    levels,
    factors,
    sums,
    wide,
    blocks,
    values,
    IS_WIDE: tl.constexpr,
    APART: tl.constexpr,
    WIDTH: tl.constexpr,
    SPAN: tl.constexpr,
):
    """``SPAN`` blocks of one column."""
    column = tl.program_id(1)
    block = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    loaded = tl.load(x + column * length + at, mask=at < length, other=0.0)
    put_blocks(
        loaded, block, column, levels, factors, sums, wide, blocks, values, IS_WIDE, APART, WIDTH
    )


def fill(target: Target, x: Tensor) -> None:
    """Put columns ``x`` [columns, n] float32 into ``target``; what it has more is zero."""
    arguments, span = target_arguments(target), 16
    grid = (triton.cdiv(arguments["blocks"], span), x.shape[0])
    _fill[grid](x.contiguous(), x.shape[1], **arguments, SPAN=span, **EXACT)
