"""Wires the relay desk: providers, limits, the health of relay hosts, and the route."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from poolhouse_control.relay import ice
from poolhouse_control.relay.clients import ClientAddresses
from poolhouse_control.relay.desk import TurnDesk
from poolhouse_control.relay.health import RelayHealth
from poolhouse_control.relay.limiter import MemoryLimiter
from poolhouse_control.relay.providers import Chain, make_providers
from poolhouse_control.relay.routes import make_router

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx
    from litestar import Router
    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.ops.metrics import RelayMetrics
    from poolhouse_control.relay.limiter import Limiter
    from poolhouse_control.relay.proofs import Registrations
    from poolhouse_control.relay.secrets import SecretSource
    from poolhouse_control.settings import Settings

__all__ = ["RelayService", "make_relay"]


class RelayService:
    """The relay part of a control plane. Its router answers while ``running`` is open."""

    def __init__(self, router: Router, health: RelayHealth, http: _Http) -> None:
        self.router = router
        self.health = health
        self._http = http

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe relay hosts, and keep connections to a hosted provider."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._http.close)
            await stack.enter_async_context(self.health.running())
            yield


def make_relay(
    settings: Settings,
    log: FilteringBoundLogger,
    metrics: RelayMetrics,
    *,
    registrations: Registrations,
    limiter: Limiter | None = None,
    secret: SecretSource | None = None,
) -> RelayService:
    """Build the relay part. Without ``limiter`` this process counts for itself.

    Raises:
        SettingsError: the fixed list of ICE servers is no JSON.
    """
    urls = ice.relay_urls(settings.turn_urls, settings.turn_host)
    health = RelayHealth(urls, log, every_s=settings.turn_probe_every_s)
    metrics.watch_hosts(health)
    http = _Http()
    providers = make_providers(
        settings,
        client=http.client,
        urls=health.choose,
        secret=secret,
        seconds=metrics.upstream_seconds,
    )
    desk = TurnDesk(
        settings,
        Chain(providers, log) if providers else None,
        metrics,
        limiter=limiter or MemoryLimiter(settings.turn_rate),
        registrations=registrations,
    )
    return RelayService(make_router(desk, ClientAddresses(settings.trusted_proxies)), health, http)


class _Http:
    """An HTTP client that is made when somebody needs it."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None

    def client(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(follow_redirects=False)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None
