"""The weights of a mixture of experts as their file has them, before anyone keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.raw_matrix import RawMatrix

__all__ = ["ExpertSizes", "ExpertWeights", "SharedWeights"]


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Of one layer (engine, section 5)."""

    count: int
    used: int
    """Experts of a column."""
    width: int
    """Rows of an expert's gate."""
    shared_width: int
    """0: there is no shared expert."""
    normalised: bool
    """The weights of the experts taken are scaled to a sum of 1."""


@dataclass(frozen=True, slots=True)
class SharedWeights:
    """The expert that every column uses; ``share`` [width] is the row of its gate."""

    share: Tensor
    gate: RawMatrix
    up: RawMatrix
    down: RawMatrix


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """``gate``, ``up`` and ``down`` hold all experts, stacked along their rows."""

    sizes: ExpertSizes
    router: RawMatrix
    gate: RawMatrix
    up: RawMatrix
    down: RawMatrix
    shared: SharedWeights | None
