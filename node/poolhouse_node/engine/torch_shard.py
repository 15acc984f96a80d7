"""One room's view of a model part, in torch: the ``Shard`` of production."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.computing import head_of
from poolhouse_node.engine.devices import on_device
from poolhouse_node.shard import Holding, InPieces, OutOfMemory, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from poolhouse_node.engine.computing import Compute, Steps
    from poolhouse_node.engine.graphs import FrameGraphs
    from poolhouse_node.engine.model_part import ModelPart
    from poolhouse_node.engine.paged.sequence import RoomState
    from poolhouse_node.shard import Packed, TopLogits

__all__ = ["TorchShard"]


class TorchShard(InPieces):
    """Layers ``[lo, hi)`` and one room's state. Hidden states are tensors [n, width], float32.

    Made by :func:`~poolhouse_node.engine.loading.load_shard`. Calls come from one thread; several
    rooms of one :class:`~poolhouse_node.engine.model_part.ModelPart` may have one each.
    """

    def __init__(
        self,
        part: ModelPart,
        *,
        saved_states: int,
        when_closed: Callable[[], None] = lambda: None,
    ) -> None:
        """``saved_states``: for so many full conversations memory is reserved."""
        self.lo, self.hi = part.layers
        self.width = part.width
        self.context_size = part.context_size
        self.device = part.device
        self.precision = part.precision
        self.saved_states = saved_states
        self._part = part
        self._when_closed = when_closed
        self._turn = _Turn(part)
        self._state: RoomState | None = part.open_room(saved_states)

    @property
    def has_embedding(self) -> bool:
        return self._part.head is not None

    @property
    def prompt_columns(self) -> int:
        return self._compute().columns_at_once

    @property
    def position(self) -> int:
        """Columns in the state: the next position to write."""
        return self._room().length

    @property
    def held_bytes(self) -> int:
        """Weights and states, those of other rooms with the same weights among them."""
        return 0 if self._state is None else self._part.held_bytes

    @property
    def holding(self) -> Holding:
        return self._part.holding

    @property
    def graphs(self) -> FrameGraphs | None:
        """Of a device that computes by graphs."""
        steps = self._compute().steps
        return None if steps is None else steps.graphs

    def forward_ids(self, ids: Sequence[int], position: int) -> Packed:
        steps = self._steps(len(ids))
        if steps is None:
            return super().forward_ids(ids, position)
        head_of(self._part.head).check(ids)
        room = self._room()
        with self._turn, room.frame(position, len(ids), snapshots=False):
            return steps.forward_ids(room, ids, position)

    def forward_bytes(
        self, data: bytes, columns: int, position: int, *, snapshots: bool = False
    ) -> Packed:
        steps = self._steps(columns)
        if steps is None:
            return super().forward_bytes(data, columns, position, snapshots=snapshots)
        self._check_length(data, columns)
        room = self._room()
        with self._turn, room.frame(position, columns, snapshots=snapshots):
            return steps.forward_bytes(room, data, columns, position, snapshots=snapshots)

    def top_of_ids(self, ids: Sequence[int], position: int, k: int) -> TopLogits:
        steps = self._steps(len(ids))
        if steps is None:
            return super().top_of_ids(ids, position, k)
        head_of(self._part.head).check(ids)
        room = self._room()
        with self._turn, room.frame(position, len(ids), snapshots=False):
            return steps.top_of_ids(room, ids, position, k)

    def top_of_bytes(self, data: bytes, k: int) -> TopLogits:
        steps = self._steps(1)
        if steps is None:
            return super().top_of_bytes(data, k)
        self._check_length(data, 1)
        with self._turn:
            return steps.top_of_bytes(data, k)

    def embed(self, ids: Sequence[int]) -> Tensor:
        with self._turn:
            return self._compute().embed(ids)

    def run(self, hidden: Tensor, position: int, *, snapshots: bool = False) -> Tensor:
        state, compute = self._room(), self._compute()
        with self._turn, state.frame(position, len(hidden), snapshots=snapshots):
            results, done = [], position
            for columns in hidden.split(compute.columns_at_once):
                results.append(compute.run(state, columns, done, snapshots=snapshots))
                done += len(columns)
            return torch.cat(results) if len(results) > 1 else results[0]

    def head(self, hidden: Tensor, k: int) -> TopLogits:
        with self._turn:
            return self._compute().top(hidden, k)

    def logits(self, hidden: Tensor) -> Tensor:
        """All logits of ``n`` columns, [n, vocabulary]. Host only."""
        with self._turn:
            return self._compute().logits(hidden)

    def pack(self, hidden: Tensor) -> Packed:
        with self._turn:
            return self._compute().pack(hidden)

    def unpack(self, data: bytes, columns: int) -> Tensor:
        self._check_length(data, columns)
        with self._turn:
            return self._compute().unpack(data, columns)

    def reset(self) -> None:
        with self._turn:
            self._room().reset()

    def rollback(self, column: int) -> None:
        with self._turn:
            self._room().rollback(column)

    def save(self, slot: int) -> None:
        with self._turn:
            self._room().save(slot)

    def load(self, slot: int) -> None:
        with self._turn:
            self._room().load(slot)

    def drop(self, slots: Sequence[int]) -> None:
        with self._turn:
            self._room().drop(slots)

    def drop_all(self) -> None:
        with self._turn:
            self._room().drop_all()

    def close(self) -> None:
        if self._state is not None:
            state, self._state = self._state, None
            self._part.close_room(state)
            self._when_closed()

    def _check_length(self, data: bytes, columns: int) -> None:
        if columns < 1 or len(data) != 2 * columns * self.width:
            raise ShardError(f"{len(data)} bytes are not {columns} hidden states of {self.width}.")

    def _steps(self, columns: int) -> Steps | None:
        """What does frames of so many columns in one go, if anything does."""
        steps = self._compute().steps
        return steps if steps is not None and 1 <= columns <= steps.columns_max else None

    def _room(self) -> RoomState:
        if self._state is None:
            raise ShardError("This model part was closed.")
        return self._state

    def _compute(self) -> Compute:
        if self._state is None or self._part.compute is None:
            raise ShardError("This model part was closed.")
        return self._part.compute


class _Turn:
    """A room's turn on its device, entered again and again. No gradients inside, and torch's own
    errors leave as ours.

    A class and not a generator: it is entered for every frame, after pauses in which all of
    Python has left the caches.
    """

    __slots__ = ("_device", "_lock", "_modes")

    def __init__(self, part: ModelPart) -> None:
        self._lock, self._device = part.turn, part.device
        self._modes: list[tuple[AbstractContextManager[None], torch.inference_mode]] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        mode, on = torch.inference_mode(), on_device(self._device)
        on.__enter__()
        mode.__enter__()
        self._modes.append((on, mode))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        on, mode = self._modes.pop()
        mode.__exit__(None, None, None)
        on.__exit__(None, None, None)
        self._lock.release()
        if isinstance(error, torch.OutOfMemoryError):
            raise OutOfMemory(f"The engine ran out of memory on {self._device}.") from error
        if isinstance(error, RuntimeError):
            first_line = str(error).partition("\n")[0]
            raise ShardError(f"The engine failed: {first_line}") from error
