"""Full attention as llama has it: heads are rotated, nothing is normed (engine, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.layers.linear import Matrix
    from poolhouse_node.engine.layers.normed_attention import AttentionSizes
    from poolhouse_node.engine.layers.rope import RotaryTable
    from poolhouse_node.engine.state import RoomPass

__all__ = ["RotaryAttention"]


@dataclass(frozen=True, slots=True)
class RotaryAttention:
    """The weights of one attention layer."""

    sizes: AttentionSizes
    layer: int
    """Counted among the attention layers of this part."""
    query_key_value: Matrix
    output: Matrix
    rope: RotaryTable

    @property
    def held_bytes(self) -> int:
        """Without the rotary table, which layers share."""
        return self.query_key_value.held_bytes + self.output.held_bytes

    def __call__(self, x: Tensor, this_pass: RoomPass) -> Tensor:
        sizes = self.sizes
        heads = self.query_key_value(x).view(len(x), -1, sizes.head_size)
        rotating = sizes.heads + sizes.kv_heads
        # Queries and keys turn together: one pass over them instead of two.
        rotated = self.rope.rotate(heads[:, :rotating], this_pass.position)
        queries, keys = rotated[:, : sizes.heads], rotated[:, sizes.heads :]
        return self.output(this_pass.attend(self.layer, queries, keys, heads[:, rotating:]))
