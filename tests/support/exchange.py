"""The hub with a memory store and a clock that a test moves: no loop, no sockets."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

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
from poolhouse_control.signaling.hub import Hub
from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.messages import ConnectParams
from poolhouse_control.signaling.presence_memory import MemoryPresence
from poolhouse_control.signaling.tally import DisconnectReason

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Exchange", "run_now"]


def run_now[Value](coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise AssertionError("the coroutine waited")


class Exchange:
    """Speak as sockets; read what each got (``heard``) and how it was closed (``codes``)."""

    def __init__(self, limits: Limits | None = None, *, key: str = "peerjs", **hub: Any) -> None:
        self.limits = limits or Limits()
        self.hub = Hub(self.limits, key=key, **hub)
        self.presence = MemoryPresence(self.limits)
        self.now = 1000.0
        self.inbox: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
        self.texts: defaultdict[int, list[str]] = defaultdict(list)
        self.codes: dict[int, int] = {}
        self._last = 0

    def connect(
        self,
        peer_id: str,
        token: str = "t",
        *,
        key: str = "peerjs",
        origin: str | None = None,
    ) -> int:
        """Open a socket and let it ask for an id."""
        self._last += 1
        socket = SocketId(self._last)
        params = ConnectParams(key=key, peer_id=peer_id, token=token, origin=origin)
        self.perform(self.hub.connect(socket, params))
        return socket

    def say(self, socket: int, frame: Any) -> None:
        """Send a frame: bytes and text as they are, anything else as JSON."""
        data = frame if isinstance(frame, str | bytes) else json.dumps(frame)
        self.perform(self.hub.frame(SocketId(socket), data, self.now))

    def offer(self, socket: int, dst: str, payload: Any = "p") -> None:
        """Send an OFFER."""
        self.say(socket, {"type": "OFFER", "dst": dst, "payload": payload})

    def hang_up(self, socket: int) -> None:
        """End a socket from the client's side."""
        self.perform(self.hub.closed(SocketId(socket), DisconnectReason.PEER))

    def advance(self, seconds: float, *, sweep: bool = True) -> None:
        """Move the clock, then sweep."""
        self.now += seconds
        if sweep:
            self.perform(self.hub.tick(self.now))

    def heard(self, socket: int) -> list[dict[str, Any]]:
        """Take what the socket got since the last call."""
        return self.inbox.pop(socket, [])

    def perform(self, commands: Commands) -> None:
        """Do what the hub says, as the switchboard does."""
        for command in commands:
            match command:
                case Send(socket=socket, text=text):
                    assert socket not in self.codes, "wrote to a closed socket"
                    self.texts[socket].append(text)
                    self.inbox[socket].append(json.loads(text))
                case Close(socket=socket, code=code):
                    assert socket not in self.codes, "closed twice"
                    self.codes[socket] = code
                case Claim():
                    claim = run_now(self.presence.claim(command.peer_id, command.token))
                    self.perform(self.hub.claimed(command, claim, self.now))
                case Release():
                    assert run_now(self.presence.release(command.peer_id, command.epoch))
                case Route(parcel=parcel, may_wait=may_wait, hop=hop):
                    routed = run_now(
                        self.presence.route(parcel, self.now, may_wait=may_wait, hop=hop)
                    )
                    self.perform(self.hub.routed(command, routed, self.now))
                case Expire():
                    still = run_now(self.presence.expire(command.peer_id, command.senders))
                    self.perform(self.hub.expired(command, still))
