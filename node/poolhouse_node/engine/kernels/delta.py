"""Gated DeltaNet between its products: convolution, recurrence, window (engine, section 4).

The recurrence goes column by column with the memory in registers, whether there is one column or
a thousand: a column has the same bits in any company, and the state is read and written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from poolhouse_node.engine.kernels.language import load_parts, sigmoid, silu
from poolhouse_node.engine.kernels.launch import EXACT

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.layers.delta_net import DeltaNet

__all__ = ["convolve", "recur"]

_VALUE_SPAN = 8
"""Columns of a memory that one warp holds: 1024 values of 128 rows."""


@triton.jit
def _convolve(
    inputs,  # [PARTS, columns, row] float32, channels first
    window,  # [TAPS - 1, channels] float32
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


def convolve(net: DeltaNet, inputs: Tensor, window: Tensor) -> Tensor:
    """Queries, keys and values [n, channels], ready for :func:`recur`.

    ``inputs`` [parts, n, row] is what ``net.inputs`` gave. ``window`` is read only.
    """
    sizes = net.sizes
    parts, n, row = inputs.shape
    out = torch.empty(n, sizes.channels, device=inputs.device)
    _convolve[(2 * sizes.key_heads + sizes.value_heads, n)](
        inputs,
        window,
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
    memory,  # [heads, SIZE, SIZE] float32, updated
    window,  # [TAPS - 1, channels] float32, updated
    decay_bias,  # [heads]
    decay_scale,  # [heads]
    answers,  # [columns, heads, SIZE] float32
    memories_kept,  # [columns - 1, ...] of memory, written when KEEPS
    windows_kept,
    kept_memory_stride,
    kept_window_stride,
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
    state = tl.load(memory + cell)
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
            tl.store(memories_kept + column * kept_memory_stride + cell, state, mask=is_kept)
    tl.store(memory + cell, state)
    # Nobody reads the window in this launch, so it can be moved on here.
    channel = (head * tl.num_programs(0) + span) * SHARE + tl.arange(0, SHARE)
    mask = channel < channels
    if KEEPS:
        for column in range(columns - 1):
            kept = windows_kept + column * kept_window_stride
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
    memory: Tensor,
    window: Tensor,
    kept: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Run the recurrence over the columns; returns answers [n, value heads, size].

    ``memory`` [heads, size, size] and ``window`` [taps - 1, channels] move on in place. ``kept``
    takes the memory and the window after every column but the last, [n - 1 or more, ...] each.
    """
    sizes = net.sizes
    parts, n, row = inputs.shape
    answers = torch.empty(n, sizes.value_heads, sizes.size, device=inputs.device)
    values = min(_VALUE_SPAN, sizes.size)
    spans = sizes.size // values
    memories, windows = kept if kept is not None else (memory, window)
    _recur[(spans, sizes.value_heads)](
        convolved,
        inputs,
        memory,
        window,
        net.decay_bias,
        net.decay_scale,
        answers,
        memories,
        windows,
        memories.stride(0),
        windows.stride(0),
        n,
        row,
        n * row,
        sizes.channels,
        sizes.key_heads,
        PARTS=parts,
        TAPS=sizes.taps,
        SIZE=sizes.size,
        VALUES=values,
        KEEPS=kept is not None,
        SHARE=triton.next_power_of_2(triton.cdiv(sizes.channels, spans * sizes.value_heads)),
        **EXACT,
        num_warps=1,
    )
    return answers
