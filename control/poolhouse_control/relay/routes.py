"""``POST /api/turn`` (relay credentials, 2)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from litestar import Request, Response, Router, route
from litestar.enums import HttpMethod, MediaType
from litestar.exceptions import HTTPException

from poolhouse_control.errors import RelayUnavailable
from poolhouse_control.relay.origins import host_of, is_allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_control.ops.metrics import RelayMetrics
    from poolhouse_control.relay.providers import Provider
    from poolhouse_control.settings import TurnSettings

__all__ = ["TURN_PATH", "TurnAnswer", "TurnDesk", "TurnQuery", "make_router"]

TURN_PATH: Final = "/api/turn"
_MAX_BODY_BYTES: Final = 4096
_MAX_DEVICE_CHARS: Final = 256
_ALWAYS: Final = {
    "Cache-Control": "no-store",
    "Vary": "Origin",
    "X-Content-Type-Options": "nosniff",
}


class TurnQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as far as it matters."""

    method: str
    origin: str | None
    host: str
    """The ``Host`` header: what the page's own address would be."""
    device: str | None = None


class TurnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. ``body`` None means empty."""

    status: int
    headers: dict[str, str]
    body: Any = None


class _Body(msgspec.Struct):
    device: str | None = None


class TurnDesk:
    """Decides, in the order of the page's table, who gets relay credentials."""

    def __init__(
        self,
        settings: TurnSettings,
        provider: Provider | None,
        metrics: RelayMetrics,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._own_host = host_of(settings.public_url)
        self._listed = settings.allowed_origins
        self._provider = provider
        self._metrics = metrics
        self._clock = clock

    async def answer(self, query: TurnQuery) -> TurnAnswer:
        """Answer one request. Never raises; never tells a secret."""
        if query.method not in ("POST", "OPTIONS"):
            return _refusal(405, "POST only", {"Allow": "POST, OPTIONS"})
        own_host = self._own_host or query.host
        if not is_allowed(query.origin, own_host=own_host, listed=self._listed):
            if query.method == "POST":
                self._metrics.credentials["origin"].inc()
            return _refusal(403, "origin not allowed")
        cors = _cors(query.origin or "")
        if query.method == "OPTIONS":
            return TurnAnswer(status=204, headers=_ALWAYS | cors)
        if self._provider is None:
            self._metrics.credentials["not_configured"].inc()
            return TurnAnswer(status=204, headers=_ALWAYS | cors)
        # A limit per address belongs here: refused origins and no provider do not count.
        return await self._grant(self._provider, query, cors)

    async def _grant(
        self, provider: Provider, query: TurnQuery, cors: dict[str, str]
    ) -> TurnAnswer:
        try:
            grant = await provider.grant(now_s=self._clock(), device=query.device)
        except RelayUnavailable:
            self._metrics.credentials["upstream_error"].inc()
            return _refusal(502, "relay credentials unavailable", cors)
        self._metrics.credentials["issued"].inc()
        return TurnAnswer(status=200, headers=_ALWAYS | cors, body=grant)


def make_router(desk: TurnDesk) -> Router:
    """Build the route. It takes every method itself: a 405 must carry our headers."""

    @route(TURN_PATH, http_method=list(HttpMethod), status_code=200)
    async def turn(request: Request[Any, Any, Any]) -> Response[Any]:
        answer = await desk.answer(
            TurnQuery(
                method=request.method,
                origin=request.headers.get("origin"),
                host=request.headers.get("host", ""),
                device=await _device(request),
            )
        )
        content = b"" if answer.body is None else msgspec.json.encode(answer.body)
        media_type = MediaType.JSON if content else None
        return Response(
            content, status_code=answer.status, headers=answer.headers, media_type=media_type
        )

    return Router(path="/", route_handlers=[turn])


async def _device(request: Request[Any, Any, Any]) -> str | None:
    """Read the optional label. A body that is not ours is no reason to refuse a relay."""
    if request.method != "POST" or not _has_small_body(request):
        return None
    try:
        body = msgspec.json.decode(await request.body(), type=_Body)
    except (msgspec.DecodeError, RecursionError, HTTPException):
        return None
    return body.device[:_MAX_DEVICE_CHARS] if body.device else None


def _has_small_body(request: Request[Any, Any, Any]) -> bool:
    length = request.headers.get("content-length", "")
    return length.isdecimal() and 0 < int(length) <= _MAX_BODY_BYTES


def _cors(origin: str) -> dict[str, str]:
    return {
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Max-Age": "600",
    }


def _refusal(status: int, error: str, headers: dict[str, str] | None = None) -> TurnAnswer:
    return TurnAnswer(status=status, headers=_ALWAYS | (headers or {}), body={"error": error})
