"""Root-mean-square norm (engine, section 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["rms_norm"]


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """``x / sqrt(mean(x^2) + epsilon) * weight`` over the last axis."""
    return functional.rms_norm(x, weight.shape, weight, epsilon)
