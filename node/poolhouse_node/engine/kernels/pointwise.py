"""What stands between products: residual sums with norms, and gates. One pass over memory each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from poolhouse_node.engine.kernels.activations import clear_from, target_arguments
from poolhouse_node.engine.kernels.language import load_parts, put_blocks, silu
from poolhouse_node.engine.kernels.launch import EXACT

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.kernels.activations import Target

__all__ = ["add_norm", "gate_heads", "gate_up"]

_NORM_WARPS = 16
"""At most: one program has a whole column, and needs many loads under way."""


@triton.jit
def _add_norm(
    x,  # [columns, length] float32, updated
    deltas,  # [PARTS, columns, length] float32
    weight,  # [length]
    normed,  # [columns, length] float32, written when HAS_NORMED
    length,
    part_stride,
    epsilon,
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
    HAS_NORMED: tl.constexpr,
    SPAN: tl.constexpr,
):
    """One column. ``SPAN`` blocks of 32 hold all of it."""
    column = tl.program_id(0)
    block = tl.arange(0, SPAN)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    mask = at < length
    value = tl.load(x + column * length + at, mask=mask, other=0.0)
    if PARTS > 0:
        value += load_parts(deltas, column * length + at, part_stride, mask, PARTS)
        tl.store(x + column * length + at, value, mask=mask)
    mean = tl.sum(tl.sum(value * value, axis=1), axis=0) / length
    scaled = value * (1.0 / tl.sqrt(mean + epsilon)) * tl.load(weight + at, mask=mask, other=0.0)
    if HAS_NORMED:
        tl.store(normed + column * length + at, scaled, mask=mask)
    put_blocks(
        scaled, block, column, levels, factors, sums, wide, blocks, values, IS_WIDE, APART, WIDTH
    )


def add_norm(
    x: Tensor,
    deltas: Tensor | None,
    weight: Tensor,
    epsilon: float,
    target: Target,
    normed: Tensor | None = None,
) -> None:
    """Add the parts of ``deltas`` [parts, n, length] to ``x`` [n, length] in place, then write
    ``rms(x, weight)`` to ``target``, and to ``normed`` as float32 when it is given."""
    n, length = x.shape
    arguments = target_arguments(target)
    span = triton.next_power_of_2(arguments["blocks"])
    _add_norm[(n,)](
        x,
        x if deltas is None else deltas,
        weight,
        x if normed is None else normed,
        length,
        n * length,
        epsilon,
        **arguments,
        PARTS=0 if deltas is None else deltas.shape[0],
        HAS_NORMED=normed is not None,
        SPAN=span,
        **EXACT,
        # Eight values a thread and a load: few rounds, for a single program has all the work.
        num_warps=min(16, max(1, span // 8)),
    )


@triton.jit
def _gate_up(
    x,  # [PARTS, columns, 2 * length] float32
    length,
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
    SPAN: tl.constexpr,
):
    column = tl.program_id(1)
    block = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    mask = at < length
    first = x + column.to(tl.int64) * 2 * length
    gate = load_parts(first, at, part_stride, mask, PARTS)
    up = load_parts(first, at + length, part_stride, mask, PARTS)
    put_blocks(
        silu(gate) * up,
        block,
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


def gate_up(x: Tensor, target: Target) -> None:
    """``silu(gate) * up`` of ``x`` [parts, n, 2 * length], gate first, to ``target``."""
    parts, n, double = x.shape
    arguments, span = target_arguments(target), 16
    _gate_up[(triton.cdiv(arguments["blocks"], span), n)](
        x, double // 2, n * double, **arguments, PARTS=parts, SPAN=span, num_warps=4, **EXACT
    )


@triton.jit
def _gate_heads(
    answers,  # [columns, heads, SIZE] float32
    gates,  # [PARTS, columns, row] float32, from where the first gate is
    weight,  # [SIZE]
    row,
    part_stride,
    epsilon,
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
):
    """One head of one column."""
    head = tl.program_id(0)
    column = tl.program_id(1)
    block = tl.arange(0, SIZE // 32)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    value = tl.load(answers + (column * tl.num_programs(0) + head) * SIZE + at)
    mean = tl.sum(tl.sum(value * value, axis=1), axis=0) / SIZE
    gate = load_parts(gates + column * row + head * SIZE, at, part_stride, at < SIZE, PARTS)
    gated = value * (1.0 / tl.sqrt(mean + epsilon)) * tl.load(weight + at) * silu(gate)
    put_blocks(
        gated,
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


def gate_heads(
    answers: Tensor, inputs: Tensor, first: int, weight: Tensor, epsilon: float, target: Target
) -> None:
    """``rms(answers, weight) * silu(gate)`` per head, to ``target``.

    ``answers`` [n, heads, size]; the gates are columns ``first ..`` of ``inputs``
    [parts, n, row].
    """
    n, heads, size = answers.shape
    parts, _, row = inputs.shape
    clear_from(target, heads * size)
    _gate_heads[(heads, n)](
        answers,
        inputs[:, :, first:],
        weight,
        row,
        n * row,
        epsilon,
        **target_arguments(target),
        PARTS=parts,
        SIZE=size,
        **EXACT,
        num_warps=1,
    )
