"""Products with packed weights: levels become float32 in registers, and never in memory.

Weights lie in blocks of 64 rows, in a block column by column, so that one load has the same column
of many rows and each row is a lane of a vector register. The type of ``levels`` says how a block
[columns, bytes or halves of a column] is read:

* ``uint8`` [columns, 32]: two rows a byte, 32 rows apart, levels 0 to 15;
* ``int8`` [columns, 64]: levels of a row each;
* ``uint16`` and ``int16`` [columns, 64]: bits of bfloat16 and of half floats.

A weight is ``scale * level + least``. ``scales`` are [blocks, groups, 64], and so are ``leasts``,
which may have no group at all: then there is nothing to add. The columns of a group share them.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

import numpy as np
from numba import prange, types
from numba.extending import overload

from poolhouse_node.engine.compiled.compiling import compiled, parts_for, use_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["multiply", "prepare", "unpack"]

_LANES = 64
_HALF = 32

type Floats = NDArray[np.float32]
type Levels = NDArray[np.uint8] | NDArray[np.int8] | NDArray[np.uint16] | NDArray[np.int16]


def multiply(levels: Levels, scales: Floats, leasts: Floats, x: Floats, out: Floats) -> None:
    """``out`` [n, rows] = ``x`` [n, columns] times the weights, each column in the same order."""
    parts = parts_for(len(levels) * levels.shape[1] * _LANES * len(x))
    if parts < 2:
        _multiply_blocks(levels, scales, leasts, x, out, 0, len(levels))
    else:
        use_threads(parts)
        _multiply_in_parts(levels, scales, leasts, x, out, parts)


def unpack(levels: Levels, scales: Floats, leasts: Floats, out: Floats) -> None:
    """``out`` [columns, rows]: all weights as float32."""
    parts = parts_for(out.size)
    if parts < 2:
        _unpack_blocks(levels, scales, leasts, out, 0, len(levels))
    else:
        use_threads(parts)
        _unpack_in_parts(levels, scales, leasts, out, parts)


@functools.cache
def prepare(kind: str, threads: int) -> None:
    """Compile, or read from disk, what levels of type ``kind`` need: before somebody waits."""
    levels = np.zeros((1, 4, _HALF if kind == "uint8" else _LANES), kind)
    factors = np.zeros((1, 1, _LANES), np.float32)
    x, out = np.zeros((1, 4), np.float32), np.zeros((1, _LANES), np.float32)
    weights = np.zeros((4, _LANES), np.float32)
    _multiply_blocks(levels, factors, factors, x, out, 0, 1)
    _unpack_blocks(levels, factors, factors, weights, 0, 1)
    if threads > 1 and parts_for(sys.maxsize) > 1:
        _multiply_in_parts(levels, factors, factors, x, out, 1)
        _unpack_in_parts(levels, factors, factors, weights, 1)


def _low(level):
    """A level of a row below 32 of its block. A name: what is compiled depends on the type."""


def _high(level):
    """The level of a row from 32 on."""


# numba compares names and annotations of these with those of what they return: no types here.
@overload(_low, inline="always")
def _low_of(level):
    if level == types.uint8:
        return lambda level: np.float32(np.int32(level) & np.int32(15))
    return lambda level: _whole(level)  # noqa: PLW0108 - numba inlines functions in Python only


@overload(_high, inline="always")
def _high_of(level):
    if level == types.uint8:
        return lambda level: np.float32(np.int32(level) >> np.int32(4))
    return lambda level: _whole(level)  # noqa: PLW0108


def _whole(level):
    """A level that has all of its integer, as float32."""


@overload(_whole, inline="always")
def _whole_of(level):
    if level == types.int8:
        return lambda level: np.float32(level)  # noqa: PLW0108
    if level == types.uint16:
        return lambda level: _bfloat16(level)  # noqa: PLW0108
    return lambda level: _float16(level)  # noqa: PLW0108


@compiled()
def _bfloat16(bits: np.uint16) -> np.float32:
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@compiled()
def _float16(bits: np.int16) -> np.float32:
    """Exponent and mantissa moved to where float32 has them, then scaled: subnormals come right."""
    sign = np.uint32(np.uint32(bits) & np.uint32(0x8000)) << np.uint32(16)
    rest = np.uint32(np.uint32(bits) & np.uint32(0x7FFF)) << np.uint32(13)
    return np.uint32(sign | rest).view(np.float32) * np.float32(2.0**112)


# Places are unsigned and arrays flat: otherwise numba looks for negative indices, and loops over
# lanes are not made of vector instructions (measured: a sixth of the speed).


@compiled()
def _multiply_blocks(
    levels: Levels,
    scales: Floats,
    leasts: Floats,
    x: Floats,
    out: Floats,
    first: int,
    last: int,
) -> None:
    """Rows of blocks ``first`` to ``last``."""
    groups = scales.shape[1]
    size = levels.shape[1] // groups
    low, high = np.empty(_HALF, np.float32), np.empty(_HALF, np.float32)
    for block in range(first, last):
        flat = levels[block].reshape(-1)
        for n in range(len(x)):
            row, y = x[n], out[n, block * _LANES : (block + 1) * _LANES]
            y[:] = 0
            for group in range(groups):
                total = _sum_group(flat, row, group * size, size, low, high)
                scale = scales[block, group]
                for lane in range(_HALF):
                    y[lane] += scale[lane] * low[lane]
                    y[_HALF + lane] += scale[_HALF + lane] * high[lane]
                if leasts.shape[1]:
                    least = leasts[block, group]
                    for lane in range(_LANES):
                        y[lane] += least[lane] * total


@compiled()
def _sum_group(
    flat: Levels, x: Floats, start: int, size: int, low: Floats, high: Floats
) -> np.float32:
    """Sums of ``level * x`` over ``size`` columns for both halves of a block; returns that of x.

    Four columns at a time: the sums are loaded and stored a quarter as often.
    """
    low[:] = 0
    high[:] = 0
    total = np.float32(0)
    step = np.uint64(len(flat) // len(x))
    other = step - np.uint64(_HALF)
    for column in range(start, start + size, 4):
        x0, x1, x2, x3 = x[column], x[column + 1], x[column + 2], x[column + 3]
        total += x0 + x1 + x2 + x3
        a0 = np.uint64(column) * step
        a1, a2, a3 = a0 + step, a0 + step + step, a0 + step + step + step
        b0, b1, b2, b3 = a0 + other, a1 + other, a2 + other, a3 + other
        for lane in range(np.uint64(_HALF)):
            low[lane] += (
                _low(flat[a0 + lane]) * x0
                + _low(flat[a1 + lane]) * x1
                + _low(flat[a2 + lane]) * x2
                + _low(flat[a3 + lane]) * x3
            )
            high[lane] += (
                _high(flat[b0 + lane]) * x0
                + _high(flat[b1 + lane]) * x1
                + _high(flat[b2 + lane]) * x2
                + _high(flat[b3 + lane]) * x3
            )
    return total


@compiled()
def _unpack_blocks(
    levels: Levels, scales: Floats, leasts: Floats, out: Floats, first: int, last: int
) -> None:
    size = levels.shape[1] // scales.shape[1]
    step = np.uint64(levels.shape[2])
    half = np.uint64(_HALF)
    scale, least = np.empty(_LANES, np.float32), np.zeros(_LANES, np.float32)
    values = np.empty(_LANES, np.float32)
    weights, rows = out.reshape(-1), np.uint64(out.shape[1])
    for block in range(first, last):
        flat = levels[block].reshape(-1)
        for group in range(scales.shape[1]):
            scale[:] = scales[block, group]
            if leasts.shape[1]:
                least[:] = leasts[block, group]
            for column in range(group * size, group * size + size):
                a = np.uint64(column) * step
                b = a + step - half
                for lane in range(half):
                    values[lane] = _low(flat[a + lane]) * scale[lane] + least[lane]
                    values[half + lane] = (
                        _high(flat[b + lane]) * scale[half + lane] + least[half + lane]
                    )
                place = np.uint64(column) * rows + np.uint64(block * _LANES)
                for lane in range(np.uint64(_LANES)):
                    weights[place + lane] = values[lane]


@compiled(parallel=True)
def _multiply_in_parts(
    levels: Levels, scales: Floats, leasts: Floats, x: Floats, out: Floats, parts: int
) -> None:
    blocks = len(levels)
    for part in prange(parts):
        first, last = part * blocks // parts, (part + 1) * blocks // parts
        _multiply_blocks(levels, scales, leasts, x, out, first, last)


@compiled(parallel=True)
def _unpack_in_parts(
    levels: Levels, scales: Floats, leasts: Floats, out: Floats, parts: int
) -> None:
    blocks = len(levels)
    for part in prange(parts):
        first, last = part * blocks // parts, (part + 1) * blocks // parts
        _unpack_blocks(levels, scales, leasts, out, first, last)
