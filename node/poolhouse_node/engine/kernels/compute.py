"""A model part on our kernels: frames as CUDA graphs, one wait for what leaves the device.

Nothing of a room is part of a graph. Where its rows lie, where its recurrent states are and at
which position a frame begins are data (:mod:`.frame_inputs`), so a graph captured for one room
serves all that share the part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.computing import head_of
from poolhouse_node.engine.halves import from_halves
from poolhouse_node.engine.kernels.activations import COLUMNS
from poolhouse_node.engine.kernels.best import best_keys, read_keys
from poolhouse_node.engine.kernels.frame_layers import FrameLayers
from poolhouse_node.engine.kernels.frame_steps import FrameSteps
from poolhouse_node.engine.kernels.halves import pack_halves
from poolhouse_node.engine.kernels.logits import logits_of
from poolhouse_node.engine.pinned import Download
from poolhouse_node.shard import Packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from poolhouse_node.engine.computing import Steps
    from poolhouse_node.engine.head import Head
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
        self._layers = FrameLayers(
            blocks, pool, width=width, context_size=context_size, device=device
        )
        self.steps: Steps | None = FrameSteps(self._layers, head, width=width, device=device)
        self._head, self._width, self._device = head, width, device
        self._columns = torch.zeros(COLUMNS, width, device=device)
        self._download = Download()

    def run(self, room: RoomState, hidden: Tensor, position: int, *, snapshots: bool) -> Tensor:
        n, layers = len(hidden), self._layers
        keeps = layers.note(room, position, n, snapshots=snapshots)
        layers.inputs.send()
        if n > COLUMNS:
            return layers.run(hidden.clone(), position=position)
        columns = self._columns[:n]
        columns.copy_(hidden)
        return layers.graphs.run(
            ("run", n, keeps), lambda: layers.run(columns.clone(), keeps=keeps)
        ).clone()

    def embed(self, ids: Sequence[int]) -> Tensor:
        return head_of(self._head).embed(ids)

    def logits(self, hidden: Tensor) -> Tensor:
        head = head_of(self._head)
        return torch.cat([logits_of(head, some) for some in hidden.split(COLUMNS)])

    def top(self, hidden: Tensor, k: int) -> TopLogits:
        keys = best_keys(self.logits(hidden), k)
        (rows,) = self._download.fetch(keys)
        return read_keys(rows.view("<i8").reshape(keys.shape))

    def pack(self, hidden: Tensor) -> Packed:
        data, largest = self._download.fetch(*pack_halves(hidden))
        return Packed(data.tobytes(), float(largest.view("<f4")[0]))

    def unpack(self, data: bytes, columns: int) -> Tensor:
        return from_halves(data, (columns, self._width), self._device)
