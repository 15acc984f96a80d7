"""A matrix as its file has it: rows of quantised blocks, before anyone decides how to keep it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.quant import dequantise, take_apart
from poolhouse_node.weights.ggml_types import GgmlType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from poolhouse_node.engine.quant import Levels

__all__ = ["HALF_TYPES", "RawMatrix", "stacked_values"]

HALF_TYPES = {GgmlType.F16: torch.float16, GgmlType.BF16: torch.bfloat16}


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

    def levels(self) -> Levels:
        """Taken apart; of quantised types only."""
        return take_apart(self.data, self.type)

    def halves(self) -> Tensor:
        """As bfloat16 or half floats [rows, columns]; of such types only."""
        return self.data.view(HALF_TYPES[self.type])


def stacked_values(parts: Sequence[RawMatrix]) -> Tensor:
    """Matrices of the same columns, one below the other, as float32."""
    return torch.cat([part.values() for part in parts]) if len(parts) > 1 else parts[0].values()
