"""The two ways to run a model of random weights: as a shard, and with kernels in a graph."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import torch

from poolhouse_node.cli.bench.shape_model import EPSILON, config_of, make_blocks
from poolhouse_node.cli.bench.shape_shards import head_quant, shard_of
from poolhouse_node.cli.bench.shape_weights import KernelWeights
from poolhouse_node.engine.head import Head

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.cli.bench.shapes import Shape
    from poolhouse_node.engine.graphs import FrameGraph
    from poolhouse_node.engine.kernels.fused import DeviceState
    from poolhouse_node.engine.kernels.matrices import PackedMatrix
    from poolhouse_node.engine.torch_shard import TorchShard

__all__ = ["FRAME_ROUNDS", "KernelRun", "ShapeRun", "ShardRun"]

_BLOCK_ROWS = 16
_FRAME_REPEATS = 10
FRAME_ROUNDS = 3
"""Frames of one width through a shard: one as it is, one that captures a graph, one by it."""


class ShapeRun(Protocol):
    """A model part to be timed."""

    @property
    def weights_bytes(self) -> int:
        """Memory of weights."""
        ...

    @property
    def state_bytes(self) -> int:
        """Memory of the room's state."""
        ...

    def prefill(self, columns: int) -> float:
        """Seconds for ``columns`` columns from position 0; they stay in the state."""
        ...

    def decode(self, tokens: int) -> float:
        """Seconds for so many tokens one after the other, each waited for."""
        ...

    def frame_s(self, columns: int) -> float:
        """Seconds for a frame of ``columns`` columns, layers only: what drafts cost to verify."""
        ...

    def token_bytes(self) -> int:
        """Bytes a token must read and write: weights, keys and values, recurrent state."""
        ...


class ShardRun:
    """Through the same shard as in a room: one call after the other, each as a room makes it."""

    def __init__(self, shape: Shape, shard: TorchShard, context: int) -> None:
        self.shard = shard
        self._ids = [number % max(1, shape.vocabulary_size) for number in range(context)]
        columns = torch.randn(context, shape.width, device=shard.device)
        self._sent, self._column_bytes = shard.pack(columns).data, 2 * shape.width
        self.weights_bytes = shard.holding.weights_bytes

    @property
    def state_bytes(self) -> int:
        return self.shard.held_bytes - self.weights_bytes

    def prefill(self, columns: int) -> float:
        self.shard.reset()
        started = time.perf_counter()
        if self.shard.has_embedding:
            self.shard.top_of_ids(self._ids[:columns], 0, 1)
        else:
            self._forward(columns)
        return time.perf_counter() - started

    def decode(self, tokens: int) -> float:
        shard, best = self.shard, self._ids[:1]
        started = time.perf_counter()
        for _ in range(tokens):
            if shard.has_embedding:
                best = shard.top_of_ids(best, shard.position, 1).ids[0].tolist()
            else:
                self._forward(1)
        return time.perf_counter() - started

    def frame_s(self, columns: int) -> float:
        for _ in range(FRAME_ROUNDS):
            started = time.perf_counter()
            self._forward(columns)
        return time.perf_counter() - started

    def _forward(self, columns: int) -> None:
        data = self._sent[: columns * self._column_bytes]
        self.shard.forward_bytes(data, columns, self.shard.position)

    def token_bytes(self) -> int:
        return self.weights_bytes


