"""How many bytes a tensor takes once an engine holds it, which is not what its file takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from poolhouse_node.weights.ggml_types import GgmlType

if TYPE_CHECKING:
    from poolhouse_node.weights.gguf_header import TensorInfo

__all__ = ["AS_IN_THE_FILE", "Held", "HeldAs", "held_bytes"]

HeldAs = Literal["file", "float32", "cpu-packed", "gpu-packed"]
"""As the file has it; all in float32; as compiled products, or our GPU kernels, multiply it."""

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
_ON_GPU = {
    GgmlType.F16: 2.0,
    GgmlType.BF16: 2.0,
    GgmlType.Q4_0: 0.5 + 2 / 32,
    GgmlType.Q4_1: 0.5 + 4 / 32,
}
_OTHERS_ON_GPU = 1 + 2 / 32
"""Eight bits, and a half float for every 32 of them."""
_FLOAT32_ON_GPU = (".ffn_gate_inp.weight", ".ssm_conv1d.weight")
"""Routers and taps, which no packed product multiplies."""


def held_bytes(info: TensorInfo, kept: HeldAs) -> int:
    """Of one tensor in memory."""
    if kept == "file":
        return info.size_bytes
    return math.ceil(math.prod(info.shape) * _each(info, kept))


@dataclass(frozen=True, slots=True)
class Held:
    """What a device that holds tensors in one way needs for a model."""

    kept: HeldAs

    def tensor_bytes(self, info: TensorInfo) -> int:
        """Of one tensor."""
        return held_bytes(info, self.kept)

    @property
    def key_value_bytes(self) -> int:
        """Of a number in a key or a value."""
        return 2 if self.kept == "gpu-packed" else 4


AS_IN_THE_FILE = Held("file")


def _each(info: TensorInfo, kept: HeldAs) -> float:
    if kept == "float32" or len(info.shape) < 2:
        return _FLOAT32
    if kept == "cpu-packed":
        return _PACKED.get(info.type, _FLOAT32)
    is_matrix = not info.name.endswith(_FLOAT32_ON_GPU)
    return _ON_GPU.get(info.type, _OTHERS_ON_GPU) if is_matrix else _FLOAT32
