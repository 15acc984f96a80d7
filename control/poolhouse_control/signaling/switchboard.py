"""Performs what the hub decides: writes to sockets, asks the presence store, keeps the time."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_control.ops.logs import short_id
from poolhouse_control.signaling.commands import (
    Claim,
    Close,
    Commands,
    Expire,
    Release,
    Route,
    Send,
    SocketId,
)
from poolhouse_control.signaling.tally import DisconnectReason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.signaling.commands import Command
    from poolhouse_control.signaling.hub import Hub
    from poolhouse_control.signaling.messages import ConnectParams
    from poolhouse_control.signaling.outbox import Outbox
    from poolhouse_control.signaling.presence import Presence

__all__ = ["Switchboard"]


@dataclass(slots=True)
class _Line:
    """One open socket."""

    outbox: Outbox
    peer: str = ""
    """Its shortened id, for the log."""
    cut: DisconnectReason | None = None
    """Why the hub ended it."""


class Switchboard:
    """The hub with its sockets and its store.

    Each socket's handler awaits its own calls one after another: that keeps the order of
    messages between a pair of peers, also with a store that takes its time.
    """

    def __init__(
        self,
        hub: Hub,
        presence: Presence,
        log: FilteringBoundLogger,
        *,
        sweep_every_s: float = 0.5,
        touch_every_s: float = 180.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hub = hub
        self.presence = presence
        self._log = log
        self._sweep_every_s = sweep_every_s
        self._touch_every_s = touch_every_s
        self._clock = clock
        self._lines: dict[SocketId, _Line] = {}
        self._numbers = itertools.count(1)

    @property
    def socket_count(self) -> int:
        """Open sockets, registered or not."""
        return len(self._lines)

    def attach(self, outbox: Outbox) -> SocketId:
        """Take a new socket in. The caller must call ``closed`` when it ends."""
        socket = SocketId(next(self._numbers))
        self._lines[socket] = _Line(outbox)
        return socket

    async def connect(self, socket: SocketId, params: ConnectParams) -> None:
        """Register a socket, or refuse it with a message and a close."""
        line = self._lines[socket]
        line.peer = short_id(params.peer_id)
        await self._perform(self.hub.connect(socket, params))
        event = "socket.opened" if self.hub.is_registered(socket) else "socket.refused"
        self._log.info(event, socket=socket, peer=line.peer)

    async def frame(self, socket: SocketId, data: str | bytes) -> None:
        """Act on one frame of a socket."""
        await self._perform(self.hub.frame(socket, data, self._clock()))

    async def closed(self, socket: SocketId, reason: DisconnectReason) -> None:
        """Let a socket go."""
        line = self._lines.pop(socket)
        await self._perform(self.hub.closed(socket, reason))
        self._log.info("socket.closed", socket=socket, peer=line.peer, reason=line.cut or reason)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the time while the server runs."""
        async with asyncio.TaskGroup() as tasks:
            sweeper = tasks.create_task(self._sweep())
            toucher = tasks.create_task(self._touch())
            try:
                yield
            finally:
                sweeper.cancel()
                toucher.cancel()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_every_s)
            await self._perform(self.hub.tick(self._clock()))

    async def _touch(self) -> None:
        while True:
            await asyncio.sleep(self._touch_every_s)
            lost = await self.presence.touch(self.hub.owned())
            await self._perform(self.hub.lost(lost))

    async def _perform(self, commands: Commands) -> None:
        todo = deque(commands)
        while todo:
            command = todo.popleft()
            # What a command leads to comes before the commands that stood behind it.
            todo.extendleft(reversed(await self._perform_one(command)))

    async def _perform_one(self, command: Command) -> Commands:
        match command:
            case Send():
                return self._send(command)
            case Close():
                return self._close(command)
            case Claim():
                result = await self.presence.claim(command.peer_id, command.token)
                return self.hub.claimed(command, result, self._clock())
            case Release():
                await self.presence.release(command.peer_id, command.epoch)
                return ()
            case Route():
                now = self._clock()
                routed = await self.presence.route(command.parcel, now, may_wait=command.may_wait)
                return self.hub.routed(command, routed, now)
            case Expire():
                still = await self.presence.expire(command.peer_id, command.senders)
                return self.hub.expired(command, still)

    def _send(self, command: Send) -> Commands:
        line = self._lines.get(command.socket)
        if line is None or line.outbox.put(command.text):
            return ()
        return self.hub.overflowed(command.socket)

    def _close(self, command: Close) -> Commands:
        line = self._lines.get(command.socket)
        if line is not None:
            line.cut = command.reason
            self._log.debug("socket.closing", socket=command.socket, reason=command.reason)
            discard = command.reason is DisconnectReason.SLOW_READER
            line.outbox.close(command.code, discard=discard)
        return ()
