"""What is to be written to one socket: at once while there is room, else within bounds."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from poolhouse_control.signaling.messages import wire_size

if TYPE_CHECKING:
    from poolhouse_control.signaling.limits import Limits

__all__ = ["Outbox", "Wire"]


class Wire(Protocol):
    """The sending half of a socket. No call waits or raises, also when the socket has ended."""

    @property
    def is_writable(self) -> bool:
        """Whether the transport has room; when it has again, ``Outbox.drain`` is called."""
        ...

    def send_text(self, text: str) -> None:
        """Write one text frame."""
        ...

    def close(self, code: int) -> None:
        """Write the close frame."""
        ...

    def farewell(self, code: int) -> None:
        """Write the close frame, and go on reading until the client has answered it."""
        ...

    def abort(self) -> None:
        """Cut the connection without a word."""
        ...


class Outbox:
    """A bounded queue of text frames for one socket, empty while its client reads.

    A client that has not finished the closing handshake ``Limits.close_grace_s`` after ``close``
    is cut: one that reads nothing would keep its connection, and what waits in it, for ever.
    """

    __slots__ = ("_close_code", "_hear_out", "_limits", "_size_bytes", "_waiting", "_wire")

    def __init__(self, limits: Limits, wire: Wire) -> None:
        self._limits = limits
        self._wire = wire
        self._waiting: deque[str] | None = None  # most sockets never need one
        self._size_bytes = 0
        self._close_code: int | None = None
        self._hear_out = False

    def put(self, text: str) -> bool:
        """Write a frame or queue it. False if the bound is reached; then it is not taken."""
        if self._waiting is None and self._wire.is_writable:
            self._wire.send_text(text)
            return True
        return self._queue(text)

    def _queue(self, text: str) -> bool:
        waiting = self._waiting or deque()
        size_bytes = self._size_bytes + wire_size(text)
        if (
            len(waiting) >= self._limits.max_outbox_messages
            or size_bytes > self._limits.max_outbox_bytes
        ):
            return False
        waiting.append(text)
        self._waiting, self._size_bytes = waiting, size_bytes
        return True

    def drain(self) -> None:
        """Write what waits, as far as there is room."""
        while self._waiting and self._wire.is_writable:
            text = self._waiting.popleft()
            self._size_bytes -= wire_size(text)
            self._wire.send_text(text)
        if not self._waiting:
            self._waiting = None
            self._end()

    def close(self, code: int, *, discard: bool = False, hear_out: bool = False) -> None:
        """End the socket after what is queued, or at once with ``discard``.

        With ``hear_out`` its frames are read until the client has answered the close.
        """
        if self._close_code is not None:
            return
        if discard:
            self._waiting = None
        self._close_code, self._hear_out = code, hear_out
        asyncio.get_running_loop().call_later(self._limits.close_grace_s, self._wire.abort)
        self.drain()

    def _end(self) -> None:
        if self._close_code is None:
            return
        if self._hear_out:
            self._wire.farewell(self._close_code)
        else:
            self._wire.close(self._close_code)
