"""The admin port: ``/metrics``, ``/livez``, ``/readyz``. No ingress should reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, Response, get
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from poolhouse_control.ops.health import Health

__all__ = ["create_admin_app"]


def create_admin_app(registry: CollectorRegistry, health: Health) -> Litestar:
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

    return Litestar([metrics, livez, readyz], openapi_config=None, logging_config=None, debug=False)


def _plain(text: str, status: int) -> Response[str]:
    headers = {"cache-control": "no-store"}
    return Response(text, status_code=status, media_type="text/plain", headers=headers)
