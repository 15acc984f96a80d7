"""Full attention with a norm per head and perhaps an output gate (engine, sections 2 and 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.layers.norm import rms_norm

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.layers.linear import Matrix
    from poolhouse_node.engine.layers.rope import RotaryTable
    from poolhouse_node.engine.state import RoomPass

__all__ = ["AttentionSizes", "NormedAttention"]


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """``gated``: the query matrix gives each head its gate after its query."""

    heads: int
    kv_heads: int
    head_size: int
    gated: bool

    @property
    def query_rows(self) -> int:
        return self.heads * self.head_size * (2 if self.gated else 1)

    @property
    def kv_rows(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    @property
    def mixed_width(self) -> int:
        """Of all heads together, before the output matrix."""
        return self.heads * self.head_size


@dataclass(frozen=True, slots=True)
class NormedAttention:
    """The weights of one attention layer."""

    sizes: AttentionSizes
    layer: int
    """Counted among the attention layers of this part."""
    query_key_value: Matrix
    query_norm: Tensor
    key_norm: Tensor
    output: Matrix
    rope: RotaryTable
    epsilon: float

    @property
    def held_bytes(self) -> int:
        """Without the rotary table, which layers share."""
        matrices = self.query_key_value.held_bytes + self.output.held_bytes
        return matrices + self.query_norm.nbytes + self.key_norm.nbytes

    def __call__(self, x: Tensor, this_pass: RoomPass) -> Tensor:
        sizes, position = self.sizes, this_pass.position
        queries, keys, values = (
            part.view(len(x), -1, sizes.head_size)
            for part in torch.split(
                self.query_key_value(x), [sizes.query_rows, sizes.kv_rows, sizes.kv_rows], dim=-1
            )
        )
        gates = queries[:, 1::2] if sizes.gated else None
        queries = queries[:, ::2] if sizes.gated else queries
        queries = self.rope.rotate(rms_norm(queries, self.query_norm, self.epsilon), position)
        keys = self.rope.rotate(rms_norm(keys, self.key_norm, self.epsilon), position)
        mixed = this_pass.attend(self.layer, queries, keys, values)
        if gates is not None:
            mixed = mixed * torch.sigmoid(gates).flatten(1)
        return self.output(mixed)
