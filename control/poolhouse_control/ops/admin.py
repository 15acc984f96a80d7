"""The admin port: metrics, health, and the drain. No ingress should reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response, get, post
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from poolhouse_control.ops.drain import Drain
    from poolhouse_control.ops.health import Health

__all__ = ["create_admin_app"]


def create_admin_app(registry: CollectorRegistry, health: Health, drain: Drain) -> Litestar:
    """Build the app of the admin port."""

    @get("/metrics", sync_to_thread=False)
    def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    @get("/livez", sync_to_thread=False)
    def livez() -> Response[str]:
        return _plain("ok", 200)

    @get("/readyz", sync_to_thread=False)
    def readyz() -> Response[str]:
        return _plain("ready", 200) if health.ready else _plain("not ready", 503)

    @post("/internal/drain", status_code=202, sync_to_thread=False)
    def begin_drain(request: Request[Any, Any, Any]) -> Response[str]:
        # Browsers send an Origin with every POST: a web page must not end a server on loopback.
        if "origin" in request.headers:
            return _plain("not for web pages", 403)
        drain.request()
        return _plain("draining", 202)

    return Litestar(
        [metrics, livez, readyz, begin_drain],
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def _plain(text: str, status: int) -> Response[str]:
    headers = {"cache-control": "no-store"}
    return Response(text, status_code=status, media_type="text/plain", headers=headers)
