"""Layers of a model on one device, held once for all the rooms that use them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.computing import TorchCompute
from poolhouse_node.engine.devices import on_device
from poolhouse_node.engine.graphs import without_captures
from poolhouse_node.engine.paged.pages import PAGE_ROWS
from poolhouse_node.engine.paged.pool import StatePool
from poolhouse_node.engine.paged.sequence import RoomState
from poolhouse_node.shard import Holding, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.engine.computing import Compute
    from poolhouse_node.engine.head import Head
    from poolhouse_node.engine.models import Model
    from poolhouse_node.engine.precision import Precision
    from poolhouse_node.engine.state import StateShape

__all__ = ["ModelPart"]


@dataclass(slots=True, eq=False)
class ModelPart:
    """Weights, and the pool of its rooms' states. Freed when its last room closes.

    Rooms may live in threads of their own: they take turns by frame.
    """

    layers: tuple[int, int]
    width: int
    context_size: int
    """Positions there is room for in each conversation."""
    device: torch.device
    model: Model | None
    head: Head | None = None
    weight_bytes: int = 0
    """As they were counted before loading."""
    precision: Precision = "exact"
    """How the weights are kept, which is not always what was asked for."""
    on_kernels: bool = False
    """Model and head are made of what our kernels multiply."""
    when_freed: Callable[[], None] = lambda: None
    page_rows: int = PAGE_ROWS
    turn: threading.RLock = field(default_factory=threading.RLock)
    """Held by whoever computes or changes a state."""
    pool: StatePool | None = field(init=False)
    compute: Compute | None = field(init=False)
    _rooms: int = 0

    def __post_init__(self) -> None:
        self.pool = StatePool(self.state_shape, self.device, page_rows=self.page_rows)
        self.compute = self._make_compute(self.pool)

    def _make_compute(self, pool: StatePool) -> Compute:
        if not self.on_kernels:
            return TorchCompute(self._open_model(), self.head, self.device)
        from poolhouse_node.engine.kernels.compute import KernelCompute

        return KernelCompute(
            self._open_model().blocks,
            self.head,
            pool,
            width=self.width,
            context_size=self.context_size,
            device=self.device,
        )

    @property
    def state_shape(self) -> StateShape:
        """What each room needs."""
        shape = self._open_model().state_shape(self.context_size)
        return shape.in_halves() if self.on_kernels else shape

    def _open_model(self) -> Model:
        if self.model is None:
            raise ShardError("This model part was closed.")
        return self.model

    @property
    def is_closed(self) -> bool:
        """True once the last room was closed."""
        return self.model is None

    @property
    def held_bytes(self) -> int:
        """Weights and all states, as they lie in memory now."""
        return sum(each.held_bytes for each in (self.model, self.head, self.pool) if each)

    @property
    def holding(self) -> Holding:
        """The same by what it is for. May be asked from any thread."""
        model, head, pool = self.model, self.head, self.pool
        weights_bytes = sum(each.held_bytes for each in (model, head) if each)
        return Holding(self, weights_bytes, pool.held_bytes if pool else 0)

    def warm_up(self, cancelled: Callable[[], bool] = lambda: False) -> None:
        """Run frames of nobody's: compiling for the first ones takes seconds, in which a room
        would wait for a lap. ``cancelled`` is asked between them.

        Raises :class:`ShardError` when nothing can be computed here.
        """
        if self.pool is None or self.compute is None:
            raise ShardError("This model part was closed.")
        with (
            self.turn,
            without_captures(),
            on_device(self.device),
            torch.inference_mode(),
        ):
            room = RoomState(self.pool, self.state_shape, 0)
            try:
                for columns in self.compute.first_widths:
                    if columns <= self.context_size and not cancelled():
                        self._run_nobodys(self.compute, room, columns)
            except RuntimeError as error:
                first_line = str(error).partition("\n")[0]
                raise ShardError(
                    f"This GPU cannot run packed weights ({first_line}): use --precision exact."
                ) from error
            finally:
                room.close()

    def _run_nobodys(self, compute: Compute, room: RoomState, columns: int) -> None:
        steps = compute.steps
        if steps is None:
            return
        nothing = bytes(2 * columns * self.width)
        room.reset()
        with room.frame(0, columns, snapshots=False):
            steps.forward_bytes(room, nothing, columns, 0, snapshots=False)
        if self.head is None:
            return
        room.reset()
        with room.frame(0, columns, snapshots=False):
            steps.forward_ids(room, [0] * columns, 0)
        steps.top_of_bytes(nothing[: 2 * self.width], 1)

    def open_room(self, saved_states: int) -> RoomState:
        """Take a share of the pool for one more room. :meth:`close_room` gives it back."""
        with self.turn, on_device(self.device), torch.inference_mode():
            if self.pool is None:
                raise ShardError("This model part was closed.")
            state = RoomState(self.pool, self.state_shape, saved_states)
            self._rooms += 1
            return state

    def close_room(self, state: RoomState) -> None:
        """Give a room's share back; with the last one the weights go."""
        with self.turn:
            state.close()
            self._rooms -= 1
            if self._rooms:
                return
            self.model = self.head = self.pool = self.compute = None
        self.when_freed()
