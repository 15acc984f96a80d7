"""Wires the relay desk: providers, limits, the health of relay hosts, and the route."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol

from poolhouse_control.errors import SettingsError
from poolhouse_control.relay import ice
from poolhouse_control.relay.clients import ClientAddresses
from poolhouse_control.relay.desk import TurnDesk
from poolhouse_control.relay.health import RelayHealth
from poolhouse_control.relay.limiter import MemoryLimiter
from poolhouse_control.relay.providers import Chain, make_providers
from poolhouse_control.relay.rotation import issuer_key
from poolhouse_control.relay.routes import make_router
from poolhouse_control.relay.secrets import PolledSecret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx
    from litestar import Router
    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.ops.metrics import RelayMetrics
    from poolhouse_control.relay.limiter import Limiter
    from poolhouse_control.relay.proofs import Registrations
    from poolhouse_control.settings import Settings

__all__ = ["RelayService", "make_relay"]

_DEADLINE_S: Final = 0.5


class RelayService:
    """The relay part of a control plane. Its router answers while ``running`` is open."""

    def __init__(self, router: Router, health: RelayHealth, *closing: _Closing) -> None:
        self.router = router
        self.health = health
        self._closing = closing

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probe relay hosts, and keep connections to providers and stores."""
        async with AsyncExitStack() as stack:
            for each in self._closing:
                stack.push_async_callback(each.close)
            await stack.enter_async_context(self.health.running())
            yield


def make_relay(
    settings: Settings,
    log: FilteringBoundLogger,
    metrics: RelayMetrics,
    *,
    registrations: Registrations,
    limiter: Limiter | None = None,
) -> RelayService:
    """Build the relay part; nothing is connected yet. Without ``limiter`` it counts for itself.

    Raises:
        SettingsError: the fixed list of ICE servers is no JSON, or a realm is missing.
    """
    store = _SecretStore(settings) if settings.turn_secret_redis_url else None
    urls = ice.relay_urls(settings.turn_urls, settings.turn_host)
    health = RelayHealth(urls, log, every_s=settings.turn_probe_every_s)
    metrics.watch_hosts(health)
    http = _Http()
    providers = make_providers(
        settings,
        client=http.client,
        urls=health.choose,
        secret=store.source if store is not None else None,
        seconds=metrics.upstream_seconds,
    )
    desk = TurnDesk(
        settings,
        Chain(providers, log) if providers else None,
        metrics,
        limiter=limiter or MemoryLimiter(settings.turn_rate),
        registrations=registrations,
    )
    router = make_router(desk, ClientAddresses(settings.trusted_proxies))
    return RelayService(router, health, *(each for each in (http, store) if each))


class _Closing(Protocol):
    async def close(self) -> None: ...


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


class _SecretStore:
    """The Redis where the newest secret of coturn is."""

    def __init__(self, settings: Settings) -> None:
        from redis.asyncio import Redis

        if not settings.turn_realm:
            raise SettingsError("POOLHOUSE_TURN_REALM is missing: secrets in Redis are by realm.")
        self._client: Redis = Redis.from_url(
            settings.turn_secret_redis_url,
            socket_timeout=_DEADLINE_S,
            socket_connect_timeout=_DEADLINE_S,
        )
        self._key = issuer_key(settings.turn_realm)
        self.source = PolledSecret(self._fetch)

    async def _fetch(self) -> str | None:
        newest = await self._client.lindex(self._key, 0)
        return newest.decode() if isinstance(newest, bytes) else None

    async def close(self) -> None:
        await self._client.aclose()
