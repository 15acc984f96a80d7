"""Feed-forward networks with their weights: dense, and a mixture of experts (engine, section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from poolhouse_node.engine.layers.mlp import gated_mlp

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.layers.experts import Experts
    from poolhouse_node.engine.layers.linear import Matrix

__all__ = ["DenseFeedForward", "ExpertFeedForward", "FeedForward", "SharedExpert"]


class FeedForward(Protocol):
    """The second half of a layer."""

    @property
    def held_bytes(self) -> int:
        """Memory its weights take."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """Normed hidden states [n, width] to what is added to the residual stream."""
        ...


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    """One gated network; ``gate_up`` is two matrices stacked, gate first."""

    gate_up: Matrix
    down: Matrix

    @property
    def held_bytes(self) -> int:
        return self.gate_up.held_bytes + self.down.held_bytes

    def __call__(self, x: Tensor) -> Tensor:
        return gated_mlp(x, self.gate_up, self.down)


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """An expert that every column uses, scaled by ``sigmoid(gate . x)``; ``gate`` is [width]."""

    gate: Tensor
    network: DenseFeedForward

    @property
    def held_bytes(self) -> int:
        return self.gate.nbytes + self.network.held_bytes

    def __call__(self, x: Tensor) -> Tensor:
        # A product and a sum, not a matrix product: the order of the sum depends on no width.
        share = torch.sigmoid((x * self.gate).sum(-1, keepdim=True))
        return share * self.network(x)


@dataclass(frozen=True, slots=True)
class ExpertFeedForward:
    """The ``used`` best of many experts for each column, and perhaps a shared one."""

    router: Matrix
    experts: Experts
    shared: SharedExpert | None
    used: int
    normalised: bool
    """The weights of the experts taken are scaled to a sum of 1."""

    @property
    def held_bytes(self) -> int:
        shared_bytes = self.shared.held_bytes if self.shared else 0
        return self.router.held_bytes + self.experts.held_bytes + shared_bytes

    def __call__(self, x: Tensor) -> Tensor:
        weights, chosen = torch.topk(torch.softmax(self.router(x), -1), self.used, dim=-1)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        mixed = self.experts(x, chosen, weights)
        return mixed + self.shared(x) if self.shared else mixed
