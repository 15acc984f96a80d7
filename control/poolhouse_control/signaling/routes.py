"""The addresses of signaling (signaling, 1): card or page, id, peers and the socket."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from litestar import Request, Response, Router, WebSocket, get, route, websocket
from litestar.enums import HttpMethod, MediaType
from litestar.exceptions import NotFoundException

from poolhouse_control.signaling.messages import parse_connect_params
from poolhouse_control.signaling.origins import cors_headers
from poolhouse_control.signaling.socket import serve_socket
from poolhouse_control.site import page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from litestar.types import Message, Scope

    from poolhouse_control.settings import Settings
    from poolhouse_control.signaling.switchboard import Switchboard
    from poolhouse_control.site.page import Part

__all__ = ["SignalingCors", "make_router"]

_NO_STORE = {"cache-control": "no-store"}
_VARY_ACCEPT = {"vary": "Accept"}


def make_router(
    settings: Settings,
    switchboard: Switchboard,
    *,
    parts: Callable[[], Iterable[Part]] = tuple,
) -> Router:
    """Build the routes. HTTP of a wrong key is answered with 404, as any unknown address.

    ``parts`` says to people how the control plane is.
    """
    limits = settings.limits
    hub = switchboard.hub

    # HEAD for those who only look whether somebody is there.
    @route(
        "/", http_method=[HttpMethod.GET, HttpMethod.HEAD], status_code=200, sync_to_thread=False
    )
    def card(request: Request[Any, Any, Any]) -> Response[Any]:
        if page.wants_page(request.headers.get("accept", "")):
            url = settings.public_url or str(request.base_url).rstrip("/") + settings.path
            text = page.render(parts(), signal_url=url)
            headers = page.security_headers() | _VARY_ACCEPT
            return Response(text, media_type=MediaType.HTML, headers=headers)
        content = {
            "name": "poolhouse signaling",
            "description": "Introduces the devices of a room to each other. Speaks PeerJS.",
            "website": settings.public_url,
        }
        return Response(content, headers=_VARY_ACCEPT)

    @get(f"/{settings.key}/id", media_type=MediaType.TEXT, sync_to_thread=False)
    def new_id() -> Response[str]:
        # Not reserved: nothing is stored until its socket opens (signaling, 1.2).
        return Response(str(uuid.uuid4()), headers=_NO_STORE, media_type=MediaType.TEXT)

    @get(f"/{settings.key}/peers", sync_to_thread=False)
    def peers() -> Response[Any]:
        if not settings.allow_discovery:
            return Response({"error": "discovery is off"}, status_code=401, headers=_NO_STORE)
        return Response(hub.peer_ids(), headers=_NO_STORE)

    @route(
        ["/", f"/{settings.key}/id", f"/{settings.key}/peers"],
        http_method=[HttpMethod.OPTIONS],
        status_code=204,
        sync_to_thread=False,
    )
    def preflight() -> None:
        return

    @route("/peerjs", http_method=[HttpMethod.GET, HttpMethod.POST], sync_to_thread=False)
    def no_upgrade() -> None:
        raise NotFoundException

    # The last part of a socket's address is "peerjs" whatever the key is.
    @websocket("/peerjs")
    async def socket(socket: WebSocket[Any, Any, Any]) -> None:
        if wait_s := switchboard.admit():
            await _send_away(socket, wait_s)
            return
        params = parse_connect_params(
            socket.scope["query_string"], origin=socket.headers.get("origin")
        )
        await serve_socket(socket, switchboard, params, limits)

    return Router(
        path=settings.path,
        route_handlers=[card, new_id, peers, preflight, no_upgrade, socket],
        opt={},
    )


async def _send_away(socket: WebSocket[Any, Any, Any], wait_s: int) -> None:
    """Answer the upgrade with 503. To clients it looks like a lost connection: they come again."""
    await socket.receive()  # the request itself
    head: Any = {
        "type": "websocket.http.response.start",
        "status": 503,
        "headers": [(b"retry-after", str(wait_s).encode()), (b"cache-control", b"no-store")],
    }
    body: Any = {"type": "websocket.http.response.body", "body": b""}
    await socket.send(head)
    await socket.send(body)


class SignalingCors:
    """A ``before_send`` hook: CORS headers on every HTTP answer under the path, 404 included.

    Litestar's middleware does not see the answer to an unknown address.
    """

    def __init__(self, settings: Settings, *, except_under: str) -> None:
        self._path = settings.path
        self._origins = settings.origins
        self._except_under = except_under

    async def __call__(self, message: Message, scope: Scope) -> None:
        """Add to the head of an answer."""
        if message["type"] != "http.response.start" or not self._covers(scope["path"]):
            return
        origin = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"origin"), None)
        preflight = scope.get("method") == "OPTIONS"
        headers = cors_headers(origin, self._origins, preflight=preflight)
        message["headers"] = [*message.get("headers", ()), *headers]

    def _covers(self, path: str) -> bool:
        under = path.startswith(self._path) or path == self._path.rstrip("/")
        return under and not path.startswith(self._except_under)
