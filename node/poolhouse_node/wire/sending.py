"""Sending frames over the wire channels of a link (wire, section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.wire.errors import ChannelRefused
from poolhouse_node.wire.slices import encode_slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.wire.slices import Frame

__all__ = ["SliceSender", "WireChannel"]


class WireChannel(Protocol):
    """Data channel 77 of one association."""

    @property
    def is_open(self) -> bool:
        """Messages can be sent."""
        ...

    def buffered(self) -> int:
        """Bytes taken but not sent yet. Asked several times a frame: must be cheap."""
        ...

    def send(self, data: bytes) -> None:
        """Send one message without waiting, or raise :class:`ChannelRefused`."""
        ...


@dataclass(slots=True)
class SliceSender:
    """Numbers the frames of one link, one direction, and spreads their slices.

    ``duplicate_slices`` is the largest frame, in slices, of which everything is sent twice on two
    channels, so that one lost packet does not hold up a token; 0 turns that off. Make a new sender
    with every new link: ids start at 1 again.
    """

    duplicate_slices: int = 3
    next_frame_id: int = 1
    lost_slices: int = 0
    """Copies that no channel took; the receiver skips a frame of which none arrived."""
    first_bytes: int = 0
    second_bytes: int = 0
    """Slices with their headers, first and second copies."""
    _turn: int = 0

    def send(self, frame: Frame, channels: Sequence[WireChannel]) -> bool:
        """Send ``frame``; False, with no id taken, when no channel is open.

        Then the caller uses the message form. ``channels`` are those of the link in a steady
        order. Raises :class:`WireError`, also before an id is taken, for a frame that the header
        cannot say.
        """
        ready = [channel for channel in channels if channel.is_open]
        if not ready:
            return False
        slices = encode_slices(frame, self.next_frame_id)
        self.next_frame_id += 1
        twice = len(ready) > 1 and len(slices) <= self.duplicate_slices
        for data in slices:
            self.first_bytes += len(data)
            first = self._send(data, ready, avoided=None)
            if twice:
                self.second_bytes += len(data)
                self._send(data, ready, avoided=first)
        return True

    def _send(
        self, data: bytes, channels: Sequence[WireChannel], *, avoided: WireChannel | None
    ) -> WireChannel | None:
        """Send one slice; the channel that took it, or ``None`` when all refused."""
        picked = self._pick(channels, avoided)
        if _took(picked, data):
            return picked
        for channel in channels:
            if channel is not picked and channel is not avoided and _took(channel, data):
                return channel
        self.lost_slices += 1
        return None

    def _pick(self, channels: Sequence[WireChannel], avoided: WireChannel | None) -> WireChannel:
        """The channel with the fewest bytes buffered; equally empty ones take turns."""
        count, start = len(channels), self._turn
        self._turn = start + 1
        best: WireChannel | None = None
        fewest = 0
        for step in range(count):
            channel = channels[(start + step) % count]
            if channel is avoided:
                continue
            buffered = channel.buffered()
            if best is None or buffered < fewest:
                best, fewest = channel, buffered
        assert best is not None, "a second copy is only sent when there are two channels"
        return best


def _took(channel: WireChannel, data: bytes) -> bool:
    try:
        channel.send(data)
    except ChannelRefused:
        return False
    return True
