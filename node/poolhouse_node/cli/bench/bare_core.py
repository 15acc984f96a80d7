"""The floor of the wire: libdatachannel's ``_core`` with nothing of ours on top.

The same four associations and slices as a link within one machine, without its numbering, choice
of channels, order and bookkeeping. Uses the engine's private layer as
``rtc/libdatachannel.py`` does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import cycle
from typing import TYPE_CHECKING, Any

from poolhouse_node.wire.slices import decode_header

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["CoreEnd", "FrameGatherer"]

ASSOCIATIONS = 4
GATHERING_S = 0.5
"""Host candidates only: they are there at once."""
OPENING_S = 20.0


class CoreEnd:
    """One end: four associations with one ordered channel each."""

    def __init__(self, received: Callable[[int, bytes], None]) -> None:
        from aiolibdatachannel import _core, _native  # type: ignore[attr-defined]  # extension

        from poolhouse_node.rtc.libdatachannel_extras import load_extras

        load_extras(_native)  # the same retransmission timer as a link has
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._armed = False
        self._opened = asyncio.Semaphore(0)
        self._received = received
        self._send_bytes = _native.send_bytes
        self._turns = cycle(range(ASSOCIATIONS))
        self._peers: list[Any] = []
        self._handles: list[int] = []
        self._channels: list[Any] = []
        for number in range(ASSOCIATIONS):
            self._add(_core, number)

    def _add(self, core: Any, number: int) -> None:
        peer = core.PeerConnection([])
        handle = peer.create_data_channel("bare", negotiated=True, manual_stream=True, stream=77)
        channel = core.DataChannel(handle)
        channel.set_on_message(lambda data: self._put(number, data))
        channel.set_on_open(lambda: self._loop.call_soon_threadsafe(self._opened.release))
        self._peers.append(peer)
        self._handles.append(handle)
        self._channels.append(channel)

    def _put(self, number: int, data: bytes) -> None:
        """On a native thread: queue, wake the loop once."""
        self._queue.append((number, data))
        if not self._armed:
            self._armed = True
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._armed = False
        while self._queue:
            self._received(*self._queue.popleft())

    def send(self, number: int, data: bytes) -> None:
        """Send one message on one association."""
        self._send_bytes(self._handles[number], data)

    def send_all(self, slices: Sequence[bytes]) -> None:
        """Send the slices of a frame in turns, once, as a link within one machine does."""
        for piece in slices:
            self.send(next(self._turns), piece)

    async def describe(self, kind: str) -> list[str]:
        """The descriptions of all associations."""
        for peer in self._peers:
            peer.set_local_description(kind)
        await asyncio.sleep(GATHERING_S)
        return [peer.get_local_description() for peer in self._peers]

    def accept(self, descriptions: list[str], kind: str) -> None:
        """Take the other end's descriptions."""
        for peer, sdp in zip(self._peers, descriptions, strict=True):
            peer.set_remote_description(sdp, kind)

    async def opened(self) -> None:
        """Wait until every channel is open."""
        async with asyncio.timeout(OPENING_S):
            for _ in self._channels:
                await self._opened.acquire()


class FrameGatherer:
    """Slices of one frame after the other; no order is kept."""

    def __init__(self) -> None:
        self._last_id = 0
        self._gathered: dict[int, bytes] = {}

    def take(self, data: bytes) -> list[bytes] | None:
        """A slice came; all of the frame's when it was the last one missing."""
        header = decode_header(data)
        if header is None or header.frame_id <= self._last_id:
            return None
        self._gathered[header.slice_index] = data
        if len(self._gathered) < header.slice_count:
            return None
        slices = [self._gathered[index] for index in sorted(self._gathered)]
        self._last_id = header.frame_id
        self._gathered.clear()
        return slices
