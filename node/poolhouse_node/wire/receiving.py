"""Putting frames together and handing them over in send order (wire, section 7).

Slices of one link arrive over several reliable channels, in order on each, in any order between
them. A missing frame is late, not lost, until every open channel has shown a newer one or a wait
has passed.

Memory. What a peer can make this side hold is bounded by :data:`MAX_HELD_BYTES` of payload and
:data:`MAX_HELD_FRAMES` frames, incomplete and waiting ones together. At a bound the frame with the
highest id gives way, be it one that is held or the one whose slice came: frames that are next in
line are never lost to frames far ahead of them. A frame that gave way is a gap like any other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.wire.slices import (
    HEADER_BYTES,
    MAGIC,
    SLICE_PAYLOAD_BYTES,
    Frame,
    SliceHeader,
    decode_header,
    frame_of,
    slices_needed,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["MAX_HELD_BYTES", "MAX_HELD_FRAMES", "OrderedReceiver"]

MAX_HELD_BYTES = 320 * 1024 * 1024
"""Room for the largest frame that the header can say, 65535 slices."""
MAX_HELD_FRAMES = 1024

# What is looked at in every slice; the rest of the header only once a frame. A token's frame with
# its second copies is put together in 10 us instead of 12.
_SHORT_HEADER = struct.Struct(">2s2xI6xHH2xI")  # magic, frame id, index, count, total bytes
_WAIT_S = 60.0
_WAIT_AFTER_CLOSE_S = 5.0
_CLOSE_IS_RECENT_S = 15.0
_GATHERING_TIMEOUT_S = 30.0
_SWEEP_ABOVE = 64


@dataclass(slots=True)
class _Gathering:
    """A frame of which some slices have come."""

    header: SliceHeader
    started_at: float
    pieces: dict[int, bytes] = field(default_factory=dict)
    held_bytes: int = 0


@dataclass(slots=True)
class _Waiting:
    """A complete frame behind a missing one; ``frame`` is ``None`` when its kind is unknown."""

    frame: Frame | None
    held_bytes: int


@dataclass(slots=True)
class OrderedReceiver:
    """The receiving half of one link. Make a new one with every new link.

    Tell it what happens (:meth:`opened`, :meth:`closed`, :meth:`receive`) and call
    :meth:`on_timer` when :meth:`next_timer` is due. ``now`` is in seconds of any clock that does
    not go back. Every call returns the frames to hand over, in order. Nothing here raises.
    """

    max_held_bytes: int = MAX_HELD_BYTES
    max_held_frames: int = MAX_HELD_FRAMES
    expected: int = 1
    """Id of the next frame to hand over."""
    skipped: int = 0
    """Frames given up as lost."""
    skipped_after_wait: int = 0
    """Of these, how many because nothing came for long, not because every channel was past."""
    delayed: int = 0
    """Frames that were complete before one that was sent earlier."""
    received_bytes: int = 0
    """Slices with their headers, second copies among them."""
    repeated_bytes: int = 0
    """Slices that had come already, most often second copies."""
    refused: int = 0
    """Frames that gave way at a bound of memory."""
    held_bytes: int = 0
    _gathering: dict[int, _Gathering] = field(default_factory=dict)
    _waiting: dict[int, _Waiting] = field(default_factory=dict)
    _seen: dict[Hashable, int] = field(default_factory=dict)
    _closed_at: float | None = None
    _timer_at: float | None = None
    _timer_for: int = 0

    @property
    def gathering(self) -> int:
        """Frames of which some slices have come."""
        return len(self._gathering)

    @property
    def waiting(self) -> int:
        """Complete frames behind a missing one."""
        return len(self._waiting)

    def next_timer(self) -> float | None:
        """When :meth:`on_timer` is due, in the clock of ``now``; ``None`` when nothing waits."""
        return self._timer_at

    def opened(self, channel: Hashable, now: float) -> None:
        """A wire channel appeared. It has shown nothing, so it holds up every skip.

        ``now`` is not needed yet; it is there because every event has its time.
        """
        del now
        self._seen.setdefault(channel, 0)

    def closed(self, channel: Hashable, now: float) -> list[Frame]:
        """A wire channel is gone, and what it showed with it. Unknown ones are ignored."""
        ready: list[Frame] = []
        if self._seen.pop(channel, None) is None:
            return ready
        self._closed_at = now
        self._timer_at = None  # a wait of 60 s turns into 5 s from here
        self._look_at_gaps(now, ready)
        return ready

    def on_timer(self, now: float) -> list[Frame]:
        """The wait for a missing frame has passed: go on at the lowest frame that is here."""
        ready: list[Frame] = []
        if self._timer_at is None or now < self._timer_at:
            return ready
        self._timer_at = None
        skipped_before = self.skipped
        self._skip_to(min(self._waiting))
        self.skipped_after_wait += self.skipped - skipped_before
        self._hand_over(ready)
        self._look_at_gaps(now, ready)
        return ready

    def receive(
        self, channel: Hashable, data: bytes | bytearray | memoryview | str, now: float
    ) -> list[Frame]:
        """A message came on a wire channel. Anything that is not a slice is ignored.

        A channel that was not opened delivers slices but does not count for gaps.
        """
        ready: list[Frame] = []
        if isinstance(data, str) or len(data) < HEADER_BYTES:
            return ready
        magic, frame_id, index, count, total_bytes = _SHORT_HEADER.unpack_from(data)
        if magic != MAGIC:
            return ready
        self.received_bytes += len(data)
        if frame_id > self._seen.get(channel, frame_id):
            self._seen[channel] = frame_id
        if self._waiting and frame_id != self.expected:
            self._look_at_gaps(now, ready)
        if frame_id < self.expected or frame_id in self._waiting:
            self.repeated_bytes += len(data)
            self._forget_gathered(frame_id)
            return ready
        frame = self._gathering.get(frame_id)
        if frame is None:
            if _is_consistent(index, count, total_bytes, len(data)):
                self._begin(data, now, ready)
        elif (
            index not in frame.pieces
            and total_bytes == frame.header.total_bytes
            and _is_consistent(index, count, total_bytes, len(data))
        ):
            self._add(frame, index, data, now, ready)
        else:
            self.repeated_bytes += len(data)
        return ready

    def _begin(self, data: bytes | bytearray | memoryview, now: float, ready: list[Frame]) -> None:
        """The first slice of a frame, whose header stands for all of them."""
        header = decode_header(data)
        assert header is not None, "its magic was checked"
        if header.slice_count == 1:  # nothing to gather
            self._complete(header, bytes(data[HEADER_BYTES:]), now, ready)
        elif self._make_room(header.frame_id, len(data) - HEADER_BYTES, new=True):
            frame = self._gathering[header.frame_id] = _Gathering(header, now)
            self._keep(frame, header.slice_index, data)

    def _add(
        self,
        frame: _Gathering,
        index: int,
        data: bytes | bytearray | memoryview,
        now: float,
        ready: list[Frame],
    ) -> None:
        """A further slice of a frame."""
        header = frame.header
        if not self._make_room(header.frame_id, len(data) - HEADER_BYTES, new=False):
            return
        self._keep(frame, index, data)
        if len(frame.pieces) == header.slice_count:
            self._forget_gathered(header.frame_id)
            payload = b"".join([frame.pieces[index] for index in range(header.slice_count)])
            self._complete(header, payload, now, ready)

    def _keep(self, frame: _Gathering, index: int, data: bytes | bytearray | memoryview) -> None:
        frame.pieces[index] = bytes(data[HEADER_BYTES:])
        frame.held_bytes += len(data) - HEADER_BYTES
        self.held_bytes += len(data) - HEADER_BYTES

    def _complete(
        self, header: SliceHeader, payload: bytes, now: float, ready: list[Frame]
    ) -> None:
        if len(self._gathering) > _SWEEP_ABOVE:
            self._sweep(now)
        frame = frame_of(header, payload)
        if header.frame_id == self.expected:
            self.expected += 1
            if frame is not None:
                ready.append(frame)
        elif self._make_room(header.frame_id, len(payload), new=True):
            self._waiting[header.frame_id] = _Waiting(frame, len(payload))
            self.held_bytes += len(payload)
            self.delayed += 1
        if self._waiting:
            self._hand_over(ready)
            self._look_at_gaps(now, ready)

    def _hand_over(self, ready: list[Frame]) -> None:
        """Hand over ``expected`` and everything consecutive after it."""
        while (waiting := self._waiting.pop(self.expected, None)) is not None:
            self.expected += 1
            self.held_bytes -= waiting.held_bytes
            if waiting.frame is not None:
                ready.append(waiting.frame)

    def _look_at_gaps(self, now: float, ready: list[Frame]) -> None:
        """Skip what every open channel is past; wait for what may still come."""
        while self._waiting and self._seen:
            # All of the gap at once: a peer may show an id four billion ahead.
            provably_lost = min(*self._seen.values(), *self._waiting)
            if provably_lost <= self.expected:
                break
            self._skip_to(provably_lost)
            self._hand_over(ready)
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if not self._waiting:
            self._timer_at = None
        elif self._timer_at is None or self._timer_for != self.expected:
            closed_at = self._closed_at
            recent = closed_at is not None and now - closed_at < _CLOSE_IS_RECENT_S
            self._timer_at = now + (_WAIT_AFTER_CLOSE_S if recent else _WAIT_S)
            self._timer_for = self.expected

    def _skip_to(self, frame_id: int) -> None:
        self.skipped += frame_id - self.expected
        self.expected = frame_id
        for stale in [known for known in self._gathering if known < frame_id]:
            self._forget_gathered(stale)

    def _forget_gathered(self, frame_id: int) -> None:
        if frame := self._gathering.pop(frame_id, None):
            self.held_bytes -= frame.held_bytes

    def _sweep(self, now: float) -> None:
        oldest = now - _GATHERING_TIMEOUT_S
        for frame_id in [known for known, f in self._gathering.items() if f.started_at < oldest]:
            self._forget_gathered(frame_id)

    def _make_room(self, frame_id: int, size_bytes: int, *, new: bool) -> bool:
        """Keep the bounds by dropping frames with higher ids; False when there are none."""
        while (
            self.held_bytes + size_bytes > self.max_held_bytes
            or len(self._gathering) + len(self._waiting) + new > self.max_held_frames
        ):
            farthest = max(max(self._gathering, default=0), max(self._waiting, default=0))
            self.refused += 1
            if farthest <= frame_id:
                return False
            self._forget_gathered(farthest)
            if waiting := self._waiting.pop(farthest, None):
                self.held_bytes -= waiting.held_bytes
                if not self._waiting:
                    self._timer_at = None
        return True


def _is_consistent(index: int, count: int, total_bytes: int, slice_bytes: int) -> bool:
    """Is this slice one that the frame of its header can have?"""
    rest = total_bytes - index * SLICE_PAYLOAD_BYTES
    return (
        index < count
        and slice_bytes - HEADER_BYTES == min(SLICE_PAYLOAD_BYTES, rest)
        # A count that its total does not need is a frame that could never be whole.
        and count == slices_needed(total_bytes)
    )
