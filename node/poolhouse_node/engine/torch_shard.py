"""One model part on one device, in torch: the ``Shard`` of production."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine import halves
from poolhouse_node.engine.dense_cache import DenseCache
from poolhouse_node.engine.sampling import top_logits
from poolhouse_node.shard import Packed, ShardError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from poolhouse_node.engine.dense_cache import SavedRows
    from poolhouse_node.engine.head import Head
    from poolhouse_node.engine.models import Llama
    from poolhouse_node.shard import TopLogits

__all__ = ["TorchShard"]

_PASS_COLUMNS = 256
"""Columns computed at once: bounds the scratch memory of a long frame."""


class TorchShard:
    """Layers ``[lo, hi)`` and one room's state. Hidden states are tensors [n, width], float32.

    Made by :func:`~poolhouse_node.engine.loading.load_shard`. Calls come from one thread.
    """

    def __init__(
        self,
        part: Llama,
        layers: tuple[int, int],
        *,
        width: int,
        context_size: int,
        device: torch.device,
        head: Head | None = None,
    ) -> None:
        self.lo, self.hi = layers
        self.width = width
        self.context_size = context_size
        self.device = device
        self._part: Llama | None = part
        self._head = head
        self._cache: DenseCache | None = DenseCache(part.cache_shape, device)
        self._slots: dict[int, tuple[int, SavedRows]] = {}
        self._position = 0
        self._snapshot: tuple[int, int] | None = None
        """First position and columns of the last frame run with snapshots."""

    @property
    def has_embedding(self) -> bool:
        return self._head is not None

    @property
    def position(self) -> int:
        """Columns in the state: the next position to write."""
        return self._position

    @property
    def held_bytes(self) -> int:
        """Weights, state and saved states, as they lie in memory now."""
        held = [part for part in (self._part, self._head, self._cache) if part is not None]
        saved = [rows for _, rows in self._slots.values()]
        return sum(each.held_bytes for each in (*held, *saved))

    def embed(self, ids: Sequence[int]) -> Tensor:
        with _computing():
            return self._host().embed(ids)

    def run(self, hidden: Tensor, position: int, *, snapshots: bool = False) -> Tensor:
        part, cache = self._open()
        n = len(hidden)
        if n < 1:
            raise ShardError("A frame without columns cannot be computed.")
        if not 0 <= position <= self._position:
            raise ShardError(f"Position {position} leaves a gap after {self._position} columns.")
        with _computing():
            cache.reserve(position + n)
            passes = torch.split(hidden, _PASS_COLUMNS)
            starts = range(position, position + n, _PASS_COLUMNS)
            results = [part.run(x, at, cache) for x, at in zip(passes, starts, strict=True)]
        self._position = position + n
        if snapshots:
            self._snapshot = (position, n)
        return torch.cat(results) if len(results) > 1 else results[0]

    def head(self, hidden: Tensor, k: int) -> TopLogits:
        with _computing():
            return top_logits(self._host().logits(hidden), k)

    def logits(self, hidden: Tensor) -> Tensor:
        """All logits of ``n`` columns, [n, vocabulary]. Host only."""
        with _computing():
            return self._host().logits(hidden)

    def pack(self, hidden: Tensor) -> Packed:
        with _computing():
            data = halves.halves_to_bytes(halves.to_halves(hidden))
            return Packed(data, halves.largest_magnitude(hidden))

    def unpack(self, data: bytes, columns: int) -> Tensor:
        if columns < 1 or len(data) != 2 * columns * self.width:
            raise ShardError(f"{len(data)} bytes are not {columns} hidden states of {self.width}.")
        with _computing():
            return halves.from_halves(data, (columns, self.width), self.device)

    def reset(self) -> None:
        self._position = 0
        self._snapshot = None

    def rollback(self, column: int) -> None:
        if self._snapshot is None or not 0 <= column < self._snapshot[1]:
            raise ShardError(f"There is no snapshot after column {column}.")
        # Rows past the position are stale and will be overwritten (engine, section 7).
        self._position = self._snapshot[0] + column + 1

    def save(self, slot: int) -> None:
        _, cache = self._open()
        with _computing():
            self._slots[slot] = (self._position, cache.save(self._position))

    def load(self, slot: int) -> None:
        if slot not in self._slots:
            raise ShardError(f"There is no saved state {slot}.")
        position, rows = self._slots[slot]
        _, cache = self._open()
        with _computing():
            cache.load(rows)
        self._position = position
        self._snapshot = None

    def drop(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._slots.pop(slot, None)

    def drop_all(self) -> None:
        self._slots.clear()

    def close(self) -> None:
        self.drop_all()
        self._part = self._head = self._cache = None

    def _host(self) -> Head:
        if self._head is None:
            raise ShardError("This device holds no embedding and no head.")
        return self._head

    def _open(self) -> tuple[Llama, DenseCache]:
        if self._part is None or self._cache is None:
            raise ShardError("This model part was closed.")
        return self._part, self._cache


@contextlib.contextmanager
def _computing() -> Iterator[None]:
    """No gradients inside, and torch's own errors leave as ours."""
    try:
        with torch.inference_mode():
            yield
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise ShardError(f"The engine failed: {first_line}") from error
