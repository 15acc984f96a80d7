"""Half floats as the wire wants them (wire, section 5, "Payload").

Exact ties round away from zero, which no processor does by itself: every device must produce the
same bits, or a room of mixed devices would not repeat its answers. Only the conversion is here;
refusing to send NaN, infinity or anything above 65504 is the engine's business (decision 12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["from_halves", "to_halves"]

_SIGN = np.uint32(0x8000)
_MAGNITUDE = np.uint32(0x7FFF_FFFF)
_SMALLEST_NORMAL = np.uint32(0x3880_0000)  # 2^-14: below it a half is subnormal
_LARGE = np.uint32(0x4780_0000)  # 65536: from here on all is infinity or NaN
_INFINITY = np.uint32(0x7F80_0000)
_HALF_UNIT = np.uint32(0x1000)  # half of the last place that a half float keeps
_EXPONENT_SHIFT = np.uint32(112 << 10)  # 127 - 15, the difference of the exponents' biases


def to_halves(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest half floats, any shape; ties go away from zero.

    From 65520 up the result is infinity; NaN becomes ``7e00``; signs are kept throughout.
    """
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    magnitude = bits & _MAGNITUDE
    # Carrying into the exponent is right: it is the next binade, or infinity from 65520 on.
    halves = ((magnitude + _HALF_UNIT) >> np.uint32(13)) - _EXPONENT_SHIFT
    small = magnitude < _SMALLEST_NORMAL
    if small.any():
        halves[small] = _subnormals(magnitude[small])
    large = magnitude >= _LARGE
    if large.any():
        halves[large] = np.where(magnitude[large] > _INFINITY, 0x7E00, 0x7C00)
    halves |= (bits >> np.uint32(16)) & _SIGN
    return halves.astype(np.uint16).reshape(np.shape(values))


def _subnormals(magnitude: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Round ``magnitude`` (bits of floats below 2^-14) to units of 2^-24."""
    scaled = magnitude.view(np.float32) * np.float32(1 << 24)  # a power of two: exact
    whole = scaled.astype(np.uint32)
    # Adding one half before cutting would round the sum itself; the difference is exact.
    return whole + (scaled - whole.astype(np.float32) >= np.float32(0.5))


def from_halves(halves: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The exact values of half-float bits, any shape."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is a value like any other here
        return np.asarray(halves, dtype=np.uint16).view(np.float16).astype(np.float32)
