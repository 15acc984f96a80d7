"""A matrix as its file has it: rows of quantised blocks, before anyone decides how to keep it.

Made what it is kept as some rows at a time, so that a load needs little memory besides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.quant import dequantise, take_apart
from poolhouse_node.weights.ggml_types import GgmlType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from poolhouse_node.engine.quant import Levels

__all__ = ["HALF_TYPES", "PIECE_VALUES", "RawMatrix", "in_pieces"]

HALF_TYPES = {GgmlType.F16: torch.float16, GgmlType.BF16: torch.bfloat16}

PIECE_VALUES = 1 << 17
"""Converted at a time: what that takes stays in a processor's cache, and calls cost little.

More are no faster, and leave holes in the heap that the next matrix does not fill."""


@dataclass(frozen=True, slots=True)
class RawMatrix:
    """``data`` [rows, bytes of a row], uint8, on the CPU. Not to be written to: it may lie in the
    mapped file."""

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


def in_pieces(parts: Sequence[RawMatrix], multiple: int = 1) -> Iterator[RawMatrix]:
    """Matrices of one type and the same columns, one below the other, some rows at a time.

    Every piece but the last has a multiple of ``multiple`` rows.
    """
    step = max(1, PIECE_VALUES // parts[0].columns // multiple) * multiple
    for start in range(0, sum(part.rows for part in parts), step):
        yield _rows_between(parts, start, start + step)


def _rows_between(parts: Sequence[RawMatrix], start: int, stop: int) -> RawMatrix:
    found, first = [], 0
    for part in parts:
        rows = part.data[max(0, start - first) : max(0, stop - first)]
        if len(rows):
            found.append(rows)
        first += part.rows
    return replace(parts[0], data=found[0] if len(found) == 1 else torch.cat(found))
