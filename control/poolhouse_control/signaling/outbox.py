"""The frames that wait to be written to one socket, within bounds, and the one task that writes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from poolhouse_control.signaling.messages import wire_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_control.signaling.limits import Limits

__all__ = ["Outbox", "Writable"]


class Writable(Protocol):
    """The sending half of a WebSocket."""

    async def send_text(self, data: str) -> None:
        """Write one text frame; waits while the transport is full."""
        ...

    async def close(self, code: int) -> None:
        """Write the close frame."""
        ...

    async def farewell(self, code: int) -> None:
        """Write the close frame, and go on reading until the client has answered it."""
        ...


class Outbox:
    """A bounded queue of text frames for one socket.

    ``abort`` cuts the connection without a word. It is called when the client has not finished
    the closing handshake ``Limits.close_grace_s`` after ``close``: a client that reads nothing
    would keep its connection, and what waits in it, for ever.
    """

    def __init__(self, limits: Limits, abort: Callable[[], None]) -> None:
        self._limits = limits
        self._abort = abort
        self._texts: deque[str] = deque()
        self._size_bytes = 0
        self._wake = asyncio.Event()
        self._close_code: int | None = None
        self._hear_out = False

    def put(self, text: str) -> bool:
        """Queue a frame. False if the bound is reached; then the frame is not taken."""
        size_bytes = self._size_bytes + wire_size(text)
        if (
            len(self._texts) >= self._limits.max_outbox_messages
            or size_bytes > self._limits.max_outbox_bytes
        ):
            return False
        self._texts.append(text)
        self._size_bytes = size_bytes
        self._wake.set()
        return True

    def close(self, code: int, *, discard: bool = False, hear_out: bool = False) -> None:
        """End the socket after what is queued, or at once with ``discard``.

        With ``hear_out`` its frames are read until the client has answered the close.
        """
        if self._close_code is not None:
            return
        if discard:
            self._texts.clear()
        self._close_code = code
        self._hear_out = hear_out
        self._wake.set()
        asyncio.get_running_loop().call_later(self._limits.close_grace_s, self._abort)

    async def write_to(self, socket: Writable) -> None:
        """Write until closed. Owned by the socket's handler, which cancels it at the end."""
        while True:
            while self._texts:
                text = self._texts.popleft()
                self._size_bytes -= wire_size(text)
                await socket.send_text(text)
            if self._close_code is not None:
                end = socket.farewell if self._hear_out else socket.close
                await end(self._close_code)
                return
            self._wake.clear()
            await self._wake.wait()
