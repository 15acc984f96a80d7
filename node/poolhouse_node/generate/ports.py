"""What the host's loop needs: the compute thread, and the rest of the chain as one lap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from poolhouse_node.room.laps import LapKind
    from poolhouse_node.wire.slices import Frame

__all__ = ["Chain", "Compute", "LapFailed", "LapFailure"]

type LapFailure = Literal["timeout", "left", "device-error", "not-a-number", "re-deal"]


class LapFailed(Exception):
    """A frame did not come back. ``kind`` says why, the text is a sentence naming the device."""

    def __init__(self, kind: LapFailure, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: LapFailure = kind

    @property
    def may_pass(self) -> bool:
        """The answer can go on once the chain is whole and well again (liveness, 8; decision 2)."""
        return self.kind != "not-a-number"


class Compute(Protocol):
    """The thread that owns a shard. Calls run one at a time, in order."""

    async def run[T](self, call: Callable[[], T]) -> T:
        """Run ``call`` on the compute thread; return or raise what it does."""
        ...


class Chain(Protocol):
    """The workers after the host, seen as one pipe that gives every frame back."""

    @property
    def is_empty(self) -> bool:
        """True when the host holds every layer: there is nothing to send."""
        ...

    def lap(self, frame: Frame, kind: LapKind, *, is_barrier: bool = False) -> Awaitable[bytes]:
        """Send ``frame`` now; the awaitable gives the returned payload (half floats).

        It raises :class:`LapFailed` after the lap's timeout, when a chain device leaves or reports
        an error, or when the layers are dealt again. Nobody has to wait for it. With
        ``is_barrier`` it is the first lap after one that failed, and goes alone: what workers
        report meanwhile may be about frames of the failed ones.
        """
        ...
