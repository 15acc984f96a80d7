"""How many bytes a tensor takes once an engine holds it, which is not what its file takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from poolhouse_node.weights.ggml_types import GgmlType

if TYPE_CHECKING:
    from poolhouse_node.weights.gguf_header import TensorInfo

__all__ = ["file_bytes", "held_bytes"]

_FLOAT32 = 4.0
_PACKED = {
    GgmlType.F16: 2.0,
    GgmlType.BF16: 2.0,
    # A level, and a factor or two, in float32, for each group of 32 (of Q6_K: 16).
    GgmlType.Q4_0: 0.5 + 8 / 32,
    GgmlType.Q4_1: 0.5 + 8 / 32,
    GgmlType.Q4_K: 0.5 + 8 / 32,
    GgmlType.Q5_0: 1 + 4 / 32,
    GgmlType.Q8_0: 1 + 4 / 32,
    GgmlType.Q5_K: 1 + 8 / 32,
    GgmlType.Q6_K: 1 + 4 / 16,
}


def file_bytes(info: TensorInfo) -> int:
    """As many as in the file: for engines that keep it as it is."""
    return info.size_bytes


def held_bytes(info: TensorInfo, *, is_packed: bool) -> int:
    """Of one tensor in memory: float32, or packed as a CPU multiplies it."""
    return math.ceil(math.prod(info.shape) * _each(info, is_packed=is_packed))


def _each(info: TensorInfo, *, is_packed: bool) -> float:
    if not is_packed or len(info.shape) < 2:
        return _FLOAT32
    return _PACKED.get(info.type, _FLOAT32)
