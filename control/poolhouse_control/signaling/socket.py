"""One signaling socket, from its opening to its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from poolhouse_control.signaling.outbox import Outbox
from poolhouse_control.signaling.switchboard import Posted
from poolhouse_control.signaling.tally import DisconnectReason
from poolhouse_control.signaling.transport import Heard, wire_of

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from litestar import WebSocket

    from poolhouse_control.signaling.commands import SocketId
    from poolhouse_control.signaling.limits import Limits
    from poolhouse_control.signaling.messages import ConnectParams
    from poolhouse_control.signaling.switchboard import Switchboard
    from poolhouse_control.signaling.transport import SignalingProtocol

__all__ = ["serve_socket"]

_REASONS: Final = {1009: DisconnectReason.TOO_BIG, 1012: DisconnectReason.SHUTDOWN}


async def serve_socket(
    websocket: WebSocket[Any, Any, Any],
    switchboard: Switchboard,
    params: ConnectParams,
    limits: Limits,
) -> None:
    """Serve one client until its socket ends, whoever ends it."""
    await websocket.accept()
    wire = wire_of(websocket.scope)
    outbox = Outbox(limits, wire)
    socket = switchboard.attach(outbox)
    reason = DisconnectReason.PEER
    reader = _Reader(switchboard, socket, wire)
    try:
        await switchboard.connect(socket, params)
        wire.listen(reader.hear, outbox.drain)
        while (event := await websocket.receive())["type"] != "websocket.disconnect":
            await reader.catch_up()
            wire.go_on()
        while await reader.catch_up():  # what came before the end counts
            wire.go_on()
        reason = _REASONS.get(event["code"], DisconnectReason.PEER)
    finally:
        reader.drop()
        await switchboard.closed(socket, reason)


class _Reader:
    """Hears a socket's messages one after another.

    Most are done with at once. One that was posted to another replica holds up those behind it
    until that replica has it, and one that a store must be asked about until the handler has
    caught up: that keeps the order between a pair of peers.
    """

    __slots__ = ("_arrival", "_dropped", "_left", "_posted", "_socket", "_switchboard", "_wire")

    def __init__(self, switchboard: Switchboard, socket: SocketId, wire: SignalingProtocol) -> None:
        self._switchboard = switchboard
        self._socket = socket
        self._wire = wire
        self._left: Coroutine[Any, Any, None] | None = None
        self._posted = False
        self._arrival: asyncio.Future[None] | None = None
        """Set while the handler itself waits for what was posted."""
        self._dropped = False

    def hear(self, data: str | bytes) -> Heard:
        """Act on a message."""
        left = self._switchboard.frame(self._socket, data, self._arrived)
        if left is None:
            return Heard.DONE
        if isinstance(left, Posted):
            self._posted = True
            return Heard.UNDER_WAY
        self._left = left
        return Heard.LEFT

    def _arrived(self, left: Coroutine[Any, Any, None] | None) -> None:
        """Hear what became of what was posted."""
        self._posted, self._left = False, left
        if self._dropped:
            self.drop()
        elif self._arrival is not None:
            self._arrival.set_result(None)
        elif left is None:
            self._wire.go_on()
        else:
            self._wire.wake()

    async def catch_up(self) -> bool:
        """Finish the message that was posted or left. False if none was."""
        was_posted = self._posted
        if was_posted:
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
            self._arrival = None
        left, self._left = self._left, None
        if left is not None:
            await left
        return was_posted or left is not None

    def drop(self) -> None:
        """Leave it unfinished."""
        self._dropped = True
        if self._left is not None:
            self._left.close()
