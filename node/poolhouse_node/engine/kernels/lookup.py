"""Rows of a packed matrix as float32: the look-up of an embedding, in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from poolhouse_node.engine.kernels.launch import EXACT

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.kernels.packing import PackedWeight

__all__ = ["look_up"]


@triton.jit
def _look_up(
    quants,  # [tiles, steps, 4, 16, 32] int8
    scales,  # [tiles, steps, HALVES, 4, 16] float16
    leasts,
    index,  # [places] int64
    out,  # [places, columns] float32
    steps,
    columns,
    HALVES: tl.constexpr,
    HAS_LEASTS: tl.constexpr,
):
    """One step of one row."""
    step = tl.program_id(0)
    place = tl.program_id(1)
    row = tl.load(index + place)
    run = tl.arange(0, 4)[:, None]
    byte = tl.arange(0, 32)[None, :]
    at = (row // 16) * steps + step
    packed = tl.load(quants + at * 2048 + run * 512 + (row % 16) * 32 + byte).to(tl.int32)
    for half in tl.static_range(HALVES):
        if HALVES == 1:
            level = packed
        elif half == 0:
            level = (packed << 28) >> 28
        else:
            level = packed >> 4
        factor_at = (at * HALVES + half) * 64 + run * 16 + row % 16
        scale = tl.load(scales + factor_at).to(tl.float32)
        value = level.to(tl.float32) * scale
        if HAS_LEASTS:
            value += tl.load(leasts + factor_at).to(tl.float32) + 8.0 * scale
        k = ((step * 4 + run) * HALVES + half) * 32 + byte
        tl.store(out + place.to(tl.int64) * columns + k, value, mask=k < columns)


def look_up(weight: PackedWeight, index: Tensor) -> Tensor:
    """Rows ``index`` (int64) of ``weight``, [n, columns]. They must be there."""
    out = torch.empty(len(index), weight.columns, device=index.device)
    _look_up[(weight.steps, len(index))](
        weight.quants,
        weight.scales,
        weight.scales if weight.leasts is None else weight.leasts,
        index,
        out,
        weight.steps,
        weight.columns,
        HALVES=weight.halves,
        HAS_LEASTS=weight.leasts is not None,
        **EXACT,
        num_warps=1,
    )
    return out
