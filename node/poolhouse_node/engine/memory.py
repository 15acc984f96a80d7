"""How much memory a model part needs and how much a device has, both before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from poolhouse_node.container import memory_left_bytes
from poolhouse_node.engine.layers.packed import BLOCK_ROWS
from poolhouse_node.engine.paged.pages import PAGE_ROWS
from poolhouse_node.engine.paged.pool import RoomShare, share_bytes
from poolhouse_node.engine.raw_matrix import PIECE_VALUES
from poolhouse_node.shard import OutOfMemory
from poolhouse_node.weights.held import held_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from poolhouse_node.engine.precision import Precision
    from poolhouse_node.engine.state import StateShape
    from poolhouse_node.weights.gguf import GgufFile
    from poolhouse_node.weights.gguf_header import TensorInfo
    from poolhouse_node.weights.held import HeldAs

__all__ = [
    "MemoryNeed",
    "available_bytes",
    "free_here",
    "held_as",
    "loading_bytes",
    "weight_bytes",
]

_PROC = Path("/proc/meminfo")
_GB = 2**30  # as pledges are counted
_CONVERTING_BYTES = 12
"""A value, at most, between its file and how it is held: levels and factors, float32, a copy."""
_REORDERED = (".attn_q.weight", ".attn_k.weight")
"""Their rows lie in another order in some files: such a matrix is copied, by some formats twice."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What one more room takes: ``weights`` (0 if another room holds them) and its state."""

    weights: int
    shape: StateShape
    page_rows: int = PAGE_ROWS
    workspace: int = 0
    """To compute with, whoever computes."""
    loading: int = 0
    """For a moment, before there is a conversation."""

    def saved_states(self, wanted: int, available: int | None, of: str = "are free") -> int:
        """For how many saved conversations, at most ``wanted``, there is memory besides.

        Raises :class:`OutOfMemory` with the figures when not even the live one fits; ``of`` ends
        its sentence. ``available`` None means that nobody can tell.
        """
        if available is None:
            return wanted
        if available < self.least_bytes:
            raise OutOfMemory(self._too_little(available, of))
        each = self.state_bytes(1) - self.state_bytes(0)
        left = available - self.weights - self._lasting_bytes
        return min(wanted, left // max(1, each))

    @property
    def least_bytes(self) -> int:
        """With the live conversation and no saved one."""
        return self.weights + max(self.loading, self._lasting_bytes)

    @property
    def _lasting_bytes(self) -> int:
        """Besides the weights, once they are there."""
        return self.workspace + self.state_bytes(0)

    def state_bytes(self, saved_states: int) -> int:
        """A conversation and room for ``saved_states`` more."""
        share = RoomShare.of(self.shape, saved_states, self.page_rows)
        return share_bytes(self.shape, share, self.page_rows)

    def _too_little(self, available: int, of: str) -> str:
        if self.loading > self._lasting_bytes:
            more = f"{self.loading / _GB:.2f} to load them with"
        else:
            work = f"{self.workspace / _GB:.2f} to compute with, " if self.workspace else ""
            tokens = f"for a conversation of {self.shape.context_size} tokens"
            more = f"{work}{self.state_bytes(0) / _GB:.2f} {tokens}"
        return (
            f"These layers need {self.least_bytes / _GB:.2f} GB of memory "
            f"({self.weights / _GB:.2f} for weights, {more}); {available / _GB:.2f} GB {of}."
        )


def held_as(precision: Precision, device: torch.device) -> HeldAs:
    """How weights are held there."""
    if precision == "exact":
        return "float32"
    return "cpu-packed" if device.type == "cpu" else "gpu-packed"


def weight_bytes(file: GgufFile, names: Iterable[str], kept: HeldAs = "float32") -> int:
    """Memory of tensors as they are held; missing ones count nothing."""
    found = [file.tensors[name] for name in names if name in file.tensors]
    return sum(held_bytes(info, kept) for info in found)


def loading_bytes(file: GgufFile, names: Iterable[str]) -> int:
    """What loading tensors on a CPU needs besides what they are made, for a moment."""
    found = [file.tensors[name] for name in names if name in file.tensors]
    reordered = [info.size_bytes for info in found if info.name.endswith(_REORDERED)]
    return max(map(_piece_bytes, found), default=0) + 4 * max(reordered, default=0)


def _piece_bytes(info: TensorInfo) -> int:
    """A piece has no fewer rows than a block of packed weights."""
    values = min(math.prod(info.shape), max(PIECE_VALUES, BLOCK_ROWS * info.shape[-1]))
    return _CONVERTING_BYTES * values


def available_bytes(device: torch.device) -> int | None:
    """Memory that may still be taken on ``device``; ``None`` when the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return free_here()


def free_here(meminfo: Path = _PROC, groups: Iterable[Path] | None = None) -> int | None:
    """Of the machine, or of the container if it may use less. Cached files count as free."""
    machine = _meminfo_available(meminfo)
    container = memory_left_bytes(groups)
    known = [each for each in (machine, container) if each is not None]
    return min(known) if known else None


def _meminfo_available(path: Path) -> int | None:
    try:
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
