"""A model part on our kernels: frames as CUDA graphs, one wait for what leaves the device.

Nothing of a room is part of a graph. Where its rows lie, where its recurrent states are and at
which position a frame begins are data (:mod:`.frame_inputs`), so a graph captured for one room
serves all that share the part.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from poolhouse_node.engine.computing import head_of
from poolhouse_node.engine.graphs import FrameGraphs
from poolhouse_node.engine.halves import from_halves
from poolhouse_node.engine.kernels.activations import COLUMNS
from poolhouse_node.engine.kernels.attention import AngleTable
from poolhouse_node.engine.kernels.best import best_keys, read_keys
from poolhouse_node.engine.kernels.frame_inputs import FrameInputs
from poolhouse_node.engine.kernels.fused import DeviceState, FusedBlocks
from poolhouse_node.engine.kernels.halves import pack_halves
from poolhouse_node.engine.kernels.matrices import added
from poolhouse_node.engine.kernels.pointwise import add_norm
from poolhouse_node.engine.pinned import Download, Upload
from poolhouse_node.shard import Packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from poolhouse_node.engine.head import Head
    from poolhouse_node.engine.kernels.matrices import KernelMatrix
    from poolhouse_node.engine.layers.rope import RotaryTable
    from poolhouse_node.engine.models.blocks import Block
    from poolhouse_node.engine.paged.pool import StatePool
    from poolhouse_node.engine.paged.sequence import RoomState
    from poolhouse_node.shard import TopLogits

__all__ = ["KernelCompute"]


class KernelCompute:
    """Satisfies :class:`~poolhouse_node.engine.computing.Compute`.

    Frames of up to 16 columns give each column the bits it would have alone. Wider ones are a
    prompt: their products are bfloat16.
    """

    columns_at_once = 1024
    # One column, every width of operands, and the one that is a multiple of 16: kernels are
    # compiled for each.
    first_widths: tuple[int, ...] = (1, 4, 8, 16)

    def __init__(
        self,
        blocks: Sequence[Block],
        head: Head | None,
        pool: StatePool,
        *,
        width: int,
        context_size: int,
        device: torch.device,
    ) -> None:
        """``blocks`` are made of matrices of this package, and so are the head's tables."""
        self._fused = FusedBlocks(blocks, _angles_of(blocks))
        self._head, self._pool, self._width, self._device = head, pool, width, device
        self._inputs = FrameInputs(context_size, pool.page_rows, device)
        self._columns = torch.zeros(COLUMNS, width, device=device)
        self._halves = torch.zeros(COLUMNS * width, dtype=torch.float16, device=device)
        self._ids = torch.zeros(COLUMNS, dtype=torch.int64, device=device)
        self._upload = Upload(max(self._halves.nbytes, self._ids.nbytes), device)
        self._download = Download()
        self._graphs = FrameGraphs(device)
        self._moves = -1
        self._state = self._find_state()

    def run(self, room: RoomState, hidden: Tensor, position: int, *, snapshots: bool) -> Tensor:
        n = len(hidden)
        if self._pool.pages is not None and self._pool.pages.moves != self._moves:
            self._graphs.forget()
            self._state = self._find_state()
        keeps = snapshots and n > 1 and self._pool.recurrent is not None
        self._inputs.put(room, position, n, keeps=keeps)
        if n > COLUMNS:
            return self._run_layers(hidden.clone(), position=position)
        self._columns[:n].copy_(hidden)
        return self._graphs.run(
            ("run", n, keeps), partial(self._run_narrow, n, keeps=keeps)
        ).clone()

    def embed(self, ids: Sequence[int]) -> Tensor:
        head, n = head_of(self._head), len(ids)
        head.check(ids)
        if n > COLUMNS:
            return head.embedding.rows(torch.tensor(ids, device=self._device))
        given = self._ids[:n]
        self._upload.send(np.array(ids, np.int64).view(np.uint8), given.view(torch.uint8))
        # A graph of one kernel: launching it takes a fraction of what launching the kernel takes,
        # and the device waits for nothing else then.
        return self._graphs.run(("embed", n), partial(head.embedding.rows, given)).clone()

    def logits(self, hidden: Tensor) -> Tensor:
        head = head_of(self._head)
        return torch.cat([_logits(head, some) for some in hidden.split(COLUMNS)])

    def top(self, hidden: Tensor, k: int) -> TopLogits:
        keys = best_keys(self.logits(hidden), k)
        (rows,) = self._download.fetch(keys)
        return read_keys(rows.view("<i8").reshape(keys.shape))

    def pack(self, hidden: Tensor) -> Packed:
        data, largest = self._download.fetch(*pack_halves(hidden))
        return Packed(data.tobytes(), float(largest.view("<f4")[0]))

    def unpack(self, data: bytes, columns: int) -> Tensor:
        if columns > COLUMNS:
            return from_halves(data, (columns, self._width), self._device)
        halves = self._halves[: columns * self._width]
        self._upload.send(data, halves.view(torch.uint8))
        return halves.view(columns, self._width).float()

    def _find_state(self) -> DeviceState:
        pages = self._pool.pages
        self._moves = -1 if pages is None else pages.moves
        return DeviceState(
            pages=[] if pages is None else [pages.blocks(n) for n in range(pages.layers)],
            table=self._inputs.table,
            position=self._inputs.position,
            slots=self._inputs.slots,
        )

    def _run_narrow(self, n: int, *, keeps: bool) -> Tensor:
        return self._run_layers(self._columns[:n].clone(), keeps=keeps)

    def _run_layers(self, x: Tensor, *, position: int | None = None, keeps: bool = False) -> Tensor:
        delta = self._fused.run(x, self._state, position=position, keeps=keeps)
        for part in () if delta is None else delta:
            x.add_(part)
        return x


def _logits(head: Head, hidden: Tensor) -> Tensor:
    output = cast("KernelMatrix", head.output)
    target = output.target(len(hidden))
    add_norm(hidden.contiguous(), None, head.norm, head.epsilon, target)
    return added(output.multiply(target))


def _angles_of(blocks: Sequence[Block]) -> AngleTable | None:
    """Of the rotary table that attention layers share, if there are any."""
    ropes = (getattr(block.mixer, "rope", None) for block in blocks)
    rope: RotaryTable | None = next((rope for rope in ropes if rope is not None), None)
    return None if rope is None else AngleTable.of(rope)
