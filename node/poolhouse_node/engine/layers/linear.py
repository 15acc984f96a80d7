"""A weight matrix that multiplies columns. How it is kept is its own business."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch.nn import functional

from poolhouse_node.engine.layers.sized_columns import DIRECT_COLUMNS, sized, summed

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Bfloat16Matrix", "DenseMatrix", "Matrix", "Table"]


class Matrix(Protocol):
    """``y = W x`` for ``n`` columns at once."""

    @property
    def held_bytes(self) -> int:
        """Memory it takes."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """[n, in] to [n, out]."""
        ...


class Table(Matrix, Protocol):
    """A matrix whose rows are also looked up: an embedding, a head."""

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of ``W``, float32 [n, in]."""
        ...


class DenseMatrix:
    """Float32, made of ``weight`` [out, in].

    Kept as [in, out]: for one column torch's CPU product then streams whole rows and takes two
    thirds of the time; for many columns it makes no difference.
    """

    __slots__ = ("_transposed",)

    def __init__(self, weight: Tensor) -> None:
        self._transposed = weight.T.contiguous()

    @property
    def held_bytes(self) -> int:
        return self._transposed.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self._transposed

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of ``W``, [n, in]: the look-up of a table that also multiplies."""
        return self._transposed[:, index].T.contiguous()


class Bfloat16Matrix:
    """bfloat16 weights, made of ``weight`` [out, in]; for what has more than four bits.

    Few columns are multiplied in bfloat16, in several sizes: half of the bytes of float32. Many are
    multiplied in float32, with the weights widened for the moment.
    """

    __slots__ = ("_weight",)

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight.bfloat16().contiguous()

    @property
    def held_bytes(self) -> int:
        return self._weight.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[0] > DIRECT_COLUMNS:
            return functional.linear(x, self._weight.float())
        return summed(functional.linear(sized(x), self._weight))

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of ``W``, float32 [n, in]."""
        return self._weight[index].float()
