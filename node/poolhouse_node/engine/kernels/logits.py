"""Hidden states to logits on our kernels: final norm and head in two launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from poolhouse_node.engine.kernels.matrices import added
from poolhouse_node.engine.kernels.pointwise import add_norm

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.head import Head
    from poolhouse_node.engine.kernels.matrices import KernelMatrix

__all__ = ["logits_of"]


def logits_of(head: Head, hidden: Tensor) -> Tensor:
    """Up to 16 columns [n, width] to [n, vocabulary], float32. ``head`` is made of matrices of
    this package."""
    output = cast("KernelMatrix", head.output)
    target = output.target(len(hidden))
    add_norm(hidden.contiguous(), None, head.norm, head.epsilon, target)
    return added(output.multiply(target))
