"""Rotary position embedding, half-split pairs (engine, section 1), and llama's row order."""

from __future__ import annotations

import torch
from torch import Tensor

from poolhouse_node.shard import ShardError

__all__ = ["RotaryTable", "split_interleaved_rows"]

_MAX_DIMENSIONS = 4096


class RotaryTable:
    """Cosines and sines of every position of a context, made once.

    The first ``dimensions`` values of a head rotate, in pairs (i, i + dimensions / 2); the others
    pass through.
    """

    __slots__ = ("_cosines", "_sines")

    def __init__(self, dimensions: int, base: float, positions: int, device: torch.device) -> None:
        if dimensions > _MAX_DIMENSIONS:  # a damaged header must not make us take all memory
            raise ShardError(f"This engine cannot rotate heads of {dimensions:,} values.")
        exponents = torch.arange(0, dimensions, 2, dtype=torch.float64) / dimensions
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), base**-exponents)
        # [positions, 1, dimensions]: the halves side by side, the first half of sines negated, so
        # that rotating is x * cos + swapped(x) * sin.
        cosines, sines = angles.cos(), angles.sin()
        self._cosines = torch.cat([cosines, cosines], 1).unsqueeze(1).to(device, torch.float32)
        self._sines = torch.cat([-sines, sines], 1).unsqueeze(1).to(device, torch.float32)

    @property
    def held_bytes(self) -> int:
        return self._cosines.nbytes + self._sines.nbytes

    def angles(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines [positions, dimensions / 2]."""
        half = self._cosines.shape[-1] // 2
        return self._cosines[:, 0, :half].contiguous(), self._sines[:, 0, half:].contiguous()

    def rotate(self, heads: Tensor, position: int) -> Tensor:
        """Rotate ``heads`` [n, heads, size >= dimensions] of columns at ``position ..``."""
        dimensions = self._cosines.shape[-1]
        if heads.shape[-1] == dimensions:
            return self._rotate_whole(heads, position)
        rotated = self._rotate_whole(heads[..., :dimensions], position)
        return torch.cat([rotated, heads[..., dimensions:]], -1)

    def _rotate_whole(self, heads: Tensor, position: int) -> Tensor:
        n = heads.shape[0]
        cosines = self._cosines[position : position + n]
        sines = self._sines[position : position + n]
        return heads * cosines + heads.roll(heads.shape[-1] // 2, -1) * sines


def split_interleaved_rows(weight: Tensor, heads: int) -> Tensor:
    """Rows of a llama GGUF's q or k matrix in half-split order.

    Such a file stores row ``2i + s`` of a head where the half-split row is ``i + s * half``
    (engine, section 2).
    """
    rows, columns = weight.shape
    pairs = weight.view(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
