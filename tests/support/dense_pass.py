"""A room's state in plain tensors: the clearest way to keep what ``engine.state`` asks for."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from poolhouse_node.engine.state import RecurrentState, StateShape

__all__ = ["DensePass", "DenseState"]


@dataclass(slots=True)
class DenseState:
    """Keys and values grow row by row; recurrent layers have their two tensors."""

    shape: StateShape
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    memories: list[RecurrentState] = field(default_factory=list)
    snapshots: dict[tuple[int, int], RecurrentState] = field(default_factory=dict)
    position: int = 0

    def __post_init__(self) -> None:
        if attention := self.shape.attention:
            rows = (0, attention.kv_heads, attention.head_size)
            self.keys = [torch.zeros(rows) for _ in range(attention.layers)]
            self.values = [torch.zeros(rows) for _ in range(attention.layers)]
        if self.shape.recurrent:
            self.memories = [self.empty() for _ in range(self.shape.recurrent.layers)]

    def empty(self) -> RecurrentState:
        r = self.shape.recurrent
        return RecurrentState(
            torch.zeros(r.heads, r.key_size, r.value_size), torch.zeros(r.taps - 1, r.channels)
        )

    def run(self, model, x: Tensor, *, snapshots: bool = False) -> Tensor:
        """One pass at the current position."""
        if snapshots:
            self.snapshots = {}
        with torch.inference_mode():
            result = model.run(x, DensePass(self, self.position, len(x), snapshots))
        self.position += len(x)
        return result

    def rollback(self, base: int, column: int) -> None:
        """After ``column`` of the last pass with snapshots, which began at ``base``."""
        for layer, state in enumerate(self.memories):
            kept = self.snapshots.get((layer, column))
            if kept is not None:
                state.memory.copy_(kept.memory)
                state.window.copy_(kept.window)
        self.position = base + column + 1


@dataclass(slots=True)
class DensePass:
    state: DenseState
    position: int
    columns: int
    keeps_snapshots: bool = False

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        state, n, group = self.state, len(queries), queries.shape[1] // keys.shape[1]
        state.keys[layer] = torch.cat([state.keys[layer][: self.position], keys])
        state.values[layer] = torch.cat([state.values[layer][: self.position], values])
        k = state.keys[layer].repeat_interleave(group, 1)
        v = state.values[layer].repeat_interleave(group, 1)
        scores = torch.einsum("nhd,mhd->hnm", queries, k) / queries.shape[2] ** 0.5
        future = torch.ones(n, len(k), dtype=torch.bool).triu(1 + self.position)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        return torch.einsum("hnm,mhd->nhd", weights, v).flatten(1)

    def recurrent(self, layer: int) -> RecurrentState:
        return self.state.memories[layer]

    def snapshot(self, layer: int, column: int) -> RecurrentState:
        assert self.keeps_snapshots
        assert 0 <= column < self.columns - 1
        return self.state.snapshots.setdefault((layer, column), self.state.empty())
