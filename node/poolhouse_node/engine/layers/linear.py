"""A weight matrix that multiplies columns. How it is kept is its own business."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

__all__ = ["DenseMatrix", "Matrix", "Table", "fill_columns"]


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

    @classmethod
    def of_pieces(
        cls, rows: int, columns: int, pieces: Iterable[Tensor], device: torch.device
    ) -> DenseMatrix:
        """Of ``rows`` rows that come some at a time, [n, columns] each, from wherever they are."""
        transposed = torch.empty(columns, rows, device=device)
        fill_columns(transposed, pieces)
        return cls(transposed.T)

    @property
    def held_bytes(self) -> int:
        return self._transposed.nbytes

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self._transposed

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` of ``W``, [n, in]: the look-up of a table that also multiplies."""
        return self._transposed[:, index].T.contiguous()


def fill_columns(out: Tensor, pieces: Iterable[Tensor]) -> None:
    """Write rows that come some at a time, [n, in] each, as the columns of ``out`` [in, all]."""
    done = 0
    for piece in pieces:
        out[:, done : done + len(piece)] = piece.T
        done += len(piece)
