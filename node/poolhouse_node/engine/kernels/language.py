"""Small device functions that kernels share."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "high_nibbles",
    "load_parts",
    "low_nibbles",
    "put_blocks",
    "quantise",
    "round_even",
    "sigmoid",
    "silu",
]

_ROUNDING = tl.constexpr(12582912.0)  # 1.5 * 2^23: above it float32 has no fractions


@triton.jit
def round_even(x):
    """Nearest integer, ties to even, as float32. For magnitudes below 2^22."""
    return (x + _ROUNDING) - _ROUNDING


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def load_parts(pointer, at, stride, mask, PARTS: tl.constexpr):
    """The sum of ``PARTS`` arrays, ``stride`` apart, in order: what a product leaves."""
    total = tl.load(pointer + at, mask=mask, other=0.0)
    for part in tl.static_range(1, PARTS):
        total += tl.load(pointer + part * stride + at, mask=mask, other=0.0)
    return total


@triton.jit
def quantise(x):
    """Blocks ``x`` [n, 32] as two levels of int8: ``x = scale * (first + second / 254)``.

    Returns first and second [n, 32] as whole float32 in -127..127, and scale [n]. The second level
    holds what rounding the first one lost, so that about 15 bits are kept.
    """
    scale = tl.max(tl.abs(x), axis=1) / 127.0
    # A NaN is never the largest, so it is put into the scale by hand: it must not get lost.
    # (Not by x - x: with the product that x may come from, that is fused and then not zero.)
    scale = tl.where(tl.sum(x * 0.0, axis=1) == 0.0, scale, float("nan"))
    scaled = x * (1.0 / tl.maximum(scale, 1e-30))[:, None]
    first = round_even(scaled)
    second = round_even((scaled - first) * 254.0)
    return first, second, scale


@triton.jit
def put_blocks(
    x,
    block,
    column,
    levels,
    factors,
    sums,
    wide,
    blocks,
    values,
    IS_WIDE: tl.constexpr,
    APART: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Write blocks ``x`` [n, 32] of one column to their places ``block`` [n].

    As levels (see ``activations.Levels``) or as bfloat16 [columns, values]. Past ``values`` there
    must be zeros in ``x``.
    """
    byte = tl.arange(0, 32)[None, :]
    if IS_WIDE:
        at = block[:, None] * 32 + byte
        tl.store(wide + column * values + at, x.to(tl.bfloat16), mask=at < values)
    else:
        mask = block < blocks
        first, second, scale = quantise(x)
        place = (column * blocks + block) * WIDTH if APART else block * WIDTH + 2 * column
        second_scale = scale / 254.0
        tl.store(levels + place[:, None] * 32 + byte, first.to(tl.int8), mask=mask[:, None])
        tl.store(levels + (place[:, None] + 1) * 32 + byte, second.to(tl.int8), mask=mask[:, None])
        tl.store(factors + place, scale, mask=mask)
        tl.store(factors + place + 1, second_scale, mask=mask)
        tl.store(sums + place, tl.sum(first, axis=1) * scale, mask=mask)
        tl.store(sums + place + 1, tl.sum(second, axis=1) * second_scale, mask=mask)


# Two weights of four bits share a byte, stored as signed numbers. Left in the upper half of an
# int8 they are 16 times themselves: no sign to extend, no offset to take off.


@triton.jit
def high_nibbles(packed, ASSEMBLY: tl.constexpr):
    """16 times the upper nibble of each int8."""
    if ASSEMBLY:  # four at a time
        nibbles = tl.inline_asm_elementwise(
            "and.b32 $0, $1, 0xF0F0F0F0;", "=r,r", [packed], dtype=tl.int8, is_pure=True, pack=4
        )
    else:
        nibbles = (packed & -16).to(tl.int8)
    return nibbles


@triton.jit
def low_nibbles(packed, ASSEMBLY: tl.constexpr):
    """16 times the lower nibble of each int8."""
    if ASSEMBLY:
        nibbles = tl.inline_asm_elementwise(
            "{ .reg .b32 t; shl.b32 t, $1, 4; and.b32 $0, t, 0xF0F0F0F0; }",
            "=r,r",
            [packed],
            dtype=tl.int8,
            is_pure=True,
            pack=4,
        )
    else:
        nibbles = (packed << 4).to(tl.int8)
    return nibbles
