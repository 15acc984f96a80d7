"""Layers of a model as few launches: what the models compute, over the same weights.

Every product's parts are added up by the kernel that needs them, which also norms, gates and
writes the columns of the next product. The residual stream stays in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from torch.nn import functional

from poolhouse_node.engine.kernels.activations import COLUMNS, fill
from poolhouse_node.engine.kernels.attention import PagedRows, attend, finish_heads, write_heads
from poolhouse_node.engine.kernels.delta import Slots, convolve, recur
from poolhouse_node.engine.kernels.moe import PackedExperts
from poolhouse_node.engine.kernels.pointwise import add_norm, gate_heads, gate_up
from poolhouse_node.engine.layers.delta_net import DeltaNet
from poolhouse_node.engine.layers.feed_forward import DenseFeedForward
from poolhouse_node.engine.layers.normed_attention import NormedAttention
from poolhouse_node.engine.layers.rotary_attention import RotaryAttention
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.engine.kernels.attention import AngleTable, KernelAttention
    from poolhouse_node.engine.kernels.matrices import KernelMatrix
    from poolhouse_node.engine.models.blocks import Block

__all__ = ["DeviceState", "FusedBlocks"]


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One room's state in one model part, on the device.

    ``pages`` are keys and values of each attention layer, [blocks, block rows, kv heads, size]
    float16; ``table`` int32 names the room's blocks in order, ``position`` [1] int32 the first new
    column, ``slots`` its recurrent states. Which room it is, is data in the last three.
    """

    pages: Sequence[tuple[Tensor, Tensor]]
    table: Tensor
    position: Tensor
    slots: Slots

    def rows(self, layer: int) -> PagedRows:
        """Keys and values of attention layer ``layer``."""
        return PagedRows(*self.pages[layer], self.table, self.position)


class FusedBlocks:
    """Runs ``blocks`` made of matrices and experts of this package."""

    def __init__(self, blocks: Sequence[Block], angles: AngleTable | None) -> None:
        """``angles`` may only be missing where no layer attends."""
        self._blocks = tuple(blocks)
        self._angles = angles

    def run(
        self, x: Tensor, state: DeviceState, *, position: int | None = None, keeps: bool = False
    ) -> Tensor | None:
        """Columns ``x`` [n, width] float32 through the layers, updated in place.

        Returns what is still to be added to ``x``, in parts [parts, n, width], so that a norm
        that follows can do it. ``state.position`` is set by the caller; more than 16 columns need
        the number itself as ``position``. With ``keeps`` the recurrent state after every column
        but the last goes to the slots for it.
        """
        if x.shape[0] > COLUMNS and position is None:
            raise ShardError("A wide frame needs its position as a number.")
        delta: Tensor | None = None
        for block in self._blocks:
            delta = self._mix(block, x, delta, state, position=position, keeps=keeps)
            delta = _feed(block, x, delta)
        return delta

    def _mix(
        self,
        block: Block,
        x: Tensor,
        delta: Tensor | None,
        state: DeviceState,
        *,
        position: int | None,
        keeps: bool,
    ) -> Tensor:
        mixer = block.mixer
        if isinstance(mixer, DeltaNet):
            inputs = _project(mixer.inputs, block.mixer_norm, x, delta, block.epsilon)
            return _recurrent(mixer, inputs, state, keeps=keeps)
        if isinstance(mixer, NormedAttention | RotaryAttention):
            inputs = _project(mixer.query_key_value, block.mixer_norm, x, delta, block.epsilon)
            return self._attention(mixer, inputs, state.rows(mixer.layer), position)
        raise ShardError(f"There are no kernels for a {type(mixer).__name__}.")

    def _attention(
        self, attention: KernelAttention, inputs: Tensor, rows: PagedRows, position: int | None
    ) -> Tensor:
        if self._angles is None:
            raise ShardError("Attention needs a table of angles.")
        queries = write_heads(attention, inputs, self._angles, rows)
        n = queries.shape[0]
        output = cast("KernelMatrix", attention.output)
        target = output.target(n)
        if n > COLUMNS and position is not None:
            fill(target, _attend_many(attention, queries, inputs, rows, position))
        else:
            finish_heads(attention, attend(attention, queries, rows), inputs, target)
        return output.multiply(target)


def _project(
    matrix: object, norm: Tensor, x: Tensor, delta: Tensor | None, epsilon: float
) -> Tensor:
    kernel_matrix = cast("KernelMatrix", matrix)
    target = kernel_matrix.target(x.shape[0])
    add_norm(x, delta, norm, epsilon, target)
    return kernel_matrix.multiply(target)


def _recurrent(net: DeltaNet, inputs: Tensor, state: DeviceState, *, keeps: bool) -> Tensor:
    answers = recur(net, inputs, convolve(net, inputs, state.slots), state.slots, keeps=keeps)
    output = cast("KernelMatrix", net.output)
    target = output.target(inputs.shape[1])
    gate_heads(answers, inputs, net.sizes.channels, net.norm, net.epsilon, target)
    return output.multiply(target)


def _feed(block: Block, x: Tensor, delta: Tensor) -> Tensor:
    ffn = block.ffn
    n = x.shape[0]
    if isinstance(ffn, PackedExperts):
        normed, levels = torch.empty_like(x), ffn.gate_up.levels_apart(n)
        add_norm(x, delta, block.ffn_norm, block.epsilon, levels, normed)
        return ffn.mixed(normed, levels).unsqueeze(0)
    if isinstance(ffn, DenseFeedForward):
        both = _project(ffn.gate_up, block.ffn_norm, x, delta, block.epsilon)
        down = cast("KernelMatrix", ffn.down)
        target = down.target(n)
        gate_up(both, target)
        return down.multiply(target)
    raise ShardError(f"There are no kernels for a {type(ffn).__name__}.")


def _attend_many(
    attention: KernelAttention, queries: Tensor, inputs: Tensor, rows: PagedRows, position: int
) -> Tensor:
    """Attention of a wide frame through torch, gated: [n, heads * size]."""
    sizes = attention.sizes
    n, heads, size = queries.shape
    count = position + n
    blocks = rows.table[: -(-count // rows.keys.shape[1])].long()
    keys, values = (
        pool[blocks].view(-1, sizes.kv_heads, size)[:count].transpose(0, 1).unsqueeze(0)
        for pool in (rows.keys, rows.values)
    )
    mask = None
    if position:
        last = torch.arange(position, count, device=queries.device)
        mask = torch.arange(count, device=queries.device) <= last.unsqueeze(1)
    mixed = functional.scaled_dot_product_attention(
        queries.half().transpose(0, 1).unsqueeze(0),
        keys,
        values,
        attn_mask=mask,
        is_causal=position == 0,
        enable_gqa=True,
    )
    result = mixed[0].transpose(0, 1).float()
    if sizes.gated:
        gates = inputs.sum(0)[:, : heads * 2 * size].view(n, heads, 2, size)[:, :, 1]
        result = result * torch.sigmoid(gates)
    return result.reshape(n, heads * size)
