"""uvicorn's WebSocket protocol, with a way to cut a connection that does not read.

ASGI can ask for a close, which waits until everything written before it was read. A client that
never reads, or a dead path with data on the way, would hold its connection until TCP gives up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from websockets.http11 import Request

__all__ = ["SignalingProtocol", "abort_of"]

_EXTENSION: Final = "poolhouse.abort"


class SignalingProtocol(WebSocketsSansIOProtocol):
    """The sans-I/O backend; applications find the cut in the scope's extensions."""

    def handle_connect(self, event: Request) -> None:
        """Begin the handshake. The application's task starts after this returns."""
        super().handle_connect(event)
        scope = getattr(self, "scope", None)  # a refused handshake has none
        if scope is not None:
            scope["extensions"][_EXTENSION] = self.transport.abort

    def keepalive_timeout(self) -> None:
        """Cut the connection: who does not answer pings will not read a close either."""
        super().keepalive_timeout()
        self.transport.abort()


def abort_of(scope: Mapping[str, Any]) -> Callable[[], None]:
    """Return what cuts the scope's connection; under another server, something that does not."""
    abort: Callable[[], None] = (scope.get("extensions") or {}).get(_EXTENSION, _nothing)
    return abort


def _nothing() -> None:
    return
