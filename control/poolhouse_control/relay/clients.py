"""Whose request this is: the address that limits count by.

A header is believed only from a proxy the operator named; anybody can write one.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NOBODY", "ClientAddresses", "subject"]

NOBODY: Final = "unknown"
"""The bucket of all clients whose address cannot be told."""

_SITE_BITS: Final = 64
"""A home gets at least this much of IPv6: an address inside is free to choose."""

type _Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ClientAddresses:
    """Finds a request's client behind trusted proxies."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._trusted = tuple(ipaddress.ip_network(each) for each in trusted)
        # All requests come from a few proxies; or from anybody, when there are none.
        self._is_proxy = lru_cache(maxsize=1024)(self._trusts)

    def of(self, peer: str | None, real_ip: str | None, forwarded_for: str | None) -> str:
        """The client's address by the socket's ``peer`` and, behind a proxy, the headers.

        ``X-Real-IP`` counts first. Proxies *append* to ``X-Forwarded-For``, so its first part
        is whatever the client wrote: the last part that is not a proxy of ours counts.
        """
        if not peer:
            return NOBODY
        if not self._is_proxy(peer):
            return peer
        if real_ip:
            return real_ip.partition(",")[0].strip() or peer
        parts = [part.strip() for part in (forwarded_for or "").split(",") if part.strip()]
        for part in reversed(parts):
            if not self._is_proxy(part):
                return part
        return parts[0] if parts else peer

    def _trusts(self, text: str) -> bool:
        if not self._trusted:
            return False
        address = _parsed(text)
        return address is not None and any(address in network for network in self._trusted)


@lru_cache(maxsize=4096)
def subject(address: str) -> str:
    """Name the bucket of an address: IPv4 as it is, IPv6 by its /64, other text in one bucket."""
    parsed = _parsed(address)
    if parsed is None:
        return NOBODY
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(ipaddress.IPv6Network((int(parsed), _SITE_BITS), strict=False))


def _parsed(text: str) -> _Address | None:
    bare = text.strip()
    if bare.startswith("["):  # [::1]:443
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:  # 192.0.2.1:443
        bare = bare.partition(":")[0]
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
