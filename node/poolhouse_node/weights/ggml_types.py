"""Tensor types of GGUF files and their block sizes (engine, section 8)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["BLOCKS", "Block", "GgmlType"]


class GgmlType(IntEnum):
    """Types whose size we know; which of them compute is the engine's business."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    BF16 = 30


@dataclass(frozen=True, slots=True)
class Block:
    """The unit a row is made of: so many values in so many bytes."""

    values: int
    size_bytes: int


BLOCKS: dict[GgmlType, Block] = {
    GgmlType.F32: Block(1, 4),
    GgmlType.F16: Block(1, 2),
    GgmlType.Q4_0: Block(32, 18),
    GgmlType.Q4_1: Block(32, 20),
    GgmlType.Q5_0: Block(32, 22),
    GgmlType.Q5_1: Block(32, 24),
    GgmlType.Q8_0: Block(32, 34),
    GgmlType.Q2_K: Block(256, 84),
    GgmlType.Q3_K: Block(256, 110),
    GgmlType.Q4_K: Block(256, 144),
    GgmlType.Q5_K: Block(256, 176),
    GgmlType.Q6_K: Block(256, 210),
    GgmlType.I8: Block(1, 1),
    GgmlType.I16: Block(1, 2),
    GgmlType.I32: Block(1, 4),
    GgmlType.I64: Block(1, 8),
    GgmlType.F64: Block(1, 8),
    GgmlType.BF16: Block(1, 2),
}
