"""Many feed-forward networks of one shape, of which every column uses a few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from poolhouse_node.engine.layers.mlp import gated_mlp

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.engine.layers.linear import Matrix

__all__ = ["ExpertBank", "Experts", "MatrixExperts"]


class Experts(Protocol):
    """The experts of a layer."""

    @property
    def held_bytes(self) -> int:
        """Memory their weights take."""
        ...

    def __call__(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Mix experts ``chosen`` [n, k] by ``weights`` [n, k] for columns ``x`` [n, width]."""
        ...


@dataclass(frozen=True, slots=True)
class ExpertBank:
    """Float32 weights of all experts: ``gate_up`` [experts, width, 2 * ffn], gate first, and
    ``down`` [experts, ffn, width], both transposed as :class:`DenseMatrix` is."""

    gate_up: Tensor
    down: Tensor

    @classmethod
    def of_matrices(cls, gate: Tensor, up: Tensor, down: Tensor) -> ExpertBank:
        """From [experts, ffn, width] twice and [experts, width, ffn], as a file has them."""
        gate_up = torch.cat([gate, up], dim=1)
        return cls(gate_up.transpose(1, 2).contiguous(), down.transpose(1, 2).contiguous())

    @classmethod
    def empty(cls, count: int, width: int, ffn_width: int, device: torch.device) -> ExpertBank:
        """To be filled, an expert at a time."""
        return cls(
            torch.empty(count, width, 2 * ffn_width, device=device),
            torch.empty(count, ffn_width, width, device=device),
        )

    @property
    def held_bytes(self) -> int:
        return self.gate_up.nbytes + self.down.nbytes

    def __call__(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return _mixed(self._expert, x, chosen, weights)

    def _expert(self, expert: int, x: Tensor) -> Tensor:
        gate, up = (x @ self.gate_up[expert]).chunk(2, dim=-1)
        return (functional.silu(gate) * up) @ self.down[expert]


@dataclass(frozen=True, slots=True)
class MatrixExperts:
    """Matrices of any kind, two for each expert: gate and up stacked, and down."""

    pairs: tuple[tuple[Matrix, Matrix], ...]

    @property
    def held_bytes(self) -> int:
        return sum(matrix.held_bytes for pair in self.pairs for matrix in pair)

    def __call__(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return _mixed(lambda expert, some: gated_mlp(some, *self.pairs[expert]), x, chosen, weights)


def _mixed(
    run: Callable[[int, Tensor], Tensor], x: Tensor, chosen: Tensor, weights: Tensor
) -> Tensor:
    """Mix experts ``chosen`` [n, k] by ``weights`` [n, k] for columns ``x`` [n, width].

    Columns of an expert are computed together, so each expert's weights are read once.
    """
    n, used = chosen.shape
    order = torch.argsort(chosen.flatten(), stable=True)
    experts, counts = torch.unique_consecutive(chosen.flatten()[order], return_counts=True)
    outputs = torch.empty(n * used, x.shape[1], dtype=x.dtype, device=x.device)
    for expert, places in zip(experts.tolist(), torch.split(order, counts.tolist()), strict=True):
        outputs[places] = run(expert, x[places // used])
    # Summed by rank, not in the order of experts: a column's sum is the same in any company.
    return (outputs.view(n, used, -1) * weights.unsqueeze(2)).sum(1)
