"""Keys and values of every attention layer, in blocks of a fixed number of rows.

Layers have a tensor each, so that growing never needs more than one layer's memory twice. Two
layouts, one interface:

* heads first, ``[2, kv heads, rows, size]``: blocks that follow each other are one view that
  attention on a CPU reads as fast as an unpaged cache;
* rows first, ``[2, rows, kv heads, size]``: what paged attention kernels of GPUs read.

``rows`` are those of all blocks: row ``r`` of block ``b`` is ``b * page_rows + r``. Nobody reads a
row before it is written, so new memory is not cleared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from poolhouse_node.engine.state import AttentionShape

__all__ = ["PAGE_ROWS", "KeyValuePages", "Span", "blocks_for", "page_spans"]

PAGE_ROWS = 256
"""Columns in a block if nothing else is said: what paged flash attention needs, and few pieces."""


@dataclass(frozen=True, slots=True)
class Span:
    """Rows ``[start, start + count)`` side by side in memory."""

    start: int
    count: int


def blocks_for(rows: int, page_rows: int) -> int:
    """Blocks that hold so many rows."""
    return -(-rows // page_rows)


def page_spans(blocks: Sequence[int], first: int, last: int, page_rows: int) -> list[Span]:
    """Where rows ``[first, last)`` of a conversation lie, in as few spans as can be."""
    spans: list[Span] = []
    row = first
    while row < last:
        count = min(page_rows - row % page_rows, last - row)
        start = blocks[row // page_rows] * page_rows + row % page_rows
        if spans and spans[-1].start + spans[-1].count == start:
            spans[-1] = Span(spans[-1].start, spans[-1].count + count)
        else:
            spans.append(Span(start, count))
        row += count
    return spans


class KeyValuePages:
    """The tensors. Methods raise torch's errors (too little memory)."""

    def __init__(
        self,
        shape: AttentionShape,
        blocks: int,
        device: torch.device,
        *,
        page_rows: int,
        heads_first: bool,
    ) -> None:
        self._shape = shape
        self._page_rows = page_rows
        self._row_axis = 2 if heads_first else 1
        self._device = device
        self._type = torch.float16 if shape.value_bytes == 2 else torch.float32
        self._layers = [self._empty(blocks) for _ in range(shape.layers)]
        self.copied_bytes = 0
        """Keys and values copied from block to block so far: zero for a save."""
        self.moves = 0
        """How often the tensors moved: whoever keeps views takes them again."""

    @property
    def heads_first(self) -> bool:
        return self._row_axis == 2

    @property
    def layers(self) -> int:
        """Attention layers."""
        return len(self._layers)

    @property
    def held_bytes(self) -> int:
        return sum(layer.nbytes for layer in self._layers)

    @property
    def block_bytes(self) -> int:
        """One block of every layer."""
        return attention_block_bytes(self._shape, self._page_rows)

    def grow(self, blocks: int) -> None:
        """Make room for so many blocks. Tensors move: no view survives it."""
        for index, old in enumerate(self._layers):
            grown = self._empty(blocks)
            grown.narrow(self._row_axis, 0, old.shape[self._row_axis]).copy_(old)
            self._layers[index] = grown
        self.moves += 1

    def blocks(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [blocks, rows of a block, kv heads, size] of a layer, rows first."""
        shape = (-1, self._page_rows, self._shape.kv_heads, self._shape.head_size)
        keys, values = self._layers[layer].unbind(0)
        return keys.view(shape), values.view(shape)

    def copy_block(self, source: int, to: int) -> None:
        """Copy one block, in all layers."""
        for layer in self._layers:
            self._block(layer, to).copy_(self._block(layer, source))
        self.copied_bytes += self.block_bytes

    def write(self, layer: int, spans: Sequence[Span], keys: Tensor, values: Tensor) -> None:
        """Store rows [n, kv heads, size] where ``spans``, of n rows together, say."""
        if self.heads_first:
            keys, values = keys.transpose(0, 1), values.transpose(0, 1)
        axis, done = self._row_axis - 1, 0
        for span in spans:
            pages = self._layers[layer].narrow(self._row_axis, span.start, span.count)
            pages[0].copy_(keys.narrow(axis, done, span.count))
            pages[1].copy_(values.narrow(axis, done, span.count))
            done += span.count

    def read(self, layer: int, spans: Sequence[Span]) -> tuple[Tensor, Tensor]:
        """Keys and values [kv heads, rows, size]: a view of one span, a copy of several."""
        parts = [self._layers[layer].narrow(self._row_axis, s.start, s.count) for s in spans]
        rows = parts[0] if len(parts) == 1 else torch.cat(parts, self._row_axis)
        keys, values = rows.unbind(0)
        return (
            (keys, values) if self.heads_first else (keys.transpose(0, 1), values.transpose(0, 1))
        )

    def _block(self, layer: Tensor, block: int) -> Tensor:
        return layer.narrow(self._row_axis, block * self._page_rows, self._page_rows)

    def _empty(self, blocks: int) -> Tensor:
        shape, rows = self._shape, blocks * self._page_rows
        inner = (shape.kv_heads, rows) if self.heads_first else (rows, shape.kv_heads)
        return torch.empty((2, *inner, shape.head_size), dtype=self._type, device=self._device)


def attention_block_bytes(shape: AttentionShape, page_rows: int) -> int:
    """Memory of one block in all layers."""
    return shape.value_bytes * 2 * shape.layers * page_rows * shape.kv_heads * shape.head_size
