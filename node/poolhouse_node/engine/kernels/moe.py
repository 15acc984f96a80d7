"""The mixture of experts of one layer, packed, as a feed-forward network of the models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from poolhouse_node.engine.kernels.activations import fill
from poolhouse_node.engine.kernels.experts import choose, mix, router_scores
from poolhouse_node.engine.kernels.matrices import added
from poolhouse_node.engine.kernels.pointwise import gate_up
from poolhouse_node.engine.kernels.products import expert_product

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.kernels.activations import Levels
    from poolhouse_node.engine.kernels.matrices import KernelMatrix, PackedMatrix
    from poolhouse_node.engine.layers.feed_forward import DenseFeedForward

__all__ = ["PackedExperts"]


@dataclass(frozen=True, slots=True)
class PackedExperts:
    """``experts`` networks of one width, of which a column uses ``used``.

    With ``shared`` one more stands behind them in ``gate_up``, ``down`` and ``router``: the expert
    that every column uses, and the row of its gate. One that is of another width or kind is
    ``beside`` them instead; the row of its gate is in ``router`` as well.
    """

    router: Tensor
    """[experts, width], with a shared one [experts + 1, width], float32."""
    gate_up: PackedMatrix
    """All experts stacked: rows of the gate, then those of up, expert after expert."""
    down: PackedMatrix
    experts: int
    used: int
    shared: bool
    normalised: bool
    beside: DenseFeedForward | None = None

    @property
    def held_bytes(self) -> int:
        beside = 0 if self.beside is None else self.beside.held_bytes
        return self.router.nbytes + self.gate_up.held_bytes + self.down.held_bytes + beside

    def __call__(self, x: Tensor) -> Tensor:
        target = self.gate_up.levels_apart(x.shape[0])
        fill(target, x)
        return self.mixed(x, target)

    def mixed(self, x: Tensor, levels: Levels) -> Tensor:
        """What is added to the residual stream [n, width]; ``x`` [n, width] and its levels."""
        stacked = self.experts + (1 if self.shared else 0)
        scores = router_scores(x, self.router)
        chosen, weights = choose(
            scores,
            self.experts,
            self.used,
            shared=self.shared,
            normalised=self.normalised,
        )
        jobs = chosen.flatten()
        wide = expert_product(self.gate_up.weight, stacked, jobs, levels)
        gated = self.down.levels_apart(len(jobs))
        gate_up(wide.unsqueeze(0), gated)
        mixed = mix(expert_product(self.down.weight, stacked, jobs, gated), weights)
        if self.beside is None:
            return mixed
        return mixed + torch.sigmoid(scores[:, self.experts :]) * self._beside(self.beside, x)

    def _beside(self, network: DenseFeedForward, x: Tensor) -> Tensor:
        both, down = cast("KernelMatrix", network.gate_up), cast("KernelMatrix", network.down)
        n = x.shape[0]
        columns, gated = both.target(n), down.target(n)
        fill(columns, x)
        gate_up(both.multiply(columns), gated)
        return added(down.multiply(gated))
