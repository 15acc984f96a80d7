"""The short causal convolution of a DeltaNet layer, per channel, without bias (engine, section 4).

It is written as products and sums of whole rows, so that a column's value does not depend on how
many columns are computed with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["convolve", "with_window"]


def with_window(window: Tensor, inputs: Tensor) -> Tensor:
    """The inputs before and the new ones, [taps - 1 + n, channels].

    Rows ``j + 1 ..`` of it, ``taps - 1`` of them, are the window after new column ``j``.
    """
    return torch.cat([window, inputs])


def convolve(rows: Tensor, taps: Tensor) -> Tensor:
    """``rows`` of :func:`with_window` and ``taps`` [taps, channels], the last for the current
    column, to [n, channels]."""
    count = taps.shape[0]
    n = rows.shape[0] - count + 1
    mixed = rows[:n] * taps[0]
    for tap in range(1, count):
        mixed = mixed + rows[tap : tap + n] * taps[tap]
    return mixed
