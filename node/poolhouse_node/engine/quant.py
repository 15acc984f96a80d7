"""Quantised blocks to float32 (engine, section 8), vectorised, with bounded scratch memory.

Operations follow the order of the format's definition (``d * q + m``), one rounding each, so that
results equal other readers' bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["SUPPORTED_TYPES", "dequantise"]

_CHUNK_VALUES = 1 << 22
"""Values converted at a time: 16 MiB of float32, a multiple of every block."""


def dequantise(data: NDArray[np.uint8], kind: GgmlType, shape: tuple[int, ...]) -> Tensor:
    """Raw tensor bytes to a float32 CPU tensor of ``shape``.

    Raises :class:`ShardError` for a type this engine does not compute with.
    """
    convert = _CONVERTERS.get(kind)
    if convert is None:
        known = ", ".join(sorted(each.name for each in SUPPORTED_TYPES))
        raise ShardError(f"This engine cannot read {kind.name} tensors, only {known}.")
    block = BLOCKS[kind]
    blocks = data.reshape(-1, block.size_bytes)
    result = torch.empty(len(blocks), block.values, dtype=torch.float32)
    step = _CHUNK_VALUES // block.values
    for start in range(0, len(blocks), step):
        # A copy: torch wants writable memory, and the map is not.
        raw = torch.from_numpy(np.array(blocks[start : start + step]))
        convert(raw, result[start : start + step])
    return result.view(shape)


def _halves(raw: Tensor, at: int) -> Tensor:
    """The half float at byte ``at`` of each block, as a float32 column."""
    return raw[:, at : at + 2].contiguous().view(torch.float16).to(torch.float32)


def _q4_0(raw: Tensor, out: Tensor) -> None:
    scale, nibbles = _halves(raw, 0), raw[:, 2:]
    torch.sub(nibbles & 15, 8.0, out=out[:, :16])
    torch.sub(nibbles >> 4, 8.0, out=out[:, 16:])
    out.mul_(scale)


def _q4_1(raw: Tensor, out: Tensor) -> None:
    scale, least, nibbles = _halves(raw, 0), _halves(raw, 2), raw[:, 4:]
    torch.mul(nibbles & 15, scale, out=out[:, :16])
    torch.mul(nibbles >> 4, scale, out=out[:, 16:])
    out.add_(least)


def _q5_0(raw: Tensor, out: Tensor) -> None:
    fifths = raw[:, 2:6].contiguous().view(torch.int32)
    nibbles = raw[:, 6:]
    low, high = out[:, :16], out[:, 16:]
    places = torch.arange(16, dtype=torch.int32)
    torch.sub((nibbles & 15) | (((fifths >> places) & 1) << 4), 16.0, out=low)
    torch.sub((nibbles >> 4) | (((fifths >> (places + 16)) & 1) << 4), 16.0, out=high)
    out.mul_(_halves(raw, 0))


def _q8_0(raw: Tensor, out: Tensor) -> None:
    torch.mul(raw[:, 2:].view(torch.int8), _halves(raw, 0), out=out)


def _q4_k(raw: Tensor, out: Tensor) -> None:
    _k_groups(raw, _k_nibbles(raw[:, 16:]), out)


def _q5_k(raw: Tensor, out: Tensor) -> None:
    groups = torch.arange(8, dtype=torch.uint8).view(8, 1)
    fifths = (raw[:, 16:48].unsqueeze(1) >> groups) & 1
    _k_groups(raw, _k_nibbles(raw[:, 48:]) | (fifths << 4), out)


def _k_nibbles(packed: Tensor) -> Tensor:
    """Nibbles of 128 bytes as [blocks, 8 groups, 32]: a run of 32 bytes holds two groups."""
    runs = packed.reshape(-1, 4, 1, 32)
    shifts = torch.tensor([0, 4], dtype=torch.uint8).view(2, 1)
    return ((runs >> shifts) & 15).view(-1, 8, 32)


def _k_groups(raw: Tensor, levels: Tensor, out: Tensor) -> None:
    """``d * scale * q - dmin * least`` per group of 32; scales and leasts have six bits."""
    scales, leasts = _k_scales(raw[:, 4:16])
    grouped = out.view(-1, 8, 32)
    torch.mul(levels, (_halves(raw, 0) * scales).unsqueeze(2), out=grouped)
    grouped.sub_((_halves(raw, 2) * leasts).unsqueeze(2))


def _k_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and leasts [blocks, 8] out of 12 bytes.

    Groups 0 to 3 use the low six bits of bytes 0 to 7; the others four bits of bytes 8 to 11 and
    the two bits that were left over.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = torch.cat([first & 63, (third & 15) | ((first >> 6) << 4)], dim=1)
    leasts = torch.cat([second & 63, (third >> 4) | ((second >> 6) << 4)], dim=1)
    return scales, leasts


def _q6_k(raw: Tensor, out: Tensor) -> None:
    low = raw[:, :128].reshape(-1, 2, 1, 2, 32)  # half, -, which 32 bytes, byte
    high = raw[:, 128:192].reshape(-1, 2, 1, 32)
    scales = raw[:, 192:208].contiguous().view(torch.int8).view(-1, 16)
    nibble_shifts = torch.tensor([0, 4], dtype=torch.uint8).view(2, 1, 1)
    pair_shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    nibbles = ((low >> nibble_shifts) & 15).view(-1, 2, 4, 32)
    levels = (nibbles | (((high >> pair_shifts) & 3) << 4)).view(-1, 16, 16)
    grouped = out.view(-1, 16, 16)
    torch.sub(levels, 32.0, out=grouped)
    grouped.mul_((_halves(raw, 208) * scales).unsqueeze(2))


def _f16(raw: Tensor, out: Tensor) -> None:
    out.copy_(raw.view(torch.float16))


def _bf16(raw: Tensor, out: Tensor) -> None:
    out.copy_(raw.view(torch.bfloat16))


def _f32(raw: Tensor, out: Tensor) -> None:
    out.copy_(raw.view(torch.float32))


_CONVERTERS: dict[GgmlType, Callable[[Tensor, Tensor], None]] = {
    GgmlType.F32: _f32,
    GgmlType.F16: _f16,
    GgmlType.BF16: _bf16,
    GgmlType.Q4_0: _q4_0,
    GgmlType.Q4_1: _q4_1,
    GgmlType.Q5_0: _q5_0,
    GgmlType.Q8_0: _q8_0,
    GgmlType.Q4_K: _q4_k,
    GgmlType.Q5_K: _q5_k,
    GgmlType.Q6_K: _q6_k,
}

SUPPORTED_TYPES = frozenset(_CONVERTERS)
