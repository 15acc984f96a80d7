"""The two ways to run a model of random weights: as a shard, and with kernels in a graph."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import torch

from poolhouse_node.cli.bench.shape_model import EPSILON, config_of, make_blocks
from poolhouse_node.cli.bench.shape_weights import DenseWeights, KernelWeights

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.cli.bench.shapes import Shape
    from poolhouse_node.engine.graphs import FrameGraph
    from poolhouse_node.engine.kernels.fused import DeviceState
    from poolhouse_node.engine.kernels.matrices import PackedMatrix
    from poolhouse_node.engine.layers.linear import DenseMatrix

__all__ = ["KernelRun", "ShapeRun", "ShardRun"]

_BLOCK_ROWS = 16
_FRAME_REPEATS = 10


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
    """Plain torch through the same shard as in a room, on any device. Float32."""

    def __init__(
        self,
        shape: Shape,
        layers: tuple[int, int],
        device: torch.device,
        *,
        seed: int,
        context: int,
    ) -> None:
        from poolhouse_node.engine.head import Head
        from poolhouse_node.engine.model_part import ModelPart
        from poolhouse_node.engine.models.blocks import BlockStack
        from poolhouse_node.engine.torch_shard import TorchShard

        make = DenseWeights(seed, device)
        config = config_of(shape)
        blocks = make_blocks(shape, layers, make, context_size=context, device=device)
        stack = BlockStack(blocks, partial(config.state_shape, layers), 0)
        self._head: Head | None = None
        if layers == (0, shape.layers):
            table = cast("DenseMatrix", make.matrix(shape.vocabulary_size, shape.width))
            norm = make.vector(shape.width, mean=1.0, spread=0.1)
            self._head = Head(shape.vocabulary_size, table, norm, table, EPSILON)
        self._columns = torch.randn(context, shape.width, device=device)
        part = ModelPart(layers, shape.width, context, device, stack, self._head)
        self._shard = TorchShard(part, saved_states=0)
        self.weights_bytes = stack.held_bytes + (self._head.held_bytes if self._head else 0)

    @property
    def state_bytes(self) -> int:
        return self._shard.held_bytes - self.weights_bytes

    def prefill(self, columns: int) -> float:
        self._shard.reset()
        started = time.perf_counter()
        self._shard.pack(self._shard.run(self._columns[:columns], 0)[-1:])
        return time.perf_counter() - started

    def decode(self, tokens: int) -> float:
        started = time.perf_counter()
        hidden = self._columns[:1]
        for _ in range(tokens):
            out = self._shard.run(hidden, self._shard.position)
            if self._head is None:
                self._shard.pack(out)
            else:
                best = self._shard.head(out, 1).ids[0].tolist()
                hidden = self._shard.embed(best)
        return time.perf_counter() - started

    def frame_s(self, columns: int) -> float:
        started = time.perf_counter()
        out = self._shard.run(self._columns[:columns], self._shard.position)
        self._shard.pack(out[-1:])
        return time.perf_counter() - started

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
        self._state = _make_state(shape, layers, context, device)
        self._columns = torch.randn(context, shape.width, device=device)
        self._norm = make.vector(shape.width, mean=1.0, spread=0.1)
        self._table: PackedMatrix | None = None
        self._head: PackedMatrix | None = None
        if layers == (0, shape.layers):
            self._table = cast("PackedMatrix", make.matrix(shape.vocabulary_size, shape.width))
            # The catalogue's heads are Q6_K, which is multiplied as eight bits.
            head_quant = "bf16" if quant == "bf16" else "q8_0"
            self._head = cast(
                "PackedMatrix", make.matrix(shape.vocabulary_size, shape.width, head_quant)
            )
        self._token = torch.zeros(1, dtype=torch.int64, device=device)
        self._graph: FrameGraph | None = None
        self.weights_bytes = sum(block.held_bytes for block in self._blocks) + sum(
            matrix.held_bytes for matrix in (self._table, self._head) if matrix
        )
        state = self._state
        self.state_bytes = sum(
            tensor.nbytes for tensor in (state.memory, state.window, state.keys, state.values)
        )

    def prefill(self, columns: int) -> float:
        self._state.memory.zero_()
        self._state.window.zero_()
        self._state.position.zero_()
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
        from poolhouse_node.engine.graphs import FrameGraph, Readback

        if self._graph is None:
            position = self._state.position.clone()
            self._x = self._columns[:1].clone()
            restore = partial(self._state.position.copy_, position)
            self._graph = FrameGraph(self._step, restore=restore)
            self._readback = Readback(self._graph.result)
        graph = self._graph
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(tokens):
            self._readback.fetch(graph.replay())
        return time.perf_counter() - started

    def frame_s(self, columns: int) -> float:
        from poolhouse_node.engine.graphs import FrameGraph

        given = self._columns[:columns].clone()
        x = given.clone()

        def step() -> Tensor:
            x.copy_(given)
            return cast("Tensor", self._fused.run(x, self._state))

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
        state = self._state
        row_bytes = 2 * state.keys.shape[0] * shape.kv_heads * shape.head_size * 2
        return read + rows * row_bytes + 2 * (state.memory.nbytes + state.window.nbytes)


def _make_state(
    shape: Shape, layers: tuple[int, int], context: int, device: torch.device
) -> DeviceState:
    from poolhouse_node.engine.kernels.fused import DeviceState

    config = config_of(shape)
    attending = sum(config.attends(layer) for layer in range(*layers))
    recurring = layers[1] - layers[0] - attending
    delta = config.delta
    blocks = -(-context // _BLOCK_ROWS)
    rows = (attending, blocks + 1, _BLOCK_ROWS, shape.kv_heads, shape.head_size)
    random = torch.Generator().manual_seed(0)
    table = 1 + torch.randperm(blocks, generator=random)  # block 0 is for trash
    return DeviceState(
        memory=torch.zeros(recurring, delta.value_heads, delta.size, delta.size, device=device),
        window=torch.zeros(recurring, delta.taps - 1, delta.channels, device=device),
        keys=torch.zeros(rows, dtype=torch.float16, device=device),
        values=torch.zeros(rows, dtype=torch.float16, device=device),
        table=table.to(device, torch.int32),
        position=torch.zeros(1, dtype=torch.int32, device=device),
    )
