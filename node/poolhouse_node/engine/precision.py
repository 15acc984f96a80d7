"""Exact or packed: how one process keeps weights and multiplies by them, measured once."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Literal, get_args

import torch

from poolhouse_node.compilers import cpu_fault, cuda_fault
from poolhouse_node.engine.devices import has_kernels
from poolhouse_node.engine.keeping import ExactKeeper, PackedKeeper
from poolhouse_node.engine.layers.linear import DenseMatrix
from poolhouse_node.engine.layers.packed import PackedMatrix
from poolhouse_node.engine.quant import Levels
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.engine.keeping import Keeper
    from poolhouse_node.engine.layers.linear import Matrix

__all__ = ["Asked", "Precision", "choose_precision", "keeper_of"]

Precision = Literal["exact", "packed"]
Asked = Literal["exact", "packed", "auto"]

_ROWS, _COLUMNS, _COPIES = 2048, 512, 16
"""Together 64 MiB of float32: more than caches hold, as a model's layers are."""
_TURNS = 3


def choose_precision(asked: str, device: torch.device) -> Precision:
    """What a process computes with on ``device``.

    ``auto`` is packed on CUDA with Triton, and on a CPU where packed products were measured to be
    faster. Elsewhere, and where nothing can be compiled, ``packed`` raises :class:`ShardError`.
    """
    if asked not in get_args(Asked):
        raise ShardError(f"{asked!r} is no precision: exact, packed or auto.")
    if asked == "exact":
        return "exact"
    if has_kernels(device):
        return "packed"
    fault = _fault(device)
    if asked == "packed":
        if fault is not None:
            raise ShardError(f"Packed weights cannot be used: {fault}. Or use --precision exact.")
        return "packed"
    return "packed" if fault is None and _is_packed_faster(torch.get_num_threads()) else "exact"


def _fault(device: torch.device) -> str | None:
    """What keeps ``device`` from computing with packed weights."""
    match device.type:
        case "cpu":
            return cpu_fault()
        case "cuda":
            return cuda_fault()
        case other:
            return f"there are no products for {other}"


def keeper_of(precision: Precision, device: torch.device) -> Keeper:
    """Keeps weights in that way."""
    if precision == "exact":
        return ExactKeeper(device)
    if device.type == "cpu":
        return PackedKeeper()
    from poolhouse_node.engine.kernels.keeper import KernelKeeper

    return KernelKeeper(device)


@functools.cache
def _is_packed_faster(threads: int) -> bool:
    """For one column, with so many threads. Takes about a tenth of a second, once."""
    with torch.inference_mode():
        scales = torch.full((_ROWS, _COLUMNS // 32), 0.01)
        levels = torch.full((_ROWS, _COLUMNS), 9, dtype=torch.int8)
        weight = Levels(levels, scales, scales, have_four_bits=True)
        packed = [PackedMatrix.of_levels(_ROWS, [weight]) for _ in range(_COPIES)]
        dense = [DenseMatrix(torch.ones(_ROWS, _COLUMNS)) for _ in range(_COPIES)]
        return _least_time_s(packed) < _least_time_s(dense)


def _least_time_s(matrices: Sequence[Matrix]) -> float:
    """One column through all of them, so that each comes from memory: the best of a few turns."""
    x = torch.ones(1, _COLUMNS)
    times_s = []
    for _ in range(_TURNS):
        started = time.perf_counter()
        for matrix in matrices:
            matrix(x)
        times_s.append(time.perf_counter() - started)
    return min(times_s)
