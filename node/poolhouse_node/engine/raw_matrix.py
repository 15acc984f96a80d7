"""A matrix as its file has it: rows of quantised blocks, before anyone decides how to keep it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.quant import dequantise
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

__all__ = ["FOUR_BIT_TYPES", "FourBits", "RawMatrix", "stacked_values"]

FOUR_BIT_TYPES = frozenset({GgmlType.Q4_0, GgmlType.Q4_1})
"""Types whose values are ``scale * level + least``, levels 0 to 15, in groups of 32."""


@dataclass(frozen=True, slots=True)
class FourBits:
    """A matrix taken apart: levels [rows, columns] (uint8) and, for each group of 32 columns,
    ``scales`` and ``leasts`` [rows, groups] (float32)."""

    levels: Tensor
    scales: Tensor
    leasts: Tensor


@dataclass(frozen=True, slots=True)
class RawMatrix:
    """``data`` [rows, bytes of a row], uint8, on the CPU."""

    data: Tensor
    type: GgmlType
    columns: int

    @property
    def rows(self) -> int:
        return self.data.shape[0]

    def values(self) -> Tensor:
        """Float32 [rows, columns]. Raises :class:`ShardError` for a type nobody computes with."""
        return dequantise(self.data.numpy(), self.type, (self.rows, self.columns))

    def reordered(self, order: Callable[[Tensor], Tensor]) -> RawMatrix:
        """The rows as ``order`` arranges them, whatever a row consists of."""
        return replace(self, data=order(self.data))

    def some_rows(self, index: Tensor | slice) -> RawMatrix:
        """Rows ``index``."""
        return replace(self, data=self.data[index])

    def four_bits(self) -> FourBits:
        """Levels and scales of one of :data:`FOUR_BIT_TYPES`."""
        block = BLOCKS[self.type]
        blocks = self.data.view(self.rows, -1, block.size_bytes)
        scales = _halves(blocks, 0)
        is_symmetric = self.type is GgmlType.Q4_0
        leasts = -8.0 * scales if is_symmetric else _halves(blocks, 2)
        nibbles = blocks[:, :, 2 if is_symmetric else 4 :]
        levels = torch.cat([nibbles & 15, nibbles >> 4], dim=2)
        return FourBits(levels.view(self.rows, self.columns), scales, leasts)


def _halves(blocks: Tensor, at: int) -> Tensor:
    return blocks[:, :, at : at + 2].contiguous().view(torch.float16).squeeze(2).float()


def stacked_values(parts: Sequence[RawMatrix]) -> Tensor:
    """Matrices of the same columns, one below the other, as float32."""
    return torch.cat([part.values() for part in parts]) if len(parts) > 1 else parts[0].values()
