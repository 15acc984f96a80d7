"""Performs what the hub decides: writes to sockets, asks the presence store, keeps the time."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
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
from poolhouse_control.signaling.tally import ConnectOutcome, DisconnectReason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.signaling.commands import Command
    from poolhouse_control.signaling.hub import Hub
    from poolhouse_control.signaling.messages import ConnectParams
    from poolhouse_control.signaling.outbox import Outbox
    from poolhouse_control.signaling.presence import Owned, Parcel, Presence, RouteResult
    from poolhouse_control.signaling.turnstile import Turnstile

__all__ = ["Posted", "Switchboard"]

type Arrived = Callable[[Coroutine[Any, Any, None] | None], None]

_DISMISSALS_PER_S = 20
"""How often a drain closes some sockets: seldom enough to cost nothing, often enough to spread."""


class Posted(Enum):
    """Says of a frame that it is on its way to another replica."""

    POSTED = auto()


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
        turnstile: Turnstile | None = None,
        sweep_every_s: float = 0.5,
        touch_every_s: float = 180.0,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.hub = hub
        self.presence = presence
        self.is_draining = False
        self._log = log
        self._turnstile = turnstile
        self._sweep_every_s = sweep_every_s
        self._touch_every_s = touch_every_s
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._lines: dict[SocketId, _Line] = {}
        self._swept = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._numbers = itertools.count(1)

    @property
    def socket_count(self) -> int:
        """Open sockets, registered or not."""
        return len(self._lines)

    # Sockets

    def admit(self) -> int:
        """Let a socket in (0), or say after how many seconds it should come again.

        To be asked before the upgrade: a refusal there is cheap, and looks like the outage it is.
        """
        refusal: ConnectOutcome | None = None
        if self.is_draining:
            refusal = ConnectOutcome.DRAINING
        elif not self.presence.is_open:
            refusal = ConnectOutcome.STORE_DOWN
        elif self._turnstile is not None and not self._turnstile.take(self._clock()):
            refusal = ConnectOutcome.BUSY
        if refusal is None:
            return 0
        self.hub.turned_away(refusal)
        self._log.debug("socket.turned_away", reason=refusal)
        return self._rng.randint(2, 5)  # apart, so that they do not all come back at once

    def attach(self, outbox: Outbox) -> SocketId:
        """Take a new socket in. The caller must call ``closed`` when it ends."""
        socket = SocketId(next(self._numbers))
        self._lines[socket] = _Line(outbox)
        self._is_empty.clear()
        return socket

    async def connect(self, socket: SocketId, params: ConnectParams) -> None:
        """Register a socket, or refuse it with a message and a close."""
        line = self._lines[socket]
        line.peer = short_id(params.peer_id)
        await self._perform(self.hub.connect(socket, params))
        event = "socket.opened" if self.hub.is_registered(socket) else "socket.refused"
        self._log.info(event, socket=socket, peer=line.peer)

    def frame(
        self, socket: SocketId, data: str | bytes, arrived: Arrived | None = None
    ) -> Coroutine[Any, Any, None] | Posted | None:
        """Act on one frame of a socket.

        Mostly that is all. When the store has to be asked, the caller gets what is left to do
        and must await it before it brings the socket's next frame. A frame that is ``Posted``
        waits for nobody: its caller hears through ``arrived`` when it may bring the next one, and
        what it must await before that, if something is left.
        """
        began_at = self._clock()
        if self.presence.is_stale:
            return self._frame_when_sure(socket, data, began_at)
        commands = self.hub.frame(socket, data, began_at)
        left = self._perform_here(commands)
        if left:
            if arrived is not None and self._post(left, began_at, arrived):
                return Posted.POSTED
            return self._finish(left, began_at)
        if commands:
            self.hub.tally.deliver_s.observe(self._clock() - began_at)
        return None

    def _post(self, commands: Commands, began_at: float, arrived: Arrived) -> bool:
        """Post what is nothing but one parcel for a replica that is known: no task need wait."""
        command = commands[0]
        if len(commands) > 1 or not isinstance(command, Route) or command.hop:
            return False

        def answered(result: RouteResult | None) -> None:
            if result is None:  # not there any more: now the store is asked
                arrived(self._finish(commands, began_at))
                return
            now = self._clock()
            left = self._perform_here(self.hub.routed(command, result, now))
            self.hub.tally.deliver_s.observe(now - began_at)
            arrived(self._perform(left) if left else None)

        return self.presence.post(command.parcel, answered)

    async def _frame_when_sure(self, socket: SocketId, data: str | bytes, began_at: float) -> None:
        await self.presence.confirm()
        await self._finish(self.hub.frame(socket, data, began_at), began_at)

    async def _finish(self, commands: Commands, began_at: float) -> None:
        await self._perform(commands)
        self.hub.tally.deliver_s.observe(self._clock() - began_at)

    async def closed(self, socket: SocketId, reason: DisconnectReason) -> None:
        """Let a socket go."""
        line = self._lines.pop(socket)
        await self._perform(self.hub.closed(socket, reason))
        self._log.info("socket.closed", socket=socket, peer=line.peer, reason=line.cut or reason)
        if not self._lines:
            self._is_empty.set()

    # Other replicas (presence.Local)

    async def arrived(self, parcel: Parcel, hop: int) -> None:
        """Take a parcel from another replica."""
        if self.presence.is_stale:
            await self.presence.confirm()
        await self._perform(self.hub.arrived(parcel, hop))

    async def kicked(self, peer_id: str, epoch: int) -> None:
        """Another replica took an id over."""
        await self._perform(self.hub.kicked(peer_id, epoch))

    async def lost(self, owned: Sequence[Owned]) -> None:
        """Claims are void."""
        await self._perform(self.hub.lost(owned))

    # Life

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the time while the server runs, and stay in touch with other replicas."""
        async with self.presence.running(self), asyncio.TaskGroup() as tasks:
            chores = [tasks.create_task(self._sweep()), tasks.create_task(self._touch())]
            try:
                yield
            finally:
                for chore in chores:
                    chore.cancel()

    async def dismiss_all(self, spread_s: float) -> None:
        """Send every client elsewhere, in random order, evenly over ``spread_s``."""
        began_at = self._clock()
        waiting = self.hub.sockets()
        self._rng.shuffle(waiting)
        total = len(waiting)
        while waiting:
            passed = (self._clock() - began_at) / spread_s if spread_s > 0 else 1.0
            while waiting and total - len(waiting) < passed * total:
                await self._perform(self.hub.dismiss(waiting.pop()))
            if waiting:
                await asyncio.sleep(1 / _DISMISSALS_PER_S)
        for late in self.hub.sockets():  # its claim was on the way when the drain began
            await self._perform(self.hub.dismiss(late))

    async def emptied(self) -> None:
        """Wait until no socket is open."""
        await self._is_empty.wait()

    async def nothing_waits(self) -> None:
        """Wait until no message from here waits for an absent peer."""
        while self.hub.waiting_count:
            await self._swept.wait()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_every_s)
            await self._perform(self.hub.tick(self._clock()))
            self._swept.set()
            self._swept.clear()  # who waited goes on all the same

    async def _touch(self) -> None:
        while True:
            # Apart from other replicas, which may have started at the same moment.
            await asyncio.sleep(self._touch_every_s * self._rng.uniform(0.8, 1.2))
            lost = await self.presence.touch(self.hub.owned())
            await self._perform(self.hub.lost(lost))

    async def _perform(self, commands: Commands) -> None:
        while left := self._perform_here(commands):
            # What a command leads to comes before the commands that stood behind it.
            commands = [*await self._ask(left[0]), *left[1:]]

    def _perform_here(self, commands: Commands) -> Commands:
        """Perform what concerns sockets; return the rest, from the first question on."""
        for done, command in enumerate(commands):
            if isinstance(command, Send):
                follow_up = self._send(command)
                if follow_up:
                    return self._perform_here([*follow_up, *commands[done + 1 :]])
            elif isinstance(command, Close):
                self._close(command)
            else:
                return commands[done:]
        return ()

    async def _ask(self, command: Command) -> Commands:
        match command:
            case Claim():
                result = await self.presence.claim(command.peer_id, command.token)
                return self.hub.claimed(command, result, self._clock())
            case Release(peer_id=peer_id, epoch=epoch, hand_over=hand_over):
                await self.presence.release(peer_id, epoch, hand_over=hand_over)
            case Route(parcel=parcel, may_wait=may_wait, hop=hop):
                now = self._clock()
                routed = await self.presence.route(parcel, now, may_wait=may_wait, hop=hop)
                return self.hub.routed(command, routed, now)
            case Expire():
                still = await self.presence.expire(command.peer_id, command.senders)
                return self.hub.expired(command, still)
        return ()

    def _send(self, command: Send) -> Commands:
        line = self._lines.get(command.socket)
        if line is None or line.outbox.put(command.text):
            return ()
        return self.hub.overflowed(command.socket)

    def _close(self, command: Close) -> None:
        line = self._lines.get(command.socket)
        if line is None:
            return
        line.cut = command.reason
        self._log.debug("socket.closing", socket=command.socket, reason=command.reason)
        discard = command.reason is DisconnectReason.SLOW_READER
        line.outbox.close(command.code, discard=discard, hear_out=command.hear_out)
