"""Who gives relay credentials: nobody, or a coturn that shares a secret with us.

A provider raises ``RelayUnavailable`` when it is configured but has nothing usable to give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from poolhouse_control.errors import RelayUnavailable
from poolhouse_control.relay import credentials

if TYPE_CHECKING:
    from poolhouse_control.settings import TurnSettings

__all__ = ["Coturn", "IceServer", "Provider", "RelayGrant", "make_provider"]


class IceServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a browser's ``iceServers``."""

    urls: tuple[str, ...]
    username: str = ""
    credential: str = ""


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

    name: str

    async def grant(self, *, now_s: float, device: str | None) -> RelayGrant:
        """Make credentials for one device. ``now_s`` is Unix time.

        Raises:
            RelayUnavailable: there are none to give.
        """
        ...


class Coturn:
    """coturn with ``use-auth-secret``: credentials are computed here, coturn is not asked."""

    name = "coturn"

    def __init__(self, secret: str, urls: tuple[str, ...], *, ttl_s: int) -> None:
        self._secret = secret
        self._urls = urls
        self._ttl_s = ttl_s

    async def grant(self, *, now_s: float, device: str | None) -> RelayGrant:
        """Make credentials for one device. ``now_s`` is Unix time."""
        if not self._urls:
            raise RelayUnavailable("None of the configured relay addresses can be used.")
        label = credentials.DEFAULT_LABEL
        if device is not None:
            label = credentials.device_label(self._secret, device)
        issued = credentials.issue(self._secret, ttl_s=self._ttl_s, now_s=now_s, label=label)
        server = IceServer(self._urls, issued.username, issued.credential)
        return RelayGrant((server,), self._ttl_s, self.name, issued.expires_at_s)


def make_provider(settings: TurnSettings) -> Provider | None:
    """Pick the first provider that is configured; None when no relay is."""
    if settings.secret and (settings.urls or settings.host):
        urls = credentials.relay_urls(settings.urls, settings.host)
        return Coturn(settings.secret, urls, ttl_s=settings.ttl_s)
    return None
