"""Quantised matrices in the order in which the product kernel reads them.

A tile is 16 rows. Along a row, a step is 4 runs of 32 bytes: of int8 weights a run is one block of
the format, of 4-bit weights two blocks, the first in the lower nibbles. A tile's steps follow each
other in memory, so that a program streams through consecutive memory with wide loads, and a run
is what one tensor-core product takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from poolhouse_node.shard import ShardError
from poolhouse_node.weights.ggml_types import GgmlType

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BLOCK",
    "PACKABLE",
    "ROWS",
    "RUNS",
    "PackedWeight",
    "pack",
    "requantise",
    "stack",
    "unpack",
]

BLOCK = 32
"""Weights that share a scale."""
ROWS = 16
"""Rows of a tile."""
RUNS = 4
"""Runs of a step."""

PACKABLE = frozenset({GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q8_0})


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A matrix [rows, columns], or experts of one shape stacked along the rows.

    ``quants`` [tiles, steps, runs, 16, 32] int8; ``scales`` and, for formats with a least value,
    ``leasts`` [tiles, steps, halves, runs, 16] float16, where ``halves`` is 2 for 4-bit weights.
    Rows and columns are filled up with zeros to whole tiles and steps.
    """

    rows: int
    columns: int
    quants: Tensor
    scales: Tensor
    leasts: Tensor | None

    @property
    def halves(self) -> int:
        """Blocks in a run."""
        return self.scales.shape[2]

    @property
    def steps(self) -> int:
        return self.quants.shape[1]

    @property
    def padded_columns(self) -> int:
        return self.steps * RUNS * BLOCK * self.halves

    @property
    def held_bytes(self) -> int:
        leasts_bytes = 0 if self.leasts is None else self.leasts.nbytes
        return self.quants.nbytes + self.scales.nbytes + leasts_bytes


def pack(raw: Tensor, kind: GgmlType, shape: tuple[int, int]) -> PackedWeight:
    """Blocks as a model file has them, bytes [..., block size] of a matrix of ``shape``.

    On whatever device holds them. Raises :class:`ShardError` for a type that is not in
    :data:`PACKABLE` or columns that are no whole blocks.
    """
    rows, columns = shape
    if kind not in PACKABLE or columns % BLOCK:
        raise ShardError(f"A {kind.name} matrix of {columns} columns cannot be packed.")
    blocks = raw.reshape(rows, columns // BLOCK, -1)
    scales = _halves(blocks, 0)
    if kind is GgmlType.Q8_0:
        return _arrange(blocks[:, :, 2:].view(torch.int8), scales, None, shape, halves=1)
    has_least = kind is GgmlType.Q4_1
    leasts = _halves(blocks, 2) if has_least else None
    nibbles = blocks[:, :, 4 if has_least else 2 :]
    # The file's unsigned nibbles less 8, as signed ones, are the same bits with the top one turned.
    levels = torch.cat([nibbles & 15, nibbles >> 4], dim=2) ^ 8
    return _arrange(levels, scales, leasts, shape, halves=2)


def requantise(values: Tensor) -> PackedWeight:
    """Float32 [rows, columns] as eight-bit blocks (engine, section 8), for formats that are not
    multiplied as they are. Raises :class:`ShardError` for columns that are no whole blocks."""
    rows, columns = values.shape
    if columns % BLOCK:
        raise ShardError(f"A matrix of {columns} columns cannot be packed.")
    blocks = values.reshape(rows, columns // BLOCK, BLOCK)
    scales = (blocks.abs().amax(2) / 127).half()
    inverse = torch.where(scales > 0, 1 / scales.float(), 0.0).unsqueeze(2)
    levels = (blocks * inverse).round_().clamp_(-127, 127).to(torch.int8)
    return _arrange(levels, scales, None, (rows, columns), halves=1)


def _halves(blocks: Tensor, at: int) -> Tensor:
    return blocks[:, :, at : at + 2].contiguous().view(torch.float16).squeeze(2)


def _arrange(
    levels: Tensor, scales: Tensor, leasts: Tensor | None, shape: tuple[int, int], *, halves: int
) -> PackedWeight:
    """``levels`` [rows, blocks, 32], a byte each, and ``scales`` [rows, blocks] into tiles."""
    levels, scales = _filled(levels, halves), _filled(scales, halves)
    tiles, steps = scales.shape[0] // ROWS, scales.shape[1] // (RUNS * halves)
    grid = levels.view(tiles, ROWS, steps, RUNS, halves, BLOCK)
    bytes_ = grid[..., 0, :] if halves == 1 else (grid[..., 0, :] | (grid[..., 1, :] << 4))

    def factors(of: Tensor) -> Tensor:
        return of.view(tiles, ROWS, steps, RUNS, halves).permute(0, 2, 4, 3, 1).contiguous()

    return PackedWeight(
        *shape,
        quants=bytes_.permute(0, 2, 3, 1, 4).contiguous().view(torch.int8),
        scales=factors(scales),
        leasts=None if leasts is None else factors(_filled(leasts, halves)),
    )


def _filled(values: Tensor, halves: int) -> Tensor:
    """Zeros up to whole tiles and steps."""
    rows, blocks = -values.shape[0] % ROWS, -values.shape[1] % (RUNS * halves)
    if not rows and not blocks:
        return values
    filled = values.new_zeros((values.shape[0] + rows, values.shape[1] + blocks, *values.shape[2:]))
    filled[: values.shape[0], : values.shape[1]] = values
    return filled


def stack(parts: Sequence[PackedWeight]) -> PackedWeight:
    """Matrices of the same kind and columns as one, rows one after the other.

    Raises :class:`ShardError` unless every part but the last fills its tiles.
    """
    first = parts[0]
    if any(part.rows % ROWS for part in parts[:-1]):
        raise ShardError(f"Only matrices of a multiple of {ROWS} rows can be stacked.")
    leasts = [part.leasts for part in parts if part.leasts is not None]
    if any(part.quants.shape[1:] != first.quants.shape[1:] for part in parts) or len(
        leasts
    ) not in {
        0,
        len(parts),
    }:
        raise ShardError("Only matrices of the same kind and columns can be stacked.")
    return PackedWeight(
        rows=sum(part.rows for part in parts),
        columns=first.columns,
        quants=torch.cat([part.quants for part in parts]),
        scales=torch.cat([part.scales for part in parts]),
        leasts=torch.cat(leasts) if leasts else None,
    )


def unpack(weight: PackedWeight) -> Tensor:
    """Float32 [rows, columns], in plain torch operations: what the kernels are checked against."""
    quants = weight.quants
    if weight.halves == 1:
        levels = quants.unsqueeze(2).float()
    else:
        levels = torch.stack([(quants << 4) >> 4, quants >> 4], dim=2).float()
    values = levels * weight.scales.float().unsqueeze(5)
    if weight.leasts is not None:
        # Levels are 8 less than the format's, which counts from the least value.
        values = values + (weight.leasts.float() + 8 * weight.scales.float()).unsqueeze(5)
    # [tiles, steps, halves, runs, 16, 32] to rows of blocks in order.
    ordered = values.permute(0, 4, 1, 3, 2, 5).reshape(quants.shape[0] * ROWS, -1)
    return ordered[: weight.rows, : weight.columns].contiguous()
