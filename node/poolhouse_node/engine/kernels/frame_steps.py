"""Frames of up to 16 columns from the host's bytes to the host's bytes: one launch, one wait.

Copies in, look-up or widening, layers, packing or head, copies out: all of it is one graph, so
that Python does a few lines before the device begins and a few after it has ended. After a pause
of milliseconds those lines are slow, and a lap through a room pauses at every device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from poolhouse_node.engine.computing import head_of
from poolhouse_node.engine.kernels.activations import COLUMNS
from poolhouse_node.engine.kernels.best import best_keys, read_keys
from poolhouse_node.engine.kernels.halves import packed_bytes, read_packed
from poolhouse_node.engine.kernels.logits import logits_of
from poolhouse_node.engine.pinned import pinned_page
from poolhouse_node.shard import TopLogits

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor

    from poolhouse_node.engine.head import Head
    from poolhouse_node.engine.kernels.frame_layers import FrameLayers
    from poolhouse_node.engine.paged.sequence import RoomState
    from poolhouse_node.shard import Packed

__all__ = ["FrameSteps"]


_DRAWN_FROM_MAX = 64
"""The most logits that sampling draws from (generation, section 12)."""


class FrameSteps:
    """Satisfies :class:`~poolhouse_node.engine.computing.Steps`. Every call waits for its end, so
    the pages of the host are free again."""

    columns_max = COLUMNS

    def __init__(
        self, layers: FrameLayers, head: Head | None, *, width: int, device: torch.device
    ) -> None:
        self._layers, self._head, self._width, self._device = layers, head, width, device
        self.graphs = layers.graphs
        self._out: dict[Hashable, _Page] = {}
        """Where graphs write to, by graph."""
        self._done = torch.cuda.Event() if device.type == "cuda" else None

    def forward_ids(self, room: RoomState, ids: Sequence[int], position: int) -> Packed:
        n, given = len(ids), np.array(ids, np.int64).tobytes()
        self._layers.note(room, position, n, snapshots=False)
        step = partial(self._forward, partial(self._rows, n), packed_bytes)
        return read_packed(self._run(("ids", n), given, step), n * self._width)

    def forward_bytes(
        self, room: RoomState, data: bytes, columns: int, position: int, *, snapshots: bool
    ) -> Packed:
        keeps = self._layers.note(room, position, columns, snapshots=snapshots)
        step = partial(self._forward, partial(self._widened, columns), packed_bytes, keeps=keeps)
        out = self._run(("bytes", columns, keeps), data, step)
        return read_packed(out, columns * self._width)

    def top_of_ids(self, room: RoomState, ids: Sequence[int], position: int, k: int) -> TopLogits:
        n, given = len(ids), np.array(ids, np.int64).tobytes()
        self._layers.note(room, position, n, snapshots=False)
        best = _best_kept(k)
        step = partial(self._forward, partial(self._rows, n), partial(self._best, best))
        return _read_top(self._run(("ids to top", n, best), given, step), k)

    def top_of_bytes(self, data: bytes, k: int) -> TopLogits:
        best = _best_kept(k)

        def step() -> Tensor:
            return self._best(best, self._widened(1))

        return _read_top(self._run(("bytes to top", best), data, step), k)

    def _run(self, key: Hashable, given: bytes, step: Callable[[], Tensor]) -> memoryview:
        """Bytes of what ``step`` computes of ``given``, good until the next call."""
        inputs = self._layers.inputs
        inputs.note_payload(given)

        def copied() -> Tensor:
            inputs.copy_in(len(given))
            result = step().view(torch.uint8).flatten()
            if key not in self._out:
                self._out[key] = _Page.of(len(result), self._device)
            return self._out[key].memory.copy_(result, non_blocking=True)

        self.graphs.run(key, copied)
        if self._done is not None:
            self._done.record()
            self._done.synchronize()
        return self._out[key].view

    def _forward(
        self,
        enter: Callable[[], Tensor],
        leave: Callable[[Tensor], Tensor],
        *,
        keeps: bool = False,
    ) -> Tensor:
        return leave(self._layers.run(enter(), keeps=keeps))

    def _rows(self, n: int) -> Tensor:
        ids = self._layers.inputs.payload[: n * torch.int64.itemsize].view(torch.int64)
        return head_of(self._head).embedding.rows(ids)

    def _widened(self, n: int) -> Tensor:
        size_bytes = n * self._width * torch.float16.itemsize
        halves = self._layers.inputs.payload[:size_bytes].view(torch.float16)
        return halves.view(n, self._width).float()

    def _best(self, k: int, hidden: Tensor) -> Tensor:
        return best_keys(logits_of(head_of(self._head), hidden[-1:]), k)


@dataclass(frozen=True, slots=True)
class _Page:
    """A page of the host that a device writes to, and its bytes."""

    memory: Tensor
    view: memoryview

    @classmethod
    def of(cls, size_bytes: int, device: torch.device) -> _Page:
        memory = pinned_page(size_bytes, device)
        return cls(memory, memoryview(memory.numpy()))


def _best_kept(k: int) -> int:
    """Logits that a graph keeps for whoever wants ``k``: guests choose ``k``, and not every one of
    them needs a graph of its own."""
    return 1 if k == 1 else max(k, _DRAWN_FROM_MAX)


def _read_top(data: memoryview, k: int) -> TopLogits:
    top = read_keys(np.frombuffer(data, "<i8")[np.newaxis])
    return TopLogits(top.ids[:, :k], top.values[:, :k], top.finite)
