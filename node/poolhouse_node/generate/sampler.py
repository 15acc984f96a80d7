"""Choosing the next token from the largest logits (generation, section 12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from poolhouse_node.shard import TopLogits

__all__ = ["PRESETS", "Sampling", "choose"]

TOP_K_MAX = 64


@dataclass(frozen=True, slots=True)
class Sampling:
    """Temperature (0 or less: greedy) and how many of the best tokens may be drawn."""

    temperature: float = 0.0
    top_k: int = 40

    @property
    def is_greedy(self) -> bool:
        # "not above 0" rather than "at most 0": NaN is greedy too
        return not self.temperature > 0

    @property
    def candidates(self) -> int:
        """How many top logits the head must give."""
        return 1 if self.is_greedy else min(max(self.top_k, 1), TOP_K_MAX)


PRESETS = {
    "creative": Sampling(0.8, 40),
    "focused": Sampling(0.4, 20),
    "exact": Sampling(0.0, 1),
}


def choose(top: TopLogits, sampling: Sampling, draw: float, column: int = -1) -> int:
    """Token of one column; ``draw`` is uniform in ``[0, 1)`` and unused when greedy.

    Walks down the candidates subtracting their weights from ``draw * sum`` and takes the first
    that brings the rest to zero or below.
    """
    ids, values = top.ids[column], top.values[column].astype(np.float64)
    if sampling.is_greedy:
        return int(ids[0])
    weights = np.exp((values - values[0]) / sampling.temperature)
    rest = draw * weights.sum() - np.cumsum(weights)
    below = np.flatnonzero(rest <= 0)
    return int(ids[below[0] if below.size else -1])
