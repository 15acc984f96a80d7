"""One signaling socket, from its opening to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from poolhouse_control.signaling.outbox import Outbox
from poolhouse_control.signaling.tally import DisconnectReason
from poolhouse_control.signaling.transport import wire_of

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from litestar import WebSocket

    from poolhouse_control.signaling.commands import SocketId
    from poolhouse_control.signaling.limits import Limits
    from poolhouse_control.signaling.messages import ConnectParams
    from poolhouse_control.signaling.switchboard import Switchboard

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
    reader = _Reader(switchboard, socket)
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

    Most are done with at once. One that a store must be asked about holds up those behind it
    until the handler has caught up: that keeps the order between a pair of peers.
    """

    __slots__ = ("_left", "_socket", "_switchboard")

    def __init__(self, switchboard: Switchboard, socket: SocketId) -> None:
        self._switchboard = switchboard
        self._socket = socket
        self._left: Coroutine[Any, Any, None] | None = None

    def hear(self, data: str | bytes) -> bool:
        """Act on a message. False: the next one has to wait for ``catch_up``."""
        self._left = self._switchboard.frame(self._socket, data)
        return self._left is None

    async def catch_up(self) -> bool:
        """Finish the message that was left. False if none was."""
        left, self._left = self._left, None
        if left is None:
            return False
        await left
        return True

    def drop(self) -> None:
        """Leave it unfinished."""
        if self._left is not None:
            self._left.close()
