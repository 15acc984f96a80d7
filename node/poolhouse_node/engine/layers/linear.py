"""A weight matrix that multiplies columns. How it is kept is its own business."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DenseMatrix", "Matrix"]


class Matrix(Protocol):
    """``y = W x`` for ``n`` columns at once."""

    @property
    def held_bytes(self) -> int:
        """Memory it takes."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """[n, in] to [n, out]."""
        ...


class DenseMatrix:
    """Float32, as torch multiplies it."""

    __slots__ = ("_weight",)

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    @property
    def held_bytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self._weight)
