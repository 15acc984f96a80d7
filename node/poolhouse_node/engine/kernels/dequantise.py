"""Packed weights to bfloat16, for products with many columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from poolhouse_node.engine.kernels.packing import ROWS

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.kernels.packing import PackedWeight

__all__ = ["dequantise"]


@triton.jit
def _dequantise(
    quants,  # [tiles, steps, 4, 16, 32] int8
    scales,  # [tiles, steps, HALVES, 4, 16] float16
    leasts,
    out,  # [rows, columns] bfloat16
    steps,
    rows,
    columns,
    HALVES: tl.constexpr,
    HAS_LEASTS: tl.constexpr,
):
    """One step of one tile."""
    step = tl.program_id(0)
    tile = tl.program_id(1)
    run = tl.arange(0, 4)[:, None, None]
    row = tl.arange(0, 16)[None, :, None]
    byte = tl.arange(0, 32)[None, None, :]
    at = tile.to(tl.int64) * steps + step
    packed = tl.load(quants + at * 2048 + run * 512 + row * 32 + byte).to(tl.int32)
    n = tile.to(tl.int64) * 16 + row
    for half in tl.static_range(HALVES):
        if HALVES == 1:
            level = packed
        elif half == 0:
            level = (packed << 28) >> 28
        else:
            level = packed >> 4
        factor_at = (at * HALVES + half) * 64 + run * 16 + row
        scale = tl.load(scales + factor_at).to(tl.float32)
        value = level.to(tl.float32) * scale
        if HAS_LEASTS:
            value += tl.load(leasts + factor_at).to(tl.float32) + 8.0 * scale
        k = ((step * 4 + run) * HALVES + half) * 32 + byte
        mask = (n < rows) & (k < columns)
        tl.store(out + n * columns + k, value.to(tl.bfloat16), mask=mask)


def dequantise(weight: PackedWeight, out: Tensor | None = None) -> Tensor:
    """[rows, columns] bfloat16, into ``out`` when it is given: a flat buffer of enough size."""
    count = weight.rows * weight.columns
    if out is None:
        out = torch.empty(count, dtype=torch.bfloat16, device=weight.quants.device)
    _dequantise[(weight.steps, triton.cdiv(weight.rows, ROWS))](
        weight.quants,
        weight.scales,
        weight.scales if weight.leasts is None else weight.leasts,
        out,
        weight.steps,
        weight.rows,
        weight.columns,
        HALVES=weight.halves,
        HAS_LEASTS=weight.leasts is not None,
        num_warps=4,
    )
    return out[:count].view(weight.rows, weight.columns)
