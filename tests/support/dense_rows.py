"""Keys and values of one conversation in plain buffers of full size: what pages are measured by."""

from dataclasses import dataclass

import torch
from torch import Tensor

from poolhouse_node.engine.layers.attention import attend, causal_mask
from poolhouse_node.engine.state import StateShape

__all__ = ["DenseRows", "DenseRowsPass"]


class DenseRows:
    """One buffer [2, layers, kv heads, context, size]."""

    def __init__(self, shape: StateShape) -> None:
        attention = shape.attention
        rows = (attention.kv_heads, shape.context_size, attention.head_size)
        self.buffer = torch.zeros((2, attention.layers, *rows))

    def run(self, model, x: Tensor, position: int) -> Tensor:
        with torch.inference_mode():
            results = [
                model.run(part, DenseRowsPass(self.buffer, position + 256 * index, len(part)))
                for index, part in enumerate(x.split(256))
            ]
            return torch.cat(results)


@dataclass(slots=True)
class DenseRowsPass:
    buffer: Tensor
    position: int
    columns: int
    keeps_snapshots: bool = False
    mask: Tensor | None = None

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        end = self.position + self.columns
        self.buffer[0, layer, :, self.position : end] = keys.transpose(0, 1)
        self.buffer[1, layer, :, self.position : end] = values.transpose(0, 1)
        if self.mask is None:
            group = queries.shape[1] // keys.shape[1]
            self.mask = causal_mask(self.columns, self.position, group, queries.device)
        keys, values = self.buffer[:, layer, :, :end].unbind(0)
        return attend(queries, keys, values, self.mask)
