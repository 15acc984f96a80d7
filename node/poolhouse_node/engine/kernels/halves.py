"""Hidden states to half floats by the wire's rule, in one launch (wire, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["pack_halves"]

_SPAN = 1024


@triton.jit
def _pack_halves(
    values,  # [count] float32
    halves,  # [count] int16
    largest,  # [programs] int32: bits of the largest magnitude
    count,
    SPAN: tl.constexpr,
):
    """Ties away from zero: half a unit is added and the rest cut off. The device's own cast
    rounds ties to even."""
    at = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    mask = at < count
    value = tl.load(values + at, mask=mask, other=0.0)
    bits = value.to(tl.int32, bitcast=True)
    magnitude = bits & 0x7FFFFFFF
    # From 2^-14 on: a carry into the exponent is right, and past the largest there is infinity.
    normal = tl.minimum((magnitude + 0x1000 - 0x38000000) >> 13, 0x7C00)
    # Below: units of 2^-24. The exponent may be smaller than any shift, so it is done in floats.
    units = tl.minimum(tl.abs(value), 1.0) * 16777216.0
    whole = tl.floor(units)
    subnormal = whole.to(tl.int32) + tl.where(units - whole >= 0.5, 1, 0)
    half = tl.where(magnitude < 0x38800000, subnormal, normal)
    half = tl.where(magnitude > 0x7F800000, 0x7E00, half) | ((bits >> 16) & 0x8000)
    tl.store(halves + at, half.to(tl.int16), mask=mask)
    # As bits, so that a NaN counts as the largest of all.
    tl.store(largest + tl.program_id(0), tl.max(tl.where(mask, magnitude, 0), axis=0))


def pack_halves(values: Tensor) -> tuple[Tensor, Tensor]:
    """Float32 to bits of half floats, int16 of the same shape, and the largest magnitude [1].

    The magnitude is NaN when any value is.
    """
    values = values.contiguous()
    count = values.numel()
    programs = triton.cdiv(count, _SPAN)
    halves = torch.empty(values.shape, dtype=torch.int16, device=values.device)
    largest = torch.empty(programs, dtype=torch.int32, device=values.device)
    _pack_halves[(programs,)](values, halves, largest, count, SPAN=_SPAN, num_warps=4)
    return halves, largest.amax(0, keepdim=True).view(torch.float32)
