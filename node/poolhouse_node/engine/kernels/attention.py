"""Full attention between its products: heads, paged keys and values, the decode kernel.

Rows of a room lie in blocks of a pool [blocks, rows of a block, kv heads, size], float16; a table
of int32 says which. Positions and tables are data on the device, so that one CUDA graph serves
every position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from poolhouse_node.engine.kernels.activations import clear_from, target_arguments
from poolhouse_node.engine.kernels.language import load_parts, put_blocks, sigmoid
from poolhouse_node.engine.kernels.launch import EXACT

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.kernels.activations import Target
    from poolhouse_node.engine.layers.normed_attention import NormedAttention
    from poolhouse_node.engine.layers.rope import RotaryTable
    from poolhouse_node.engine.layers.rotary_attention import RotaryAttention

__all__ = ["AngleTable", "KernelAttention", "PagedRows", "attend", "finish_heads", "write_heads"]

type KernelAttention = NormedAttention | RotaryAttention
"""The layers that these kernels compute: with norms per head, or without."""

_SPLITS = 32
"""Programs that share the rows of a head. Fixed: who sums what depends on positions only."""
_TILE_ROWS = 64


@dataclass(frozen=True, slots=True)
class AngleTable:
    """Cosines and sines [positions, rotated / 2], float32."""

    cosines: Tensor
    sines: Tensor

    @property
    def rotated(self) -> int:
        """Values of a head that rotate."""
        return 2 * self.cosines.shape[1]

    @classmethod
    def make(cls, rotated: int, base: float, positions: int, device: torch.device) -> AngleTable:
        exponents = torch.arange(0, rotated, 2, dtype=torch.float64) / rotated
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), base**-exponents)
        return cls(angles.cos().to(device, torch.float32), angles.sin().to(device, torch.float32))

    @classmethod
    def of(cls, rope: RotaryTable) -> AngleTable:
        """Those of a model's own table."""
        return cls(*rope.angles())


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Keys and values of one layer, and where a room's rows are.

    ``keys`` and ``values`` [blocks, block rows, kv heads, size] float16, ``table`` [blocks of the
    room] int32, ``position`` [1] int32: that of the first new column.
    """

    keys: Tensor
    values: Tensor
    table: Tensor
    position: Tensor


@triton.jit
def _write_heads(
    inputs,  # [PARTS, columns, row] float32: queries (with gates between) | keys | values
    query_norm,
    key_norm,
    cosines,
    sines,
    queries,  # [columns, heads, SIZE] float32
    keys,
    values,
    table,
    position,
    row,
    part_stride,
    heads,
    kv_heads,
    epsilon,
    PARTS: tl.constexpr,
    SIZE: tl.constexpr,
    ROTATED: tl.constexpr,
    QUERY_STEP: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    HAS_NORMS: tl.constexpr,
):
    """One head of one column: a query, a key or a value."""
    head = tl.program_id(0)
    column = tl.program_id(1)
    at = tl.arange(0, SIZE)
    every = at < SIZE
    is_query = head < heads
    is_value = head >= heads + kv_heads
    first = tl.where(is_query, head * QUERY_STEP, (head - heads) * SIZE + heads * QUERY_STEP)
    source = inputs + column * row + first
    value = load_parts(source, at, part_stride, every, PARTS)
    place = tl.load(position) + column
    if not is_value:
        norm = query_norm if is_query else key_norm
        factor = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / SIZE + epsilon)
        if HAS_NORMS:
            value = value * factor * tl.load(norm + at)
        half: tl.constexpr = ROTATED // 2
        other_at = tl.where(at < half, at + half, tl.where(at < ROTATED, at - half, at))
        other = load_parts(source, other_at, part_stride, every, PARTS)
        if HAS_NORMS:
            other = other * factor * tl.load(norm + other_at)
        rotates = at < ROTATED
        angle = place * half + at % half
        cosine = tl.load(cosines + angle, mask=rotates, other=1.0)
        sine = tl.load(sines + angle, mask=rotates, other=0.0)
        value = value * cosine + tl.where(at < half, -other, other) * sine
    if is_query:
        tl.store(queries + (column * heads + head) * SIZE + at, value)
    else:
        kv_head = (head - heads) % kv_heads
        block = tl.load(table + place // BLOCK_ROWS).to(tl.int64)
        to = ((block * BLOCK_ROWS + place % BLOCK_ROWS) * kv_heads + kv_head) * SIZE
        rows = values if is_value else keys
        tl.store(rows + to + at, value.to(tl.float16))


def write_heads(
    attention: KernelAttention, inputs: Tensor, angles: AngleTable, rows: PagedRows
) -> Tensor:
    """Norm and rotate heads, store keys and values; returns queries [n, heads, size].

    ``inputs`` [parts, n, row] is what ``attention.query_key_value`` gave.
    """
    sizes = attention.sizes
    parts, n, row = inputs.shape
    norms = getattr(attention, "query_norm", None), getattr(attention, "key_norm", None)
    queries = torch.empty(n, sizes.heads, sizes.head_size, device=inputs.device)
    _write_heads[(sizes.heads + 2 * sizes.kv_heads, n)](
        inputs,
        *(inputs if norm is None else norm for norm in norms),
        angles.cosines,
        angles.sines,
        queries,
        rows.keys,
        rows.values,
        rows.table,
        rows.position,
        row,
        n * row,
        sizes.heads,
        sizes.kv_heads,
        getattr(attention, "epsilon", 0.0),
        PARTS=parts,
        SIZE=sizes.head_size,
        ROTATED=angles.rotated,
        QUERY_STEP=sizes.head_size * (2 if sizes.gated else 1),
        BLOCK_ROWS=rows.keys.shape[1],
        HAS_NORMS=norms[0] is not None,
        **EXACT,
        num_warps=1,
    )
    return queries


@triton.jit
def _attend(
    queries,  # [columns, heads, SIZE] float32
    keys,
    values,
    table,
    position,
    mixed,  # [columns, heads, SPLITS, SIZE] float32
    peaks,  # [columns, heads, SPLITS] float32
    totals,  # [columns, heads, SPLITS] float32
    heads,
    kv_heads,
    scale,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    TILE: tl.constexpr,
):
    """One column, the query heads of one key head, every ``SPLITS``-th tile of rows."""
    split = tl.program_id(0)
    kv_head = tl.program_id(1)
    column = tl.program_id(2)
    member = tl.arange(0, 16)
    at = tl.arange(0, SIZE)
    head = kv_head * GROUP + member
    real = member < GROUP
    count = tl.load(position) + column + 1
    query = tl.load(
        queries + (column * heads + head[:, None]) * SIZE + at[None, :],
        mask=real[:, None],
        other=0.0,
    )
    # Two halves of a query: the products are then as good as float32 ones.
    query = query * scale
    upper = query.to(tl.float16)
    lower = (query - upper.to(tl.float32)).to(tl.float16)
    peak = tl.full((16,), -1e30, tl.float32)
    total = tl.zeros((16,), tl.float32)
    sums = tl.zeros((16, SIZE), tl.float32)
    for start in range(split * TILE, count, SPLITS * TILE):
        place = start + tl.arange(0, TILE)
        there = place < count
        block = tl.load(table + place // BLOCK_ROWS, mask=there, other=0).to(tl.int64)
        row = ((block * BLOCK_ROWS + place % BLOCK_ROWS) * kv_heads + kv_head) * SIZE
        k = tl.load(keys + row[:, None] + at[None, :], mask=there[:, None], other=0.0)
        v = tl.load(values + row[:, None] + at[None, :], mask=there[:, None], other=0.0)
        scores = tl.dot(lower, tl.trans(k)) + tl.dot(upper, tl.trans(k))
        scores = tl.where(there[None, :], scores, -1e30)
        new_peak = tl.maximum(peak, tl.max(scores, axis=1))
        kept = tl.exp(peak - new_peak)
        shares = tl.exp(scores - new_peak[:, None])
        total = total * kept + tl.sum(shares, axis=1)
        sums = sums * kept[:, None] + tl.dot(shares.to(tl.float16), v)
        peak = new_peak
    to = (column * heads + head) * SPLITS + split
    tl.store(mixed + to[:, None] * SIZE + at[None, :], sums, mask=real[:, None])
    tl.store(peaks + to, peak, mask=real)
    tl.store(totals + to, total, mask=real)


@triton.jit
def _finish_heads(
    mixed,
    peaks,
    totals,
    gates,  # [PARTS, columns, row] float32, from where the first gate is
    row,
    part_stride,
    levels,
    factors,
    sums,
    wide,
    blocks,
    values,
    IS_WIDE: tl.constexpr,
    APART: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    SIZE: tl.constexpr,
    SPLITS: tl.constexpr,
    HAS_GATES: tl.constexpr,
):
    """Bring the splits of one head of one column together."""
    head = tl.program_id(0)
    column = tl.program_id(1)
    split = tl.arange(0, SPLITS)
    block = tl.arange(0, SIZE // 32)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    first = (column * tl.num_programs(0) + head) * SPLITS
    peak = tl.load(peaks + first + split)
    weight = tl.exp(peak - tl.max(peak, axis=0))
    total = tl.sum(weight * tl.load(totals + first + split), axis=0)
    flat = tl.arange(0, SIZE)
    parts = tl.load(mixed + (first + split)[:, None] * SIZE + flat[None, :])
    value = tl.sum(parts * weight[:, None], axis=0) / total
    value = tl.reshape(value, (SIZE // 32, 32))
    if HAS_GATES:
        source = gates + column * row + head * 2 * SIZE
        value *= sigmoid(load_parts(source, at, part_stride, at < SIZE, PARTS))
    put_blocks(
        value,
        head * (SIZE // 32) + block,
        column,
        levels,
        factors,
        sums,
        wide,
        blocks,
        values,
        IS_WIDE,
        APART,
        WIDTH,
    )


def attend(
    attention: KernelAttention, queries: Tensor, rows: PagedRows
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention of each new column over all rows up to its own, in splits.

    Returns sums, largest scores and totals for :func:`finish_heads`.
    """
    sizes = attention.sizes
    n, heads, size = queries.shape
    shape = (n, heads, _SPLITS)
    mixed = torch.empty(*shape, size, device=queries.device)
    peaks, totals = torch.empty(2, *shape, device=queries.device)
    _attend[(_SPLITS, sizes.kv_heads, n)](
        queries,
        rows.keys,
        rows.values,
        rows.table,
        rows.position,
        mixed,
        peaks,
        totals,
        heads,
        sizes.kv_heads,
        size**-0.5,
        GROUP=heads // sizes.kv_heads,
        SIZE=size,
        BLOCK_ROWS=rows.keys.shape[1],
        SPLITS=_SPLITS,
        TILE=_TILE_ROWS,
        **EXACT,
        num_warps=4,
    )
    return mixed, peaks, totals


def finish_heads(
    attention: KernelAttention,
    splits: tuple[Tensor, Tensor, Tensor],
    inputs: Tensor,
    target: Target,
) -> None:
    """Weigh the splits of :func:`attend`, gate heads if this attention does, to ``target``."""
    sizes = attention.sizes
    mixed, peaks, totals = splits
    n, heads, _, size = mixed.shape
    parts, _, row = inputs.shape
    clear_from(target, heads * size)
    _finish_heads[(heads, n)](
        mixed,
        peaks,
        totals,
        inputs[:, :, size:],
        row,
        n * row,
        **target_arguments(target),
        PARTS=parts,
        SIZE=size,
        SPLITS=_SPLITS,
        HAS_GATES=sizes.gated,
        **EXACT,
        num_warps=4,
    )
