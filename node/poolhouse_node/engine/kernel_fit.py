"""Which models suit our kernels: asked of the header, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KernelSizes"]

_COLUMNS = 32
"""Weights that share a scale: what columns come in."""
_LEAST_HEAD = 32
_MOST_HEADS_OF_A_GROUP = 16
_PROMPT_COLUMNS = 1024
_WIDEST = 1 << 14
"""Values of a hidden state that one program norms."""


@dataclass(frozen=True, slots=True)
class KernelSizes:
    """Of one model, as far as kernels are made for some sizes only."""

    width: int
    head_sizes: tuple[int, ...]
    """Of attention and of recurrent layers."""
    group: int
    """Query heads of a key head."""
    inputs: tuple[int, ...]
    """Columns of every kind of matrix."""

    @property
    def workspace_bytes(self) -> int:
        """What computing takes besides weights and states, at most: a prompt's columns between
        products, and the largest matrix unpacked for them."""
        widest = 2 * max(self.inputs)  # gate and up
        columns = 4 * _PROMPT_COLUMNS * (4 * widest + 6 * self.width)
        return 2 * widest * self.width + columns

    @property
    def fit(self) -> bool:
        """Kernels compute such a model; otherwise torch's operators do."""
        return (
            self.width <= _WIDEST
            and self.group <= _MOST_HEADS_OF_A_GROUP
            and all(size >= _LEAST_HEAD and not size & (size - 1) for size in self.head_sizes)
            and all(columns % _COLUMNS == 0 for columns in (self.width, *self.inputs))
        )
