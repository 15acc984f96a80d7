"""A Gated DeltaNet layer with its weights (engine, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from poolhouse_node.engine.layers.convolution import convolve, with_window
from poolhouse_node.engine.layers.delta_rule import DeltaInputs, delta_chunks, delta_steps
from poolhouse_node.engine.layers.norm import rms_norm

if TYPE_CHECKING:
    from poolhouse_node.engine.layers.linear import Matrix
    from poolhouse_node.engine.state import RecurrentState, RoomPass

__all__ = ["DeltaNet", "DeltaSizes"]

_STEPPED_COLUMNS = 16
"""Up to so many columns go step by step: a frame of drafts gets the bits of single tokens."""
_LENGTH_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class DeltaSizes:
    """Heads of ``size`` values; value heads are a multiple of key heads."""

    key_heads: int
    value_heads: int
    size: int
    taps: int

    @property
    def channels(self) -> int:
        """What is convolved: queries, keys, values."""
        return (2 * self.key_heads + self.value_heads) * self.size

    @property
    def value_width(self) -> int:
        return self.value_heads * self.size


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Value heads are tiled: head ``j`` belongs to key head ``j mod key_heads``."""

    sizes: DeltaSizes
    layer: int
    """Counted among the recurrent layers of this part."""
    inputs: Matrix
    """Rows: queries, keys, values | output gate | rate | decay."""
    taps: Tensor
    """[taps, channels]."""
    decay_bias: Tensor
    decay_scale: Tensor
    """Negative, [value heads]."""
    norm: Tensor
    """[size], shared by the heads."""
    output: Matrix
    epsilon: float

    @property
    def held_bytes(self) -> int:
        small = (self.taps, self.decay_bias, self.decay_scale, self.norm)
        return self.inputs.held_bytes + self.output.held_bytes + sum(t.nbytes for t in small)

    def __call__(self, x: Tensor, this_pass: RoomPass) -> Tensor:
        sizes = self.sizes
        widths = [sizes.channels, sizes.value_width, sizes.value_heads, sizes.value_heads]
        mixed, gates, rates, decays = torch.split(self.inputs(x), widths, dim=-1)
        state = this_pass.recurrent(self.layer)
        rows = with_window(state.window, mixed)
        inputs = self._delta_inputs(functional.silu(convolve(rows, self.taps)), rates, decays)
        answers = self._recur(state, inputs, rows, this_pass)
        normed = rms_norm(answers, self.norm, self.epsilon)
        gated = normed * functional.silu(gates).view_as(normed)
        return self.output(gated.flatten(1))

    def _delta_inputs(self, convolved: Tensor, rates: Tensor, decays: Tensor) -> DeltaInputs:
        sizes = self.sizes
        key_width = sizes.key_heads * sizes.size
        queries, keys, values = (
            part.view(len(convolved), -1, sizes.size)
            for part in torch.split(convolved, [key_width, key_width, sizes.value_width], dim=-1)
        )
        repeats = sizes.value_heads // sizes.key_heads
        return DeltaInputs(
            queries=(_of_length_one(queries) * sizes.size**-0.5).repeat(1, repeats, 1),
            keys=_of_length_one(keys).repeat(1, repeats, 1),
            values=values,
            rates=torch.sigmoid(rates),
            log_decays=self.decay_scale * functional.softplus(decays + self.decay_bias),
        )

    def _recur(
        self, state: RecurrentState, inputs: DeltaInputs, rows: Tensor, this_pass: RoomPass
    ) -> Tensor:
        """Run the recurrence and leave memory and window as after the last column."""
        last, kept_rows = len(inputs) - 1, state.window.shape[0]

        def keep(column: int) -> None:
            if column < last:
                kept = this_pass.snapshot(self.layer, column)
                kept.memory.copy_(state.memory)
                kept.window.copy_(rows[column + 1 : column + 1 + kept_rows])

        if this_pass.keeps_snapshots:
            answers = delta_steps(state.memory, inputs, keep)
        elif len(inputs) <= _STEPPED_COLUMNS:
            answers = delta_steps(state.memory, inputs)
        else:
            answers = delta_chunks(state.memory, inputs)
        state.window.copy_(rows[last + 1 :])
        return answers


def _of_length_one(heads: Tensor) -> Tensor:
    """``x / sqrt(sum(x^2) + epsilon)``: the epsilon stands inside, as in the reference."""
    return heads * torch.rsqrt(heads.square().sum(-1, keepdim=True) + _LENGTH_EPSILON)
