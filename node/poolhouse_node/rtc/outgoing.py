"""What waits to go out on the main channel of a connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from poolhouse_node.rtc.peer import ChannelClosed, RtcError
from poolhouse_node.wire.binarypack import pack
from poolhouse_node.wire.chunks import Chunker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from poolhouse_node.rtc.peer import Channel

__all__ = ["QUEUE_LIMIT_BYTES", "Outgoing"]

QUEUE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Sent and not yet taken by the channel. A peer that lets more than this pile up does not read:
its connection is closed, for a reliable channel must not lose a message in between."""

_HIGH_WATER_BYTES = 1024 * 1024
_LOW_WATER_BYTES = 256 * 1024


class Outgoing:
    """Messages in order, packed and cut.

    They wait until the channel is open and while it has more than 1 MiB buffered. That bounds
    this end only: engines queue without limit and say little of what the other end has read, so
    bulk needs a window of its own on top (engines, pitfall 11).
    """

    def __init__(self, refused: Callable[[str], None]) -> None:
        self._refused = refused
        self._channel: Channel | None = None
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._chunker = Chunker()
        self._lowered = asyncio.Event()
        self._stopped = False

    def start(self, channel: Channel) -> None:
        """The channel is open."""
        self._channel = channel
        channel.on_low(_LOW_WATER_BYTES, self._low)
        self._low()

    def stop(self) -> None:
        """Take nothing more; what is queued may still go out."""
        self._stopped = True
        self._lowered.set()

    def send(self, message: Mapping[str, Any]) -> None:
        pieces = self._chunker.split(pack(message))
        self._queue.extend(pieces)
        self._queued_bytes += sum(map(len, pieces))
        self._push()
        if self._queued_bytes > QUEUE_LIMIT_BYTES:
            self._refused("The other device does not read what it is sent.")

    def _push(self) -> None:
        channel, queue = self._channel, self._queue
        if channel is None:
            return
        try:
            while queue and channel.buffered() < _HIGH_WATER_BYTES:
                channel.send(queue[0])
                self._queued_bytes -= len(queue.popleft())
        except RtcError as error:
            queue.clear()
            self._refused(str(error))

    def _low(self) -> None:
        self._push()
        self._lowered.set()

    async def drain(self) -> None:
        while not self._stopped and (self._channel is None or self._is_full):
            self._lowered.clear()
            await self._lowered.wait()
        if self._stopped:
            raise ChannelClosed("The connection is closed.")

    async def finish(self, last: Mapping[str, Any]) -> None:
        """Send a last message and wait until the channel has taken all that was queued."""
        self.send(last)
        while self._queue:
            self._lowered.clear()
            await self._lowered.wait()

    @property
    def _is_full(self) -> bool:
        channel = self._channel
        return bool(self._queue) or (channel is not None and channel.buffered() > _LOW_WATER_BYTES)
