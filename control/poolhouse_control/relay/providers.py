"""Who gives relay credentials: a hosted API, a coturn that shares a secret with us, or a list.

A provider raises ``RelayUnavailable`` when it is configured but has nothing usable to give.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from poolhouse_control.errors import RelayUnavailable, SettingsError
from poolhouse_control.relay import credentials, ice
from poolhouse_control.relay.cloudflare import fetch_ice_servers
from poolhouse_control.relay.ice import IceServer
from poolhouse_control.relay.secrets import FileSecret, FixedSecret

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import httpx
    from prometheus_client import Histogram
    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.relay.secrets import SecretSource
    from poolhouse_control.settings import Settings

__all__ = ["Chain", "Cloudflare", "Coturn", "FixedList", "Provider", "RelayGrant", "make_providers"]

_COOLING_S: Final = 30.0


class RelayGrant(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a 200: names as on the wire."""

    ice_servers: tuple[IceServer, ...]
    ttl: int
    """Seconds."""
    provider: str
    expires_at: int
    """Unix seconds."""


class Provider(Protocol):
    """A source of relay credentials."""

    @property
    def name(self) -> str:
        """As on the wire."""
        ...

    async def grant(self, *, now_s: float, device: str | None) -> RelayGrant:
        """Make credentials for one device. ``now_s`` is Unix time.

        Raises:
            RelayUnavailable: there are none to give.
        """
        ...


class Coturn:
    """coturn with ``use-auth-secret``: credentials are computed here, coturn is not asked."""

    name = "coturn"

    def __init__(
        self, secret: SecretSource, urls: Callable[[], tuple[str, ...]], *, ttl_s: int
    ) -> None:
        self._secret = secret
        self._urls = urls
        self._ttl_s = ttl_s

    async def grant(self, *, now_s: float, device: str | None) -> RelayGrant:
        """Make credentials for one device. ``now_s`` is Unix time."""
        urls = self._urls()
        if not urls:
            raise RelayUnavailable("None of the configured relay addresses can be used.")
        secret = await self._secret.newest()
        label = credentials.DEFAULT_LABEL
        if device is not None:
            label = credentials.device_label(secret, device)
        issued = credentials.issue(secret, ttl_s=self._ttl_s, now_s=now_s, label=label)
        server = IceServer(urls, issued.username, issued.credential)
        return RelayGrant((server,), self._ttl_s, self.name, issued.expires_at_s)


class Cloudflare:
    """Cloudflare's hosted relay: its API makes the credentials."""

    name = "cloudflare"

    def __init__(
        self,
        client: Callable[[], httpx.AsyncClient],
        *,
        api_url: str,
        key_id: str,
        token: str,
        ttl_s: int,
        seconds: Histogram | None = None,
    ) -> None:
        self._client = client
        self._url = f"{api_url}/v1/turn/keys/{key_id}/credentials/generate-ice-servers"
        self._token = token
        self._ttl_s = ttl_s
        self._seconds = seconds

    async def grant(self, *, now_s: float, device: str | None) -> RelayGrant:
        """Ask for credentials. ``now_s`` is Unix time."""
        began_at = time.perf_counter()
        try:
            servers = await fetch_ice_servers(
                self._client(), self._url, token=self._token, ttl_s=self._ttl_s
            )
        finally:
            if self._seconds is not None:
                self._seconds.observe(time.perf_counter() - began_at)
        return RelayGrant(servers, self._ttl_s, self.name, int(now_s) + self._ttl_s)


class FixedList:
    """ICE servers that the operator wrote down, credentials included."""

    name = "fixed"

    def __init__(self, servers: tuple[IceServer, ...], *, ttl_s: int) -> None:
        self._servers = servers
        self._ttl_s = ttl_s

    async def grant(self, *, now_s: float, device: str | None) -> RelayGrant:
        """Hand the list out."""
        if not ice.has_relay(self._servers):
            raise RelayUnavailable("The fixed list of ICE servers has no usable relay.")
        return RelayGrant(self._servers, self._ttl_s, self.name, int(now_s) + self._ttl_s)


class Chain:
    """Providers in order of preference; one that failed stands behind the others for a while."""

    def __init__(
        self,
        providers: Sequence[Provider],
        log: FilteringBoundLogger,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._providers = tuple(providers)
        self._log = log
        self._clock = clock
        self._cooling_until: dict[str, float] = {}

    @property
    def name(self) -> str:
        """Names of its providers, the preferred one first."""
        return ",".join(provider.name for provider in self._providers)

    async def grant(self, *, now_s: float, device: str | None) -> RelayGrant:
        """Ask one after another.

        Raises:
            RelayUnavailable: none of them has any.
        """
        for provider in sorted(self._providers, key=self._is_cooling):
            try:
                return await provider.grant(now_s=now_s, device=device)
            except RelayUnavailable as error:
                if not self._is_cooling(provider):  # one line a spell, not one a request
                    self._log.warning("relay.failed", provider=provider.name, reason=str(error))
                self._cooling_until[provider.name] = self._clock() + _COOLING_S
        raise RelayUnavailable("No relay provider has credentials to give.")

    def _is_cooling(self, provider: Provider) -> bool:
        return self._clock() < self._cooling_until.get(provider.name, 0.0)


def make_providers(
    settings: Settings,
    *,
    client: Callable[[], httpx.AsyncClient],
    urls: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda urls: urls,
    secret: SecretSource | None = None,
    seconds: Histogram | None = None,
) -> list[Provider]:
    """Make every provider that is configured, in the order of the page.

    ``urls`` puts the addresses of coturn in order by their hosts' health. ``secret`` is where
    coturn's secret comes from, if it is not in the settings.
    """
    providers: list[Provider] = []
    if settings.turn_key_id and settings.turn_key_api_token:
        providers.append(
            Cloudflare(
                client,
                api_url=settings.turn_key_api_url,
                key_id=settings.turn_key_id,
                token=settings.turn_key_api_token,
                ttl_s=settings.turn_ttl_s,
                seconds=seconds,
            )
        )
    source = secret or _secret_source(settings)
    if source is not None and (settings.turn_urls or settings.turn_host):
        usable = ice.relay_urls(settings.turn_urls, settings.turn_host)
        providers.append(Coturn(source, lambda: urls(usable), ttl_s=settings.turn_ttl_s))
    if settings.turn_ice_servers:
        servers = _fixed_list(settings.turn_ice_servers)
        providers.append(FixedList(servers, ttl_s=settings.turn_ttl_s))
    return providers


def _secret_source(settings: Settings) -> SecretSource | None:
    if not settings.turn_secrets:
        return None
    newest = settings.turn_secrets[0]
    if settings.turn_secret_file:
        return FileSecret(settings.turn_secret_file, newest)
    return FixedSecret(newest)


def _fixed_list(text: str) -> tuple[IceServer, ...]:
    try:
        return ice.clean(msgspec.json.decode(text))
    except (msgspec.DecodeError, RecursionError):
        raise SettingsError("POOLHOUSE_TURN_ICE_SERVERS must be a JSON list.") from None
