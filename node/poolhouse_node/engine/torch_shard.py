"""One room's view of a model part, in torch: the ``Shard`` of production."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.devices import on_device
from poolhouse_node.shard import Holding, OutOfMemory, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from poolhouse_node.engine.computing import Compute
    from poolhouse_node.engine.model_part import ModelPart
    from poolhouse_node.engine.paged.sequence import RoomState
    from poolhouse_node.shard import Packed, TopLogits

__all__ = ["TorchShard"]


class TorchShard:
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

    def embed(self, ids: Sequence[int]) -> Tensor:
        with self._computing():
            return self._compute().embed(ids)

    def run(self, hidden: Tensor, position: int, *, snapshots: bool = False) -> Tensor:
        state, compute = self._room(), self._compute()
        with self._computing(), state.frame(position, len(hidden), snapshots=snapshots):
            results, done = [], position
            for columns in hidden.split(compute.columns_at_once):
                results.append(compute.run(state, columns, done, snapshots=snapshots))
                done += len(columns)
            return torch.cat(results) if len(results) > 1 else results[0]

    def head(self, hidden: Tensor, k: int) -> TopLogits:
        with self._computing():
            return self._compute().top(hidden, k)

    def logits(self, hidden: Tensor) -> Tensor:
        """All logits of ``n`` columns, [n, vocabulary]. Host only."""
        with self._computing():
            return self._compute().logits(hidden)

    def pack(self, hidden: Tensor) -> Packed:
        with self._computing():
            return self._compute().pack(hidden)

    def unpack(self, data: bytes, columns: int) -> Tensor:
        if columns < 1 or len(data) != 2 * columns * self.width:
            raise ShardError(f"{len(data)} bytes are not {columns} hidden states of {self.width}.")
        with self._computing():
            return self._compute().unpack(data, columns)

    def reset(self) -> None:
        with self._computing():
            self._room().reset()

    def rollback(self, column: int) -> None:
        with self._computing():
            self._room().rollback(column)

    def save(self, slot: int) -> None:
        with self._computing():
            self._room().save(slot)

    def load(self, slot: int) -> None:
        with self._computing():
            self._room().load(slot)

    def drop(self, slots: Sequence[int]) -> None:
        with self._computing():
            self._room().drop(slots)

    def drop_all(self) -> None:
        with self._computing():
            self._room().drop_all()

    def close(self) -> None:
        if self._state is not None:
            state, self._state = self._state, None
            self._part.close_room(state)
            self._when_closed()

    def _room(self) -> RoomState:
        if self._state is None:
            raise ShardError("This model part was closed.")
        return self._state

    def _compute(self) -> Compute:
        if self._state is None or self._part.compute is None:
            raise ShardError("This model part was closed.")
        return self._part.compute

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """This room's turn. No gradients inside, and torch's own errors leave as ours."""
        try:
            with self._part.turn, on_device(self.device), torch.inference_mode():
                yield
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(f"The engine ran out of memory on {self.device}.") from error
        except RuntimeError as error:
            first_line = str(error).partition("\n")[0]
            raise ShardError(f"The engine failed: {first_line}") from error
