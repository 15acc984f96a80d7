"""A device that only notes what its network tells it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poolhouse_node.wire.slices import Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from poolhouse_node.rtc.link import Link

__all__ = ["Recorder", "frame", "positions", "until"]


@dataclass
class Recorder:
    """Satisfies ``NetworkEvents``. Admits each link at once unless told not to."""

    admits: bool = True
    opened: list[Link] = field(default_factory=list)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    closed: list[tuple[str, str]] = field(default_factory=list)
    signaling: list[bool] = field(default_factory=list)
    answer: Callable[[Link, Frame], None] | None = None
    """What to do with a frame, beside noting it."""

    def link_opened(self, link: Link) -> None:
        self.opened.append(link)
        if self.admits:
            link.admit()

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        self.messages.append(message)

    def frame(self, link: Link, frame: Frame) -> None:
        self.frames.append(frame)
        if self.answer is not None:
            self.answer(link, frame)

    def link_closed(self, link: Link, reason: str) -> None:
        self.closed.append((link.peer_id, reason))

    def signaling_changed(self, *, connected: bool) -> None:
        self.signaling.append(connected)


def frame(position: int = 0, size_bytes: int = 10_000) -> Frame:
    """A frame that is told apart by its position and filled with it."""
    return Frame(Kind.HIDDEN, position, 1, bytes([position % 256]) * size_bytes)


def positions(recorder: Recorder) -> list[int]:
    """The frames that came, in the order they came."""
    return [got.position for got in recorder.frames]


async def until(condition: Callable[[], object], *, timeout_s: float = 15.0) -> None:
    """Wait, looking every other millisecond, for what a real engine brings about."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)
