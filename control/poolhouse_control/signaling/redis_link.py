"""One connection to Redis, read and written without ceremony.

redis-py opens it: it knows addresses, TLS and passwords. From then on the bytes are ours. The two
things every message between replicas needs, a publish and a delivery, cost a fraction of what
redis-py's streams, pools and timeouts do. Deadlines are the caller's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

import hiredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, RedisError, ResponseError

if TYPE_CHECKING:
    from redis.asyncio import ConnectionPool

__all__ = ["Link"]

_READ_AHEAD: Final = 64
"""Replies that may wait for ``read``. Beyond, the server is left to hold them back."""


class Link(asyncio.Protocol):
    """Commands go out as they are written; replies are read in the order in which they come."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        # redis-py has no public way to its transport. The connection stays its owner.
        self._transport: asyncio.Transport = connection._writer.transport  # noqa: SLF001
        self._parser = hiredis.Reader(protocolError=InvalidResponse, replyError=ResponseError)
        self._replies: deque[Any] = deque()
        self._news = asyncio.Event()
        self._is_paused = False
        self.is_lost = False
        """Whether nothing will come any more, but for replies that wait."""
        self._transport.set_protocol(self)

    @classmethod
    async def open(cls, pool: ConnectionPool) -> Self:
        """Connect as the pool would, with a connection that the pool does not know.

        Raises:
            RedisError, OSError: it cannot be reached, or does not let us in.
        """
        connection: Any = pool.make_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.connect()
        except BaseException:  # a deadline too
            await connection.disconnect(nowait=True)
            raise
        return cls(connection)

    def write(self, *command: Any) -> None:
        """Send one command. On a lost link it is ``read`` that says so."""
        if not self.is_lost:
            self._transport.write(hiredis.pack_command(command))

    async def read(self) -> Any:
        """Wait for the next reply. For one caller at a time.

        Raises:
            ResponseError: the server refused a command.
            ConnectionError: redis-py's; the link is lost, and all that had come was read.
        """
        while not self._replies:
            if self.is_lost:
                raise RedisConnectionError("The connection was lost.")
            self._news.clear()
            await self._news.wait()
        reply = self._replies.popleft()
        if self._is_paused and not self._replies and not self.is_lost:
            self._is_paused = False
            self._transport.resume_reading()
        if isinstance(reply, RedisError):
            raise reply
        return reply

    async def close(self) -> None:
        """Cut the connection; who waits in ``read`` hears of it."""
        self._lose()
        self._transport.abort()
        await self._connection.disconnect(nowait=True)

    # Protocol

    def data_received(self, data: bytes) -> None:
        """Take replies apart."""
        self._parser.feed(data)
        try:
            while (reply := self._parser.gets()) is not False:
                self._replies.append(reply)
        except InvalidResponse as error:
            self._replies.append(error)
            self._lose()
            self._transport.abort()
            return
        self._news.set()
        if len(self._replies) > _READ_AHEAD and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits."""
        self._lose()

    def _lose(self) -> None:
        self.is_lost = True
        self._news.set()
