"""One room's view of a model part, in torch: the ``Shard`` of production."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine import halves
from poolhouse_node.engine.paged.passes import PagedPass
from poolhouse_node.engine.sampling import top_logits
from poolhouse_node.shard import Holding, OutOfMemory, Packed, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from poolhouse_node.engine.head import Head
    from poolhouse_node.engine.model_part import ModelPart
    from poolhouse_node.engine.models import Model
    from poolhouse_node.engine.paged.sequence import RoomState
    from poolhouse_node.shard import TopLogits

__all__ = ["TorchShard"]

_PASS_COLUMNS = 256
"""Columns computed at once: bounds the scratch memory of a long frame."""


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
        self.saved_states = saved_states
        self._part = part
        self._when_closed = when_closed
        self._state: RoomState | None = part.open_room(saved_states)

    @property
    def has_embedding(self) -> bool:
        return self._part.head is not None

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
            return self._host().embed(ids)

    def run(self, hidden: Tensor, position: int, *, snapshots: bool = False) -> Tensor:
        state, model = self._room(), self._model()
        n = len(hidden)
        with self._computing(), state.frame(position, n, snapshots=snapshots):
            results = []
            for start in range(0, n, _PASS_COLUMNS):
                columns = hidden[start : start + _PASS_COLUMNS]
                this_pass = PagedPass(
                    state, position + start, len(columns), keeps_snapshots=snapshots
                )
                results.append(model.run(columns, this_pass))
            return torch.cat(results) if len(results) > 1 else results[0]

    def head(self, hidden: Tensor, k: int) -> TopLogits:
        with self._computing():
            return top_logits(self._host().logits(hidden), k)

    def logits(self, hidden: Tensor) -> Tensor:
        """All logits of ``n`` columns, [n, vocabulary]. Host only."""
        with self._computing():
            return self._host().logits(hidden)

    def pack(self, hidden: Tensor) -> Packed:
        with self._computing():
            data = halves.halves_to_bytes(halves.to_halves(hidden))
            return Packed(data, halves.largest_magnitude(hidden))

    def unpack(self, data: bytes, columns: int) -> Tensor:
        if columns < 1 or len(data) != 2 * columns * self.width:
            raise ShardError(f"{len(data)} bytes are not {columns} hidden states of {self.width}.")
        with self._computing():
            return halves.from_halves(data, (columns, self.width), self.device)

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

    def _model(self) -> Model:
        if self._state is None or self._part.model is None:
            raise ShardError("This model part was closed.")
        return self._part.model

    def _host(self) -> Head:
        self._room()
        if self._part.head is None:
            raise ShardError("This device holds no embedding and no head.")
        return self._part.head

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        """This room's turn. No gradients inside, and torch's own errors leave as ours."""
        try:
            with self._part.turn, torch.inference_mode():
                yield
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(f"The engine ran out of memory on {self.device}.") from error
        except RuntimeError as error:
            first_line = str(error).partition("\n")[0]
            raise ShardError(f"The engine failed: {first_line}") from error
