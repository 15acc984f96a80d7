"""The protocol of one model part on one device, and a deterministic fake of it.

A *shard* is layers ``[lo, hi)`` of a model together with the state of one room. The host's shard
also holds the embedding and the head. Everything that generates text or forwards frames talks to
this protocol only, so that a simulated room runs the same code as a real one.

A call takes tokens or bytes of the wire and gives bytes or logits: hidden states stay inside, where
the engine computes, so that a step of a GPU can be one launch and one wait. Bytes are half floats,
little-endian, ties away from zero (wire, section 5).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "BeyondPledge",
    "FakeShard",
    "Hidden",
    "Holding",
    "InPieces",
    "OutOfMemory",
    "Packed",
    "Shard",
    "ShardError",
    "TopLogits",
]

type Hidden = Any
"""``n`` hidden states of the model's width, where and how the engine keeps them.

Opaque but for two things: ``len()`` counts its columns, and slicing takes some of them.
"""


class ShardError(Exception):
    """The model part cannot do what was asked; the text is a sentence for a person."""


class OutOfMemory(ShardError):
    """The device had too little memory for what was asked."""


class BeyondPledge(OutOfMemory):
    """The device lends less than what was asked takes here, which is ``needed_bytes``."""

    def __init__(self, why: str, needed_bytes: int) -> None:
        super().__init__(why)
        self.needed_bytes = needed_bytes


@dataclass(frozen=True, slots=True)
class Holding:
    """Memory taken now. Shards that share weights and a pool of states name the same ``part``."""

    part: object
    weights_bytes: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Packed:
    """Hidden states as they travel.

    ``data`` holds ``n * width`` half floats, little-endian. ``amax`` is the largest magnitude
    before packing; NaN or infinity when any value was not finite (generation, section 5).
    """

    data: bytes
    amax: float

    @property
    def sendable(self) -> bool:
        """False when a value was not finite or above 65504: such a frame must not be sent."""
        return self.amax <= 65504.0


@dataclass(frozen=True, slots=True)
class TopLogits:
    """The ``k`` largest logits of each of ``n`` columns, largest first, the lower id first on ties.

    ``ids`` and ``values`` are ``[n, k]``, int64 and float32. ``finite`` is False when any logit of
    the whole row was NaN or infinite; a NaN is never among the top ones.
    """

    ids: NDArray[np.int64]
    values: NDArray[np.float32]
    finite: bool


class Shard(Protocol):
    """One model part: layers ``[lo, hi)`` and one room's state. Calls come from one thread.

    Every method may raise :class:`ShardError`.
    """

    lo: int
    hi: int
    width: int
    """Hidden size: values in one hidden state."""
    context_size: int
    """Positions the state has room for."""
    saved_states: int
    """Full conversations for which memory is reserved (decision 14)."""

    @property
    def prompt_columns(self) -> int:
        """Columns that are computed in one go where nobody else waits for them."""
        ...

    @property
    def has_embedding(self) -> bool:
        """True on the host: it takes ids and gives logits."""
        ...

    @property
    def held_bytes(self) -> int:
        """Memory taken by weights and state now."""
        ...

    @property
    def holding(self) -> Holding:
        """What :attr:`held_bytes` is for. May be asked from any thread."""
        ...

    def forward_ids(self, ids: Sequence[int], position: int) -> Packed:
        """Look up ``n`` token ids, run the layers over them at ``position ..``. Host only.

        Rows of the state from ``position`` on are overwritten.
        """
        ...

    def forward_bytes(
        self, data: bytes, columns: int, position: int, *, snapshots: bool = False
    ) -> Packed:
        """Run the layers over a frame's ``columns`` hidden states, as they travelled.

        With ``snapshots`` the state after every column but the last is kept for :meth:`rollback`
        (generation, section 11). Raises :class:`ShardError` also when the length of ``data`` is
        not ``2 * columns * width``.
        """
        ...

    def top_of_bytes(self, data: bytes, k: int) -> TopLogits:
        """The ``k`` best logits after one hidden state, as it travelled. Host only."""
        ...

    def top_of_ids(self, ids: Sequence[int], position: int, k: int) -> TopLogits:
        """Where all layers are here: the ``k`` best logits after the last of ``ids``. Host only."""
        ...

    def reset(self) -> None:
        """Forget the state: position 0."""
        ...

    def rollback(self, column: int) -> None:
        """Go back to the state after ``column`` of the last frame run with ``snapshots``."""
        ...

    def save(self, slot: int) -> None:
        """Save the state as ``slot`` (1..65534), replacing any."""
        ...

    def load(self, slot: int) -> None:
        """Make a saved state current. Raises :class:`ShardError` when there is none."""
        ...

    def drop(self, slots: Sequence[int]) -> None:
        """Drop saved states; unknown ones are ignored."""
        ...

    def drop_all(self) -> None:
        """Drop every saved state."""
        ...

    def close(self) -> None:
        """Free weights and state. Nothing may be called afterwards."""
        ...


class InPieces(Protocol):
    """The steps of a :class:`Shard`, made of the pieces that a subclass has."""

    def embed(self, ids: Sequence[int]) -> Hidden:
        """Look up ``n`` token ids."""
        ...

    def run(self, hidden: Hidden, position: int, *, snapshots: bool = False) -> Hidden:
        """Run the layers over ``n`` columns at ``position ..`` and return as many."""
        ...

    def head(self, hidden: Hidden, k: int) -> TopLogits:
        """Final norm and head over ``n`` columns; the ``k`` best of each."""
        ...

    def pack(self, hidden: Hidden) -> Packed:
        """Hidden states to bytes. A synchronisation point."""
        ...

    def unpack(self, data: bytes, columns: int) -> Hidden:
        """Bytes to ``columns`` hidden states. Raises :class:`ShardError` for a wrong length."""
        ...

    def forward_ids(self, ids: Sequence[int], position: int) -> Packed:
        """See :meth:`Shard.forward_ids`."""
        return self.pack(self.run(self.embed(ids), position))

    def forward_bytes(
        self, data: bytes, columns: int, position: int, *, snapshots: bool = False
    ) -> Packed:
        """See :meth:`Shard.forward_bytes`."""
        return self.pack(self.run(self.unpack(data, columns), position, snapshots=snapshots))

    def top_of_bytes(self, data: bytes, k: int) -> TopLogits:
        """See :meth:`Shard.top_of_bytes`."""
        return self.head(self.unpack(data, 1), k)

    def top_of_ids(self, ids: Sequence[int], position: int, k: int) -> TopLogits:
        """See :meth:`Shard.top_of_ids`."""
        return self.head(self.run(self.embed(ids), position)[-1:], k)


@dataclass(slots=True)
class FakeShard(InPieces):
    """A shard whose answers depend on every earlier column, in order, in every layer.

    A hidden state is ``width`` small integers (exact in half floats). Each layer mixes its own
    running digest of all columns so far into the state, so a frame that is lost, run twice or run
    out of order changes every later token; who holds which layers changes none. That is what the
    simulated room checks.
    """

    lo: int
    hi: int
    width: int = 8
    vocabulary_size: int = 1000
    context_size: int = 4096
    has_embedding: bool = False
    held_bytes: int = 0
    saved_states: int = 8
    prompt_columns: int = 256
    _history: list[list[bytes]] = field(default_factory=list)
    """After each column: the digest of every layer."""
    _slots: dict[int, list[list[bytes]]] = field(default_factory=dict)
    _last_spec: tuple[int, int] | None = None

    @property
    def holding(self) -> Holding:
        return Holding(self, self.held_bytes, 0)

    def embed(self, ids: Sequence[int]) -> Hidden:
        self._host_only()
        return np.stack([self._spread(f"token {token}".encode()) for token in ids])

    def run(self, hidden: Hidden, position: int, *, snapshots: bool = False) -> Hidden:
        if position > len(self._history):
            raise ShardError(f"position {position} leaves a gap after {len(self._history)}")
        if position + len(hidden) > self.context_size:
            raise ShardError(f"position {position + len(hidden)} is past the context")
        del self._history[position:]
        self._last_spec = (position, len(hidden)) if snapshots else None
        return np.stack([self._column(row) for row in hidden])

    def _column(self, row: NDArray[np.float32]) -> NDArray[np.float32]:
        before = self._history[-1] if self._history else [b""] * (self.hi - self.lo)
        digests = []
        for layer, earlier in zip(range(self.lo, self.hi), before, strict=True):
            seen = earlier + row.astype("<f4").tobytes() + layer.to_bytes(2, "big")
            digests.append(hashlib.sha256(seen).digest())
            row = self._spread(digests[-1])
        self._history.append(digests)
        return row

    def head(self, hidden: Hidden, k: int) -> TopLogits:
        self._host_only()
        seeds = [hashlib.sha256(row.astype("<f4").tobytes()).digest() for row in hidden]
        first = np.array([int.from_bytes(seed[:4], "big") for seed in seeds], dtype=np.int64)
        ids = (first[:, None] + np.arange(k)) % self.vocabulary_size
        values = np.broadcast_to(-np.arange(k, dtype=np.float32), ids.shape)
        return TopLogits(ids=ids, values=values.copy(), finite=True)

    def pack(self, hidden: Hidden) -> Packed:
        halves = np.asarray(hidden, dtype=np.float32).astype("<f2")  # small integers: exact
        return Packed(halves.tobytes(), float(np.abs(halves).max(initial=0)))

    def unpack(self, data: bytes, columns: int) -> Hidden:
        if len(data) != 2 * columns * self.width:
            raise ShardError(f"{len(data)} bytes are not {columns} hidden states of {self.width}")
        return np.frombuffer(data, dtype="<f2").astype(np.float32).reshape(columns, self.width)

    def reset(self) -> None:
        self._history.clear()
        self._last_spec = None

    def rollback(self, column: int) -> None:
        if self._last_spec is None or column >= self._last_spec[1]:
            raise ShardError(f"no snapshot after column {column}")
        del self._history[self._last_spec[0] + column + 1 :]

    def save(self, slot: int) -> None:
        self._slots[slot] = list(self._history)

    def load(self, slot: int) -> None:
        if slot not in self._slots:
            raise ShardError(f"no saved state {slot}")
        self._history = list(self._slots[slot])

    def drop(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._slots.pop(slot, None)

    def drop_all(self) -> None:
        self._slots.clear()

    def close(self) -> None:
        self._history.clear()
        self._slots.clear()

    def _host_only(self) -> None:
        if not self.has_embedding:
            raise ShardError("this device holds no embedding and no head")

    def _spread(self, seed: bytes) -> NDArray[np.float32]:
        digest = hashlib.sha256(seed).digest()
        return np.frombuffer(digest[: self.width], dtype=np.uint8).astype(np.float32)
