"""One signaling socket: a reader loop, and a writer task that alone writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from litestar.exceptions import WebSocketDisconnect

from poolhouse_control.signaling.outbox import Outbox
from poolhouse_control.signaling.tally import DisconnectReason
from poolhouse_control.signaling.transport import abort_of, farewell_of

if TYPE_CHECKING:
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
    outbox = Outbox(limits, abort_of(websocket.scope))
    socket = switchboard.attach(outbox)
    reason = DisconnectReason.PEER
    try:
        async with asyncio.TaskGroup() as tasks:
            writer = tasks.create_task(_write(_Wire(websocket), outbox))
            await switchboard.connect(socket, params)
            reason = await _read(websocket, switchboard, socket)
            writer.cancel()
    finally:
        await switchboard.closed(socket, reason)


async def _read(
    websocket: WebSocket[Any, Any, Any], switchboard: Switchboard, socket: SocketId
) -> DisconnectReason:
    while True:
        event = await websocket.receive()
        if event["type"] == "websocket.disconnect":
            return _REASONS.get(event["code"], DisconnectReason.PEER)
        if event["type"] == "websocket.receive":
            text = event.get("text")
            await switchboard.frame(socket, text if text is not None else event["bytes"] or b"")


class _Wire:
    """The sending half of a socket, as the outbox wants it."""

    def __init__(self, websocket: WebSocket[Any, Any, Any]) -> None:
        self.send_text = websocket.send_text
        self.close = websocket.close
        self._farewell = farewell_of(websocket.scope)

    async def farewell(self, code: int) -> None:
        """Close, and hear the client out."""
        if self._farewell is None:
            await self.close(code)
        else:
            self._farewell(code)


async def _write(wire: _Wire, outbox: Outbox) -> None:
    try:
        await outbox.write_to(wire)
    except (WebSocketDisconnect, OSError, RuntimeError):
        # The socket ended under the writer's hands; what uvicorn raises depends on how. The
        # reader hears of it too and ends the handler.
        return
