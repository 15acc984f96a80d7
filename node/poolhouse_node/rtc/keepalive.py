"""One byte when nothing was sent for a while, so that a radio stays awake (wire, section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from poolhouse_node.wire.errors import ChannelRefused

if TYPE_CHECKING:
    import asyncio

    from poolhouse_node.rtc.peer import Channel

__all__ = ["ACTIVE_S", "Keepalive"]

ACTIVE_S: Final = 1.5
"""A link is active for this long after a frame went out or came in whole."""

_BYTE = b"\x00"
_FULL_BYTES = 1024


class Keepalive:
    """The keep-alive of one link. No timer runs while the link is idle.

    While it is active one timer does: it is set for the moment at which a byte would be due and,
    when frames went out in between, simply set again.
    """

    __slots__ = (
        "_active_until",
        "_channels",
        "_loop",
        "_period_s",
        "_sent_at",
        "_timer",
        "_turn",
        "sent_bytes",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float) -> None:
        self._loop = loop
        self._period_s = period_s
        self._channels: list[Channel] = []
        self._active_until = 0.0
        self._sent_at = 0.0
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None
        self.sent_bytes = 0
        """Keep-alives so far: each is one byte."""

    def add(self, channel: Channel) -> None:
        """A connection joined the link."""
        self._channels.append(channel)

    def remove(self, index: int) -> None:
        """The connection that joined as number ``index`` left."""
        del self._channels[index]

    def sent(self, now: float) -> None:
        """A frame goes out."""
        self._sent_at = now
        self.received(now)

    def received(self, now: float) -> None:
        """A frame came in whole."""
        self._active_until = now + ACTIVE_S
        if self._timer is None and self._period_s > 0:
            self._timer = self._loop.call_at(now + self._period_s, self._due)

    def stop(self) -> None:
        """The link is over."""
        self._period_s = 0.0
        self._channels.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        now = self._loop.time()
        self._timer = None
        if now >= self._active_until:
            return
        next_at = self._sent_at + self._period_s
        if next_at <= now:
            self._send()
            self._sent_at = now
            next_at = now + self._period_s
        self._timer = self._loop.call_at(next_at, self._due)

    def _send(self) -> None:
        """One byte on the next channel in turn that is open and nearly empty."""
        channels = self._channels
        for _ in range(len(channels)):
            self._turn = (self._turn + 1) % len(channels)
            channel = channels[self._turn]
            if channel.is_open and channel.buffered() < _FULL_BYTES:
                try:
                    channel.send(_BYTE)
                except ChannelRefused:
                    continue
                self.sent_bytes += 1
                return
