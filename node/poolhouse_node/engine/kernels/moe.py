"""The mixture of experts of one layer, packed, as a feed-forward network of the models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.engine.kernels.activations import fill
from poolhouse_node.engine.kernels.experts import choose, mix, router_scores
from poolhouse_node.engine.kernels.pointwise import gate_up
from poolhouse_node.engine.kernels.products import expert_product

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.kernels.activations import Levels
    from poolhouse_node.engine.kernels.matrices import PackedMatrix

__all__ = ["PackedExperts"]


@dataclass(frozen=True, slots=True)
class PackedExperts:
    """``experts`` networks of one width, of which a column uses ``used``.

    With ``shared`` one more stands behind them in ``gate_up``, ``down`` and ``router``: the expert
    that every column uses, and the row of its gate.
    """

    router: Tensor
    """[experts, width], with ``shared`` [experts + 1, width], float32."""
    gate_up: PackedMatrix
    """All experts stacked: rows of the gate, then those of up, expert after expert."""
    down: PackedMatrix
    experts: int
    used: int
    shared: bool
    normalised: bool

    @property
    def held_bytes(self) -> int:
        return self.router.nbytes + self.gate_up.held_bytes + self.down.held_bytes

    def __call__(self, x: Tensor) -> Tensor:
        target = self.gate_up.levels_apart(x.shape[0])
        fill(target, x)
        return self.mixed(x, target)

    def mixed(self, x: Tensor, levels: Levels) -> Tensor:
        """What is added to the residual stream [n, width]; ``x`` [n, width] and its levels."""
        stacked = self.experts + (1 if self.shared else 0)
        chosen, weights = choose(
            router_scores(x, self.router),
            self.experts,
            self.used,
            shared=self.shared,
            normalised=self.normalised,
        )
        jobs = chosen.flatten()
        wide = expert_product(self.gate_up.weight, stacked, jobs, levels)
        gated = self.down.levels_apart(len(jobs))
        gate_up(wide.unsqueeze(0), gated)
        return mix(expert_product(self.down.weight, stacked, jobs, gated), weights)
