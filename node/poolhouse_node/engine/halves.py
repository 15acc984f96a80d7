"""Hidden states to half floats and back, by the wire's rule, on whatever device holds them.

The wire rounds ties away from zero (wire, section 5); torch's own cast rounds them to even, so
the bits are made here.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["from_halves", "halves_to_bytes", "largest_magnitude", "to_halves"]

_MAGNITUDE = 0x7FFF_FFFF
_INFINITY_F32 = 0x7F80_0000
_INFINITY_F16 = 0x7C00
_NAN_F16 = 0x7E00
_SMALLEST_NORMAL = 0x3880_0000  # 2^-14 as float32 bits
_HALF_ULP = 0x1000  # half of the 13 mantissa bits that go
_REBIAS = (127 - 15) << 23


def to_halves(values: Tensor) -> Tensor:
    """Float32 to the bits of half floats, int16, same shape and device."""
    bits = values.contiguous().view(torch.int32)
    magnitude = bits & _MAGNITUDE
    # Adding half a unit and cutting rounds ties away from zero; a carry into the exponent is right.
    normal = ((magnitude + _HALF_ULP - _REBIAS) >> 13).clamp_(max=_INFINITY_F16)
    halves = torch.where(magnitude < _SMALLEST_NORMAL, _subnormal(values), normal)
    halves = torch.where(magnitude > _INFINITY_F32, _NAN_F16, halves)
    return (halves | ((bits >> 16) & 0x8000)).to(torch.int16)


def _subnormal(values: Tensor) -> Tensor:
    """Units of 2^-24, ties away from zero. (``x + 0.5`` would itself round; this is exact.)"""
    units = values.abs() * 2.0**24
    whole = units.floor()
    return (whole + (units - whole >= 0.5)).clamp_(max=1024.0).nan_to_num_(0.0).to(torch.int32)


def halves_to_bytes(halves: Tensor) -> bytes:
    """Bits from :func:`to_halves` to little-endian bytes. A synchronisation point."""
    array = halves.cpu().numpy()
    return bytes(array.astype("<i2", copy=False).tobytes())


def from_halves(data: bytes, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Little-endian half floats to float32 of ``shape``; the length must be right."""
    array = np.frombuffer(data, "<i2").reshape(shape)
    native = array.astype(np.int16)  # a copy: the frame's bytes stay the caller's
    return torch.from_numpy(native).to(device).view(torch.float16).to(torch.float32)


def largest_magnitude(values: Tensor) -> float:
    """Largest absolute value; NaN when any is NaN (torch's maximum keeps it), 0 of nothing."""
    return float(values.abs().amax()) if values.numel() else 0.0
