"""Gated DeltaNet between its products: convolution, recurrence, window (engine, section 4).

The recurrence goes column by column with the memory in registers, whether there is one column or
a thousand: a column has the same bits in any company, and the state is read and written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from poolhouse_node.engine.kernels.language import load_parts, sigmoid, silu
from poolhouse_node.engine.kernels.launch import EXACT

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.layers.delta_net import DeltaNet

__all__ = ["SLOTS", "Slots", "convolve", "recur"]

SLOTS = 17
"""Addresses in :class:`Slots`: the live one's, and one for each column of the widest frame."""

_VALUE_SPAN = 8
"""Columns of a memory that one warp holds: 1024 values of 128 rows."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Where one room's recurrent states are: addresses, int64 [:data:`SLOTS`] each.

    The first is that of the live state, that of ``1 + j`` takes the state after column j. Slots
    keep their places in memory, so one graph serves every room, and none is ever copied to grow.
    """

    memories: Tensor
    windows: Tensor


def _window_size(net: DeltaNet) -> int:
    return (net.sizes.taps - 1) * net.sizes.channels


@triton.jit
def _convolve(
    inputs,  # [PARTS, columns, row] float32, channels first
    windows,  # [1 or more] int64, addresses of [layers, TAPS - 1, channels] float32
    window_at,  # where this layer's is
    taps,  # [TAPS, channels] float32
    out,  # [columns, channels] float32
    row,
    part_stride,
    channels,
    query_heads,
    key_heads,
    query_scale,
    PARTS: tl.constexpr,
    TAPS: tl.constexpr,
    SIZE: tl.constexpr,
):
    """One head of one column; heads of queries and keys get length 1."""
    head = tl.program_id(0)
    column = tl.program_id(1)
    at = head * SIZE + tl.arange(0, SIZE)
    every = at < channels
    window = tl.load(windows).to(tl.pointer_type(tl.float32)) + window_at
    total = tl.zeros((SIZE,), tl.float32)
    for tap in tl.static_range(TAPS):
        source = column + tap - (TAPS - 1)
        before = tl.load(window + (source + TAPS - 1) * channels + at, mask=every & (source < 0))
        here = load_parts(inputs + source * row, at, part_stride, every & (source >= 0), PARTS)
        total += tl.where(source < 0, before, here) * tl.load(taps + tap * channels + at)
    value = silu(total)
    if head < query_heads + key_heads:
        value *= 1.0 / tl.sqrt(tl.sum(value * value, axis=0) + 1e-6)
    if head < query_heads:
        value *= query_scale
    tl.store(out + column * channels + at, value)


def convolve(net: DeltaNet, inputs: Tensor, slots: Slots) -> Tensor:
    """Queries, keys and values [n, channels], ready for :func:`recur`.

    ``inputs`` [parts, n, row] is what ``net.inputs`` gave. The window is read only.
    """
    sizes = net.sizes
    parts, n, row = inputs.shape
    out = torch.empty(n, sizes.channels, device=inputs.device)
    _convolve[(2 * sizes.key_heads + sizes.value_heads, n)](
        inputs,
        slots.windows,
        net.layer * _window_size(net),
        net.taps,
        out,
        row,
        n * row,
        sizes.channels,
        sizes.key_heads,
        sizes.key_heads,
        sizes.size**-0.5,
        PARTS=parts,
        TAPS=sizes.taps,
        SIZE=sizes.size,
        **EXACT,
        num_warps=1,
    )
    return out


