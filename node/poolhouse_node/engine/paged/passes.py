"""What layers see of a room's state during one pass: a ``RoomPass`` over pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.engine.layers.attention import causal_mask
from poolhouse_node.engine.paged.attention import paged_attention
from poolhouse_node.engine.paged.pages import page_spans
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.paged.pages import KeyValuePages
    from poolhouse_node.engine.paged.recurrent import RecurrentPool
    from poolhouse_node.engine.paged.sequence import RoomState
    from poolhouse_node.engine.state import RecurrentState

__all__ = ["PagedPass"]


class PagedPass:
    """``columns`` columns of ``room`` at ``position ..``; inside ``room.frame``."""

    def __init__(
        self, room: RoomState, position: int, columns: int, *, keeps_snapshots: bool
    ) -> None:
        self.position = position
        self.columns = columns
        self.keeps_snapshots = keeps_snapshots
        self._room = room
        end = position + columns
        has_pages, page_rows = room.pool.pages is not None, room.pool.page_rows
        self._new = page_spans(room.blocks, position, end, page_rows) if has_pages else []
        self._all = page_spans(room.blocks, 0, end, page_rows) if has_pages else []
        self._mask: Tensor | None = None

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        pages = self._pages()
        pages.write(layer, self._new, keys, values)
        if self._mask is None:
            group = queries.shape[1] // keys.shape[1]
            self._mask = causal_mask(self.columns, self.position, group, queries.device)
        return paged_attention(queries, pages, layer, self._all, self._mask)

    def recurrent(self, layer: int) -> RecurrentState:
        return self._recurrent().layer(self._room.recurrent_slot or 0, layer)

    def snapshot(self, layer: int, column: int) -> RecurrentState:
        return self._recurrent().layer(self._room.snapshot_slots[column], layer)

    def _pages(self) -> KeyValuePages:
        if self._room.pool.pages is None:
            raise ShardError("This part keeps no keys and values.")
        return self._room.pool.pages

    def _recurrent(self) -> RecurrentPool:
        if self._room.pool.recurrent is None:
            raise ShardError("This part keeps no recurrent state.")
        return self._room.pool.recurrent
