"""How a model part computes: the seam between a room's shard and what its device does best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from poolhouse_node.engine import halves
from poolhouse_node.engine.paged.passes import PagedPass
from poolhouse_node.engine.sampling import top_logits
from poolhouse_node.shard import Packed, ShardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from poolhouse_node.engine.graphs import FrameGraphs
    from poolhouse_node.engine.head import Head
    from poolhouse_node.engine.models import Model
    from poolhouse_node.engine.paged.sequence import RoomState
    from poolhouse_node.shard import TopLogits

__all__ = ["Compute", "Steps", "TorchCompute", "head_of"]


class Compute(Protocol):
    """The layers of one part, and a host's embedding and head. Hidden states are [n, width]
    float32 on the device."""

    columns_at_once: int
    """Columns of one pass: bounds the scratch memory of a long frame."""
    first_widths: tuple[int, ...]
    """Frames to run before any room's: what they compile serves all others."""
    steps: Steps | None
    """For frames that need not go through the pieces below."""

    def run(self, room: RoomState, hidden: Tensor, position: int, *, snapshots: bool) -> Tensor:
        """One pass of at most :attr:`columns_at_once` columns, inside ``room.frame``."""
        ...

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Rows of the embedding. Raises :class:`ShardError` where there is none."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """All logits, [n, vocabulary]. Raises as :meth:`embed`."""
        ...

    def top(self, hidden: Tensor, k: int) -> TopLogits:
        """The best of them. Raises as :meth:`embed`."""
        ...

    def pack(self, hidden: Tensor) -> Packed:
        """As bytes of half floats by the wire's rule (wire, section 5)."""
        ...

    def unpack(self, data: bytes, columns: int) -> Tensor:
        """Bytes of half floats, as many as fit ``columns``, as hidden states."""
        ...


class Steps(Protocol):
    """Frames of few columns, each from the host's bytes to the host's bytes in one go. The methods
    are those of :class:`~poolhouse_node.shard.Shard`; layers run inside ``room.frame``."""

    columns_max: int
    graphs: FrameGraphs

    def forward_ids(self, room: RoomState, ids: Sequence[int], position: int) -> Packed:
        """``ids`` are in the vocabulary, and there is one."""
        ...

    def forward_bytes(
        self, room: RoomState, data: bytes, columns: int, position: int, *, snapshots: bool
    ) -> Packed:
        """``data`` has the length that ``columns`` ask for."""
        ...

    def top_of_ids(
        self, room: RoomState, ids: Sequence[int], position: int, k: int
    ) -> TopLogits: ...

    def top_of_bytes(self, data: bytes, k: int) -> TopLogits: ...


def head_of(head: Head | None) -> Head:
    """Raise :class:`ShardError` where there is no head."""
    if head is None:
        raise ShardError("This device holds no embedding and no head.")
    return head


class TorchCompute:
    """With torch's own operators, on any device."""

    columns_at_once = 256
    first_widths: tuple[int, ...] = ()
    steps: Steps | None = None

    def __init__(self, model: Model, head: Head | None, device: torch.device) -> None:
        self._model = model
        self._head = head
        self._device = device

    def run(self, room: RoomState, hidden: Tensor, position: int, *, snapshots: bool) -> Tensor:
        this_pass = PagedPass(room, position, len(hidden), keeps_snapshots=snapshots)
        return self._model.run(hidden, this_pass)

    def embed(self, ids: Sequence[int]) -> Tensor:
        return head_of(self._head).embed(ids)

    def logits(self, hidden: Tensor) -> Tensor:
        return head_of(self._head).logits(hidden)

    def top(self, hidden: Tensor, k: int) -> TopLogits:
        return top_logits(self.logits(hidden), k)

    def pack(self, hidden: Tensor) -> Packed:
        data = halves.halves_to_bytes(halves.to_halves(hidden))
        return Packed(data, halves.largest_magnitude(hidden))

    def unpack(self, data: bytes, columns: int) -> Tensor:
        width = len(data) // 2 // columns
        return halves.from_halves(data, (columns, width), self._device)
