"""uvicorn's WebSocket protocol, with two ends that ASGI has no words for.

*Cut.* A close waits until everything written before it was read. A client that never reads, or a
dead path with data on the way, would hold its connection until TCP gives up.

*Farewell.* After a close uvicorn drops what the client had sent before it saw that close. A client
that is sent to another replica in the middle of its work must not lose those messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from websockets.http11 import Request

__all__ = ["SignalingProtocol", "abort_of", "farewell_of"]

_ABORT: Final = "poolhouse.abort"
_FAREWELL: Final = "poolhouse.farewell"


class SignalingProtocol(WebSocketsSansIOProtocol):
    """The sans-I/O backend; applications find both ends in the scope's extensions."""

    def handle_connect(self, event: Request) -> None:
        """Begin the handshake. The application's task starts after this returns."""
        super().handle_connect(event)
        scope = getattr(self, "scope", None)  # a refused handshake has none
        if scope is not None:
            scope["extensions"][_ABORT] = self.transport.abort
            scope["extensions"][_FAREWELL] = self.farewell

    def farewell(self, code: int) -> None:
        """Write a close frame and go on reading: the answer to it ends the connection."""
        self.stop_keepalive()
        if self.conn.state is State.OPEN:
            self.conn.send_close(code)
            self.transport.write(b"".join(self.conn.data_to_send()))

    def shutdown(self) -> None:
        """Close for the end of the server. uvicorn would say goodbye a second time."""
        if self.handshake_complete and not self.close_sent and self.conn.state is not State.OPEN:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1012})
            self.transport.close()
        else:
            super().shutdown()

    def keepalive_timeout(self) -> None:
        """Cut the connection: who does not answer pings will not read a close either."""
        super().keepalive_timeout()
        self.transport.abort()


def abort_of(scope: Mapping[str, Any]) -> Callable[[], None]:
    """Return what cuts the scope's connection; under another server, something that does not."""
    abort: Callable[[], None] = (scope.get("extensions") or {}).get(_ABORT, _nothing)
    return abort


def farewell_of(scope: Mapping[str, Any]) -> Callable[[int], None] | None:
    """Return what closes the scope's connection softly; None under another server."""
    return (scope.get("extensions") or {}).get(_FAREWELL)


def _nothing() -> None:
    return
