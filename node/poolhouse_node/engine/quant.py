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


def _q8_0(raw: Tensor, out: Tensor) -> None:
    torch.mul(raw[:, 2:].view(torch.int8), _halves(raw, 0), out=out)


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
    GgmlType.Q8_0: _q8_0,
}

SUPPORTED_TYPES = frozenset(_CONVERTERS)
