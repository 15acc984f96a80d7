"""The layers of a part over frames of its rooms: what is fixed, and what each frame sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.engine.graphs import FrameGraphs
from poolhouse_node.engine.kernels.activations import COLUMNS
from poolhouse_node.engine.kernels.attention import AngleTable
from poolhouse_node.engine.kernels.frame_inputs import FrameInputs
from poolhouse_node.engine.kernels.fused import DeviceState, FusedBlocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from poolhouse_node.engine.layers.rope import RotaryTable
    from poolhouse_node.engine.models.blocks import Block
    from poolhouse_node.engine.paged.pool import StatePool
    from poolhouse_node.engine.paged.sequence import RoomState

__all__ = ["FrameLayers"]

_BYTES_PER_HALF = 2


class FrameLayers:
    """Blocks, the state they read and write, and the graphs that know their addresses."""

    def __init__(
        self,
        blocks: Sequence[Block],
        pool: StatePool,
        *,
        width: int,
        context_size: int,
        device: torch.device,
    ) -> None:
        """``blocks`` are made of matrices of this package."""
        payload_bytes = COLUMNS * width * _BYTES_PER_HALF
        self.inputs = FrameInputs(context_size, pool.page_rows, payload_bytes, device)
        self.graphs = FrameGraphs(device)
        self._fused = FusedBlocks(blocks, _angles_of(blocks))
        self._pool = pool
        self._state, self._moves = self._find_state()

    def note(self, room: RoomState, position: int, columns: int, *, snapshots: bool) -> bool:
        """A frame to come, inside ``room.frame``: on the host only, see :class:`FrameInputs`.

        True when it keeps the states after its columns, which is another graph.
        """
        pages = self._pool.pages
        if pages is not None and pages.moves != self._moves:
            self.graphs.forget()
            self._state, self._moves = self._find_state()
        keeps = snapshots and columns > 1 and self._pool.recurrent is not None
        self.inputs.note(room, position, columns, keeps=keeps)
        return keeps

    def run(self, x: Tensor, *, position: int | None = None, keeps: bool = False) -> Tensor:
        """Columns ``x`` [n, width] float32 through the layers, in place. More than 16 need the
        ``position`` that was noted."""
        delta = self._fused.run(x, self._state, position=position, keeps=keeps)
        for part in () if delta is None else delta:
            x.add_(part)
        return x

    def _find_state(self) -> tuple[DeviceState, int]:
        pages = self._pool.pages
        state = DeviceState(
            pages=[] if pages is None else [pages.blocks(n) for n in range(pages.layers)],
            table=self.inputs.table,
            position=self.inputs.position,
            slots=self.inputs.slots,
        )
        return state, -1 if pages is None else pages.moves


def _angles_of(blocks: Sequence[Block]) -> AngleTable | None:
    """Of the rotary table that attention layers share, if there are any."""
    ropes = (getattr(block.mixer, "rope", None) for block in blocks)
    rope: RotaryTable | None = next((rope for rope in ropes if rope is not None), None)
    return None if rope is None else AngleTable.of(rope)
