"""Layers in a row, each a mixer of columns and a feed-forward network around a residual stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.engine.layers.norm import rms_norm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.state import RoomPass, StateShape

__all__ = ["Block", "BlockStack", "Mixer"]


class Mixer(Protocol):
    """The first half of a layer: what mixes columns, by attention or by a recurrence."""

    @property
    def held_bytes(self) -> int:
        """Memory its weights take."""
        ...

    def __call__(self, x: Tensor, this_pass: RoomPass) -> Tensor:
        """Normed hidden states [n, width] to what is added to the residual stream."""
        ...


@dataclass(frozen=True, slots=True)
class Block:
    """One layer."""

    mixer_norm: Tensor
    mixer: Mixer
    ffn_norm: Tensor
    ffn: FeedForward
    epsilon: float

    @property
    def held_bytes(self) -> int:
        norms = self.mixer_norm.nbytes + self.ffn_norm.nbytes
        return norms + self.mixer.held_bytes + self.ffn.held_bytes

    def __call__(self, x: Tensor, this_pass: RoomPass) -> Tensor:
        x = x + self.mixer(rms_norm(x, self.mixer_norm, self.epsilon), this_pass)
        return x + self.ffn(rms_norm(x, self.ffn_norm, self.epsilon))


class BlockStack:
    """Layers ``[lo, hi)`` of a model. The state is the caller's: it serves any number of rooms."""

    def __init__(
        self, blocks: Sequence[Block], shape: Callable[[int], StateShape], shared_bytes: int
    ) -> None:
        """``shared_bytes`` is what the blocks hold in common (a rotary table)."""
        self.blocks = tuple(blocks)
        self._shape = shape
        self.held_bytes = shared_bytes + sum(block.held_bytes for block in self.blocks)

    def state_shape(self, context_size: int) -> StateShape:
        """The state a room needs for these layers."""
        return self._shape(context_size)

    def run(self, x: Tensor, this_pass: RoomPass) -> Tensor:
        """Hidden states [n, width] of the pass's columns through the layers."""
        for block in self.blocks:
            x = block(x, this_pass)
        return x
