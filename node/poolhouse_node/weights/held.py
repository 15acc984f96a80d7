"""How many bytes a tensor takes once an engine holds it, which is not what its file takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from poolhouse_node.weights.ggml_types import GgmlType

if TYPE_CHECKING:
    from poolhouse_node.weights.gguf_header import TensorInfo

__all__ = ["file_bytes", "held_bytes"]

_FLOAT32, _BFLOAT16 = 4.0, 2.0
_FOUR_BITS = 0.5 + 8 / 32
"""A level, and for every 32 of them two factors in two bfloat16 parts each."""
_TABLES = frozenset({"token_embd.weight", "output.weight"})


def file_bytes(info: TensorInfo) -> int:
    """As many as in the file: for engines that keep it as it is."""
    return info.size_bytes


def held_bytes(info: TensorInfo, *, is_packed: bool) -> int:
    """Of one tensor in memory: float32, or packed as a CPU multiplies it."""
    return math.ceil(math.prod(info.shape) * _each(info, is_packed=is_packed))


def _each(info: TensorInfo, *, is_packed: bool) -> float:
    if not is_packed or len(info.shape) < 2 or info.type is GgmlType.F32:
        return _FLOAT32
    if info.type in {GgmlType.Q4_0, GgmlType.Q4_1} and info.name not in _TABLES:
        return _FOUR_BITS
    return _BFLOAT16