class KernelRun:
    """Kernels of this project in a CUDA graph, with one synchronisation a token."""

    def __init__(
        self,
        shape: Shape,
        layers: tuple[int, int],
        device: torch.device,
        *,
        quant: str,
        seed: int,
        context: int,
    ) -> None:
        from poolhouse_node.engine.kernels.attention import AngleTable
        from poolhouse_node.engine.kernels.fused import FusedBlocks

        make = KernelWeights(seed, device, quant)
        self._shape, self._layers, self._device = shape, layers, device
        self._blocks = make_blocks(shape, layers, make, context_size=context, device=device)
        angles = AngleTable.make(shape.rotated, shape.rope_base, context, device)
        self._fused = FusedBlocks(self._blocks, angles)
        self._context = context
        self._pages = _Pages.make(shape, layers, context, device)
        self._state = self._pages.state
        self._columns = torch.randn(context, shape.width, device=device)
        self._norm = make.vector(shape.width, mean=1.0, spread=0.1)
        self._table: PackedMatrix | None = None
        self._head: PackedMatrix | None = None
        if layers == (0, shape.layers):
            self._table = cast("PackedMatrix", make.matrix(shape.vocabulary_size, shape.width))
            self._head = cast(
                "PackedMatrix", make.matrix(shape.vocabulary_size, shape.width, head_quant(quant))
            )
        self._token = torch.zeros(1, dtype=torch.int64, device=device)
        self._graph: FrameGraph | None = None
        self.weights_bytes = sum(block.held_bytes for block in self._blocks) + sum(
            matrix.held_bytes for matrix in (self._table, self._head) if matrix
        )
        self.state_bytes = self._pages.recurrent_bytes + self._pages.rows_bytes

    def prefill(self, columns: int) -> float:
        self._pages.clear()
        torch.cuda.synchronize()
        started = time.perf_counter()
        x = self._columns[:columns].clone()
        delta = self._fused.run(x, self._state, position=0)
        last = x[-1:].clone()
        self._finish(last, None if delta is None else delta[:, -1:].contiguous())
        self._state.position.add_(columns)
        torch.cuda.synchronize()
        return time.perf_counter() - started

    def decode(self, tokens: int) -> float:
        from poolhouse_node.engine.graphs import FrameGraph
        from poolhouse_node.engine.pinned import Download

        if self._graph is None:
            self._x = self._columns[:1].clone()
            self._step()
            self._graph = FrameGraph(self._step)
        graph, download = self._graph, Download()
        download.fetch(graph.replay())
        started = time.perf_counter()
        for _ in range(tokens):
            download.fetch(graph.replay())
        return time.perf_counter() - started

    def frame_s(self, columns: int) -> float:
        from poolhouse_node.engine.graphs import FrameGraph

        given = self._columns[:columns].clone()
        x = given.clone()

        def step() -> Tensor:
            x.copy_(given)
            return cast("Tensor", self._fused.run(x, self._state))

        step()
        graph = FrameGraph(step)
        graph.replay()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(_FRAME_REPEATS):
            graph.replay()
        torch.cuda.synchronize()
        return (time.perf_counter() - started) / _FRAME_REPEATS

    def _step(self) -> Tensor:
        x = self._x
        x.copy_(self._columns[:1] if self._table is None else self._table.rows(self._token))
        delta = self._fused.run(x, self._state)
        self._state.position.add_(1)
        return self._finish(x, delta)

    def _finish(self, x: Tensor, delta: Tensor | None) -> Tensor:
        """The best token, or for a part without a head the packed hidden state."""
        from poolhouse_node.engine.kernels.halves import pack_halves
        from poolhouse_node.engine.kernels.pointwise import add_norm

        if self._head is None:
            for part in () if delta is None else delta:
                x.add_(part)
            return pack_halves(x)[0]
        target = self._head.target(1)
        add_norm(x, delta, self._norm, EPSILON, target)
        logits = self._head.multiply(target)[0]
        self._token.copy_(logits.argmax(-1))
        return self._token

    def token_bytes(self) -> int:
        shape = self._shape
        read = self.weights_bytes - (self._table.held_bytes if self._table else 0)
        if shape.experts:
            idle = 1 - (shape.experts_used + 1) / (shape.experts + 1)
            experts = sum(block.ffn.held_bytes for block in self._blocks)
            read -= int(idle * experts)
        rows = int(self._state.position.item())
        row_bytes = 2 * len(self._state.pages) * shape.kv_heads * shape.head_size * 2
        return read + rows * row_bytes + 2 * self._pages.recurrent_bytes

    def in_a_room(self) -> ShardRun:
        """The same weights as a room uses them."""
        shape, head = self._shape, None
        if self._table is not None and self._head is not None:
            head = Head(shape.vocabulary_size, self._table, self._norm, self._head, EPSILON)
        shard = shard_of(
            shape,
            self._layers,
            self._device,
            self._blocks,
            head,
            context=self._context,
            on_kernels=True,
        )
        return ShardRun(shape, shard, self._context)


@dataclass(frozen=True, slots=True)
class _Pages:
    """The state of one room without a pool around it."""

    memory: Tensor
    window: Tensor
    state: DeviceState

    @classmethod
    def make(
        cls, shape: Shape, layers: tuple[int, int], context: int, device: torch.device
    ) -> _Pages:
        from poolhouse_node.engine.kernels.delta import Slots
        from poolhouse_node.engine.kernels.fused import DeviceState

        config = config_of(shape)
        attending = sum(config.attends(layer) for layer in range(*layers))
        recurring = layers[1] - layers[0] - attending
        delta = config.delta
        memory = torch.zeros(recurring, delta.value_heads, delta.size, delta.size, device=device)
        window = torch.zeros(recurring, delta.taps - 1, delta.channels, device=device)
        blocks = -(-context // _BLOCK_ROWS)
        rows = (blocks + 1, _BLOCK_ROWS, shape.kv_heads, shape.head_size)
        random = torch.Generator().manual_seed(0)
        table = 1 + torch.randperm(blocks, generator=random)  # block 0 is for trash
        halves = partial(torch.zeros, rows, dtype=torch.float16, device=device)
        state = DeviceState(
            pages=[(halves(), halves()) for _ in range(attending)],
            table=table.to(device, torch.int32),
            position=torch.zeros(1, dtype=torch.int32, device=device),
            slots=Slots(
                *(torch.tensor([each.data_ptr()], device=device) for each in (memory, window))
            ),
        )
        return cls(memory, window, state)

    @property
    def recurrent_bytes(self) -> int:
        return self.memory.nbytes + self.window.nbytes

    @property
    def rows_bytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.state.pages)

    def clear(self) -> None:
        """A room that has seen nothing."""
        for tensor in (self.memory, self.window, self.state.position):
            tensor.zero_()
