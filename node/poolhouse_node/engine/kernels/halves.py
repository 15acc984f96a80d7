"""Hidden states to half floats by the wire's rule, in one launch (wire, section 5)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from poolhouse_node.shard import Packed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["pack_halves", "packed_bytes", "read_packed"]

_HALF_BYTES, _MAGNITUDE_BYTES, _ALIGNED_BYTES = 2, 4, 16
_BITS, _FLOAT = struct.Struct("=i"), struct.Struct("=f")
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
    halves = torch.empty(values.shape, dtype=torch.int16, device=values.device)
    largest = torch.empty(_programs(values.numel()), dtype=torch.int32, device=values.device)
    _launch(values, halves, largest)
    return halves, largest.amax(0, keepdim=True).view(torch.float32)


def packed_bytes(values: Tensor) -> Tensor:
    """The same in one piece and one launch, uint8, for :func:`read_packed`."""
    count = values.numel()
    halves_at = _magnitude_bytes(count)
    out = torch.empty(halves_at + count * _HALF_BYTES, dtype=torch.uint8, device=values.device)
    magnitudes = out[: _programs(count) * _MAGNITUDE_BYTES]
    _launch(values, out[halves_at:].view(torch.int16), magnitudes.view(torch.int32))
    return out


def read_packed(data: memoryview, count: int) -> Packed:
    """What :func:`packed_bytes` gave of ``count`` values, on the host."""
    magnitudes = data[: _programs(count) * _MAGNITUDE_BYTES].cast("i")
    (amax,) = _FLOAT.unpack(_BITS.pack(max(magnitudes)))
    return Packed(bytes(data[_magnitude_bytes(count) :]), amax)


def _launch(values: Tensor, halves: Tensor, largest: Tensor) -> None:
    count = values.numel()
    _pack_halves[(len(largest),)](
        values.contiguous(), halves, largest, count, SPAN=_SPAN, num_warps=4
    )


def _programs(count: int) -> int:
    return triton.cdiv(count, _SPAN)


def _magnitude_bytes(count: int) -> int:
    """Room for the magnitudes, so that the halves begin where a kernel likes addresses to."""
    return triton.cdiv(_programs(count) * _MAGNITUDE_BYTES, _ALIGNED_BYTES) * _ALIGNED_BYTES