@triton.jit
def _recur(
    convolved,  # [columns, channels] float32: queries | keys | values
    inputs,  # [PARTS, columns, row] float32: channels | gates | rates | decays
    memories,  # [17] int64, addresses of [layers, heads, SIZE, SIZE] float32: live, then kept
    memory_at,  # where this layer's is
    windows,  # [17] int64, addresses of [layers, TAPS - 1, channels] float32
    window_at,
    decay_bias,  # [heads]
    decay_scale,  # [heads]
    answers,  # [columns, heads, SIZE] float32
    columns,
    row,
    part_stride,
    channels,
    key_heads,
    PARTS: tl.constexpr,
    TAPS: tl.constexpr,
    SIZE: tl.constexpr,
    VALUES: tl.constexpr,
    KEEPS: tl.constexpr,
    SHARE: tl.constexpr,
):
    """``VALUES`` columns of the memory of one head, and a share of the window."""
    span = tl.program_id(0)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    key = tl.arange(0, SIZE)
    value = span * VALUES + tl.arange(0, VALUES)
    group = head % key_heads
    cell = head * SIZE * SIZE + key[:, None] * SIZE + value[None, :]
    memory = tl.load(memories).to(tl.pointer_type(tl.float32)) + memory_at
    window = tl.load(windows).to(tl.pointer_type(tl.float32)) + window_at
    # What an address is a multiple of cannot be seen here; slots begin where allocations do.
    live = tl.multiple_of(memory + cell, (16, 16))
    state = tl.load(live)
    bias = tl.load(decay_bias + head)
    rate_of_decay = tl.load(decay_scale + head)
    rate_at = channels + heads * SIZE + head
    for column in range(columns):
        here = convolved + column * channels
        q = tl.load(here + group * SIZE + key)
        k = tl.load(here + (key_heads + group) * SIZE + key)
        v = tl.load(here + (2 * key_heads + head) * SIZE + value)
        first = inputs + column * row
        rate = sigmoid(load_parts(first, rate_at, part_stride, True, PARTS))
        decay = load_parts(first, rate_at + heads, part_stride, True, PARTS) + bias
        softplus = tl.where(decay > 20.0, decay, tl.log(1.0 + tl.exp(tl.minimum(decay, 20.0))))
        state = state * tl.exp(rate_of_decay * softplus)
        error = rate * (v - tl.sum(state * k[:, None], axis=0))
        state += k[:, None] * error[None, :]
        answer = tl.sum(state * q[:, None], axis=0)
        tl.store(answers + (column * heads + head) * SIZE + value, answer)
        if KEEPS:
            is_kept = column < columns - 1
            kept_memory = tl.load(memories + 1 + column).to(tl.pointer_type(tl.float32))
            kept_cell = tl.multiple_of(kept_memory + memory_at + cell, (16, 16))
            tl.store(kept_cell, state, mask=is_kept)
    tl.store(live, state)
    # Nobody reads the window in this launch, so it can be moved on here.
    channel = (head * tl.num_programs(0) + span) * SHARE + tl.arange(0, SHARE)
    mask = channel < channels
    if KEEPS:
        for column in range(columns - 1):
            kept = tl.load(windows + 1 + column).to(tl.pointer_type(tl.float32)) + window_at
            _move_window(
                kept,
                window,
                inputs,
                channel,
                mask,
                column + 1,
                row,
                part_stride,
                channels,
                PARTS,
                TAPS,
            )
    _move_window(
        window, window, inputs, channel, mask, columns, row, part_stride, channels, PARTS, TAPS
    )


@triton.jit
def _move_window(
    to,
    window,
    inputs,
    channel,
    mask,
    columns,
    row,
    part_stride,
    channels,
    PARTS: tl.constexpr,
    TAPS: tl.constexpr,
):
    """The window after ``columns`` columns. In place rows move up, so the first goes first."""
    for kept in tl.static_range(TAPS - 1):
        source = columns + kept - (TAPS - 1)
        before = tl.load(
            window + (source + TAPS - 1) * channels + channel, mask=mask & (source < 0), other=0.0
        )
        here = load_parts(inputs + source * row, channel, part_stride, mask & (source >= 0), PARTS)
        tl.store(to + kept * channels + channel, tl.where(source < 0, before, here), mask=mask)


def recur(
    net: DeltaNet,
    inputs: Tensor,
    convolved: Tensor,
    slots: Slots,
    *,
    keeps: bool,
) -> Tensor:
    """Run the recurrence over the columns; returns answers [n, value heads, size].

    The live slot moves on in place. With ``keeps`` the state after every column but the last goes
    to the slots behind it.
    """
    sizes = net.sizes
    parts, n, row = inputs.shape
    answers = torch.empty(n, sizes.value_heads, sizes.size, device=inputs.device)
    values = min(_VALUE_SPAN, sizes.size)
    spans = sizes.size // values
    _recur[(spans, sizes.value_heads)](
        convolved,
        inputs,
        slots.memories,
        net.layer * sizes.value_heads * sizes.size**2,
        slots.windows,
        net.layer * _window_size(net),
        net.decay_bias,
        net.decay_scale,
        answers,
        n,
        row,
        n * row,
        sizes.channels,
        sizes.key_heads,
        PARTS=parts,
        TAPS=sizes.taps,
        SIZE=sizes.size,
        VALUES=values,
        KEEPS=keeps,
        SHARE=triton.next_power_of_2(triton.cdiv(sizes.channels, spans * sizes.value_heads)),
        **EXACT,
        num_warps=1,
    )
    return answers
