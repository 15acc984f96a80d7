"""The gated feed-forward network (engine, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.layers.linear import Matrix

__all__ = ["gated_mlp"]


def gated_mlp(x: Tensor, gate_up: Matrix, down: Matrix) -> Tensor:
    """``down (silu(gate x) * up x)``; ``gate_up`` is the two matrices stacked, gate first."""
    gate, up = gate_up(x).chunk(2, dim=-1)
    return down(functional.silu(gate) * up)
