"""Packed weights times a few columns, on the tensor cores (see :mod:`.packing`).

Every product of a run with a column is an exact integer; scales are put on it in float32, block
after block in one order that depends on the matrix alone. So a column's result has the same bits
whether it is computed alone or beside fifteen others: point by point the same operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from poolhouse_node.engine.kernels.language import high_nibbles, low_nibbles
from poolhouse_node.engine.kernels.launch import EXACT, inline_assembly
from poolhouse_node.engine.kernels.packing import BLOCK, ROWS
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.kernels.activations import Levels
    from poolhouse_node.engine.kernels.packing import PackedWeight

__all__ = ["expert_product", "parts_of", "product"]

_TILES = 2
"""Of a program: with more, registers run out; with one, columns are read too often."""
_STAGES = 3
"""Steps under way at once."""
_PROGRAMS = 1100
"""Programs of one warp that keep the memory of a large GPU busy."""
_MOST_PARTS = 8


@triton.jit
def _product(
    quants,  # [tiles, STEPS, 4, 16, 32] int8
    scales,  # [tiles, STEPS, HALVES, 4, 16] float16
    leasts,  # the same, read when HAS_LEASTS
    levels,  # [jobs, blocks, WIDTH, 32] int8
    factors,  # [jobs, blocks, WIDTH] float32
    sums,  # [jobs, blocks, WIDTH] float32
    chosen,  # [jobs] int32, the expert of each job, read when HAS_EXPERTS
    out,  # [jobs, PARTS, columns, rows] float32
    columns,
    rows,
    expert_tiles,
    jobs_per_input,
    all_tiles,
    STEPS: tl.constexpr,
    HALVES: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    HAS_LEASTS: tl.constexpr,
    HAS_EXPERTS: tl.constexpr,
    ASSEMBLY: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
):
    """``TILES`` tiles of rows, one part of the steps (every ``PARTS``-th), all columns."""
    tile = tl.program_id(0) * TILES
    part = tl.program_id(1)
    job = tl.program_id(2)
    row = tl.arange(0, 16 * TILES)
    run = tl.arange(0, 4)
    byte = tl.arange(0, 32)
    column = tl.arange(0, WIDTH)
    first_tile = tile
    if HAS_EXPERTS:
        first_tile += tl.load(chosen + job) * expert_tiles
    used = column < 2 * columns
    blocks: tl.constexpr = STEPS * 4 * HALVES
    inputs = (job // jobs_per_input).to(tl.int64) * blocks
    sums_by_run = tl.zeros((4, 16 * TILES, WIDTH), tl.float32)
    for step in tl.range(part, STEPS, PARTS, num_stages=STAGES):
        # Past the last tile the last one is read again: what comes of it is not stored.
        at = tl.minimum(first_tile + row // 16, all_tiles - 1).to(tl.int64) * STEPS + step
        packed = tl.load(
            quants
            + at[None, :, None] * 2048
            + run[:, None, None] * 512
            + (row % 16)[None, :, None] * 32
            + byte[None, None, :]
        )
        for half in tl.static_range(HALVES):
            if HALVES == 1:
                weights = packed
            elif half == 0:
                weights = low_nibbles(packed, ASSEMBLY)
            else:
                weights = high_nibbles(packed, ASSEMBLY)
            factor_at = (at * HALVES + half)[None, :] * 64 + run[:, None] * 16 + (row % 16)[None, :]
            scale = tl.load(scales + factor_at).to(tl.float32)
            block = inputs + (step * 4 + run) * HALVES + half
            x = tl.load(
                levels
                + (block[:, None, None] * WIDTH + column[None, None, :]) * 32
                + byte[None, :, None],
                mask=used[None, None, :],
                other=0,
            )
            column_at = block[:, None] * WIDTH + column[None, :]
            factor = tl.load(factors + column_at, mask=used[None, :], other=0.0)
            exact = tl.dot(weights, x, out_dtype=tl.int32)
            both = scale[:, :, None] * factor[:, None, :]
            sums_by_run = tl.fma(exact.to(tl.float32), both, sums_by_run)
            if HAS_LEASTS:
                least = tl.load(leasts + factor_at).to(tl.float32)
                total = tl.load(sums + column_at, mask=used[None, :], other=0.0)
                # Levels are 8 less than the format's, and here 16 times themselves.
                offset = (least + 8.0 * scale) * 16.0
                sums_by_run += offset[:, :, None] * total[:, None, :]
    by_level = tl.reshape(tl.sum(sums_by_run, axis=0), (16 * TILES, WIDTH // 2, 2))
    result = tl.sum(by_level, axis=2)
    if HALVES == 2:
        result = result * 0.0625
    n = tile * 16 + row
    token = tl.arange(0, WIDTH // 2)
    tl.store(
        out + ((job * PARTS + part) * columns + token[None, :]) * rows + n[:, None],
        result,
        mask=(token < columns)[None, :] & (n < rows)[:, None],
    )


def parts_of(weight: PackedWeight) -> int:
    """In how many parts the columns of ``weight`` are summed. Depends on the matrix only."""
    programs = -(-weight.rows // (ROWS * _TILES))
    wanted = max(1, _PROGRAMS // programs)
    return min(1 << (wanted.bit_length() - 1), _MOST_PARTS, weight.steps)


def product(weight: PackedWeight, x: Levels) -> Tensor:
    """``W x`` in parts [parts, columns, rows], to be added up in order by who reads them."""
    out = torch.empty(parts_of(weight), x.columns, weight.rows, device=x.levels.device)
    _launch(weight, x, out, jobs=1, columns=x.columns)
    return out


def expert_product(weight: PackedWeight, experts: int, chosen: Tensor, x: Levels) -> Tensor:
    """``W[e] x`` for every job: ``chosen`` [jobs] int32 says which of the stacked experts.

    ``x`` has its columns apart, and as many jobs follow each other for each of them. Returns
    [jobs, rows of an expert].
    """
    jobs, rows = chosen.shape[0], weight.rows // experts
    if rows % ROWS:
        raise ShardError(f"Experts of {rows} rows cannot be packed, only of a multiple of {ROWS}.")
    out = torch.empty(jobs, rows, device=x.levels.device)
    _launch(weight, x, out, jobs=jobs, columns=1, chosen=chosen, rows=rows)
    return out


def _launch(
    weight: PackedWeight,
    x: Levels,
    out: Tensor,
    *,
    jobs: int,
    columns: int,
    chosen: Tensor | None = None,
    rows: int | None = None,
) -> None:
    spare = x.levels.shape[1] * BLOCK - weight.padded_columns
    if spare < 0 or (spare and x.apart):
        raise ShardError("The columns of a product do not fit its matrix.")
    rows = weight.rows if rows is None else rows
    parts = out.shape[0] if chosen is None else 1
    _product[(triton.cdiv(rows, ROWS * _TILES), parts, jobs)](
        weight.quants,
        weight.scales,
        weight.scales if weight.leasts is None else weight.leasts,
        x.levels,
        x.factors,
        x.sums,
        weight.scales if chosen is None else chosen,
        out,
        columns,
        rows,
        rows // ROWS,
        jobs // x.levels.shape[0],
        weight.quants.shape[0],
        STEPS=weight.steps,
        HALVES=weight.halves,
        WIDTH=x.width,
        PARTS=parts,
        HAS_LEASTS=weight.leasts is not None,
        HAS_EXPERTS=chosen is not None,
        ASSEMBLY=inline_assembly(),
        TILES=_TILES,
        STAGES=_STAGES,
        **EXACT,
        # One warp: sums over runs stay within it, in the same order for every width.
        num_warps=1,
    )
