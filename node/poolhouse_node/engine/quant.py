"""Quantised blocks taken apart, or made float32 (engine, section 8) with bounded scratch memory.

Operations follow the order of the format's definition (``d * q + m``), one rounding each, so that
results equal other readers' bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["QUANTISED_TYPES", "SUPPORTED_TYPES", "Levels", "dequantise", "take_apart"]

_CHUNK_VALUES = 1 << 22
"""Values converted at a time: 16 MiB of float32, a multiple of every block."""


@dataclass(frozen=True, slots=True)
class Levels:
    """A quantised matrix taken apart: values are ``scale * level + least``.

    ``levels`` [rows, columns] are int8; columns in a row share ``scales`` and ``leasts``
    [rows, groups], float32. ``leasts`` are None where all are zero.
    """

    levels: Tensor
    scales: Tensor
    leasts: Tensor | None
    have_four_bits: bool
    """All levels are from 0 to 15."""


def dequantise(data: NDArray[np.uint8], kind: GgmlType, shape: tuple[int, ...]) -> Tensor:
    """Raw tensor bytes to a float32 CPU tensor of ``shape``.

    Raises :class:`ShardError` for a type this engine does not compute with.
    """
    if kind not in SUPPORTED_TYPES:
        known = ", ".join(sorted(each.name for each in SUPPORTED_TYPES))
        raise ShardError(f"This engine cannot read {kind.name} tensors, only {known}.")
    block = BLOCKS[kind]
    blocks = data.reshape(-1, block.size_bytes)
    result = torch.empty(len(blocks), block.values, dtype=torch.float32)
    step = _CHUNK_VALUES // block.values
    for start in range(0, len(blocks), step):
        # A copy: torch wants writable memory, and the map is not.
        raw = torch.from_numpy(np.array(blocks[start : start + step]))
        _to_values(raw, kind, result[start : start + step])
    return result.view(shape)


def take_apart(data: Tensor, kind: GgmlType) -> Levels:
    """``data`` [rows, bytes of a row] of one of :data:`QUANTISED_TYPES`."""
    rows = len(data)
    levels, scales, leasts = _QUANTISED[kind](data.view(-1, BLOCKS[kind].size_bytes))
    if kind is GgmlType.Q4_0:
        levels, leasts = levels + 8, -8.0 * scales
    return Levels(
        levels.contiguous().view(torch.int8).view(rows, -1),
        scales.view(rows, -1),
        None if leasts is None else leasts.view(rows, -1),
        kind in _FOUR_BIT_TYPES,
    )


def _to_values(raw: Tensor, kind: GgmlType, out: Tensor) -> None:
    if kind in _FLOATS:
        out.copy_(raw.view(_FLOATS[kind]))
        return
    levels, scales, leasts = _QUANTISED[kind](raw)
    grouped = out.view(levels.shape)
    torch.mul(levels, scales.unsqueeze(2), out=grouped)
    if leasts is not None:
        grouped.add_(leasts.unsqueeze(2))


type _Parts = tuple[Tensor, Tensor, Tensor | None]
"""Of blocks: levels [blocks, groups, values of a group], scales and leasts [blocks, groups]."""


def _halves(raw: Tensor, at: int) -> Tensor:
    """The half float at byte ``at`` of each block, as a float32 column."""
    return raw[:, at : at + 2].contiguous().view(torch.float16).to(torch.float32)


def _nibbles(packed: Tensor) -> Tensor:
    """Nibbles of 16 bytes as [blocks, 1, 32]: low ones are the first half."""
    return torch.cat([packed & 15, packed >> 4], dim=1).unsqueeze(1)


def _q4_0(raw: Tensor) -> _Parts:
    return _nibbles(raw[:, 2:]).view(torch.int8) - 8, _halves(raw, 0), None


def _q4_1(raw: Tensor) -> _Parts:
    return _nibbles(raw[:, 4:]), _halves(raw, 0), _halves(raw, 2)


def _q5_0(raw: Tensor) -> _Parts:
    bits = raw[:, 2:6].contiguous().view(torch.int32)
    fifths = ((bits >> torch.arange(32, dtype=torch.int32)) & 1).to(torch.uint8).unsqueeze(1)
    levels = (_nibbles(raw[:, 6:]) | (fifths << 4)).view(torch.int8) - 16
    return levels, _halves(raw, 0), None


def _q8_0(raw: Tensor) -> _Parts:
    return raw[:, 2:].view(torch.int8).unsqueeze(1), _halves(raw, 0), None


def _q4_k(raw: Tensor) -> _Parts:
    return _k_nibbles(raw[:, 16:]), *_k_factors(raw)


def _q5_k(raw: Tensor) -> _Parts:
    groups = torch.arange(8, dtype=torch.uint8).view(8, 1)
    fifths = (raw[:, 16:48].unsqueeze(1) >> groups) & 1
    return _k_nibbles(raw[:, 48:]) | (fifths << 4), *_k_factors(raw)


def _k_nibbles(packed: Tensor) -> Tensor:
    """Nibbles of 128 bytes as [blocks, 8 groups, 32]: a run of 32 bytes holds two groups."""
    runs = packed.reshape(-1, 4, 1, 32)
    shifts = torch.tensor([0, 4], dtype=torch.uint8).view(2, 1)
    return ((runs >> shifts) & 15).view(-1, 8, 32)


def _k_factors(raw: Tensor) -> tuple[Tensor, Tensor]:
    """``d * scale`` and ``-dmin * least`` of each group of 32; scales and leasts have six bits."""
    scales, leasts = _k_scales(raw[:, 4:16])
    return _halves(raw, 0) * scales, -(_halves(raw, 2) * leasts)


def _k_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and leasts [blocks, 8] out of 12 bytes.

    Groups 0 to 3 use the low six bits of bytes 0 to 7; the others four bits of bytes 8 to 11 and
    the two bits that were left over.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = torch.cat([first & 63, (third & 15) | ((first >> 6) << 4)], dim=1)
    leasts = torch.cat([second & 63, (third >> 4) | ((second >> 6) << 4)], dim=1)
    return scales, leasts


def _q6_k(raw: Tensor) -> _Parts:
    low = raw[:, :128].reshape(-1, 2, 1, 2, 32)  # half, -, which 32 bytes, byte
    high = raw[:, 128:192].reshape(-1, 2, 1, 32)
    scales = raw[:, 192:208].contiguous().view(torch.int8).view(-1, 16)
    nibble_shifts = torch.tensor([0, 4], dtype=torch.uint8).view(2, 1, 1)
    pair_shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(4, 1)
    nibbles = ((low >> nibble_shifts) & 15).view(-1, 2, 4, 32)
    levels = (nibbles | (((high >> pair_shifts) & 3) << 4)).view(-1, 16, 16)
    return levels.view(torch.int8) - 32, _halves(raw, 208) * scales, None


_FLOATS = {
    GgmlType.F32: torch.float32,
    GgmlType.F16: torch.float16,
    GgmlType.BF16: torch.bfloat16,
}
_QUANTISED: dict[GgmlType, Callable[[Tensor], _Parts]] = {
    GgmlType.Q4_0: _q4_0,
    GgmlType.Q4_1: _q4_1,
    GgmlType.Q5_0: _q5_0,
    GgmlType.Q8_0: _q8_0,
    GgmlType.Q4_K: _q4_k,
    GgmlType.Q5_K: _q5_k,
    GgmlType.Q6_K: _q6_k,
}

QUANTISED_TYPES = frozenset(_QUANTISED)
"""Types whose values are ``scale * level + least`` with at most eight bits a level."""
_FOUR_BIT_TYPES = frozenset({GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q4_K})
SUPPORTED_TYPES = frozenset({*_FLOATS, *_QUANTISED})
