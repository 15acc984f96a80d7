"""Lists of ICE servers: which URLs a browser takes, and how a list from elsewhere is cleaned.

One malformed URL makes a browser refuse its whole configuration, so nothing unchecked goes out
(relay credentials, 2).
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

__all__ = ["IceServer", "clean", "has_relay", "is_relay", "relay_urls", "split", "usable_url"]

_URL: Final = re.compile(
    r"(?P<scheme>stun|turns?):(?P<host>[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?"
    r"(?:\?transport=(?P<transport>udp|tcp))?",
    re.IGNORECASE,
)
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+")
_BLOCKED_PORT: Final = 53
"""Browsers refuse to send to the port of DNS."""


class IceServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a browser's ``iceServers``."""

    urls: tuple[str, ...]
    username: str = ""
    credential: str = ""

    def __repr__(self) -> str:
        """Leave the password out."""
        return f"IceServer(urls={self.urls!r}, username={self.username!r})"


def usable_url(url: str) -> bool:
    """Tell whether browsers take ``url`` in a list of ICE servers."""
    return _URL.fullmatch(url) is not None


def is_relay(url: str) -> bool:
    """Tell whether a usable ``url`` is that of a relay."""
    return url[:4].lower() == "turn"


def has_relay(servers: tuple[IceServer, ...]) -> bool:
    """Tell whether any entry is a relay."""
    return any(is_relay(url) for server in servers for url in server.urls)


def split(url: str) -> tuple[str, str, int, str] | None:
    """Scheme, host (no brackets), port and transport of a URL; None if it is not usable."""
    parts = _URL.fullmatch(url)
    if parts is None:
        return None
    scheme = parts["scheme"].lower()
    secure = scheme == "turns"
    port = int(parts["port"] or (5349 if secure else 3478))
    transport = (parts["transport"] or ("tcp" if secure else "udp")).lower()
    return scheme, parts["host"].strip("[]").lower(), port, transport


def relay_urls(urls: tuple[str, ...], host: str) -> tuple[str, ...]:
    """Keep the well-formed ones of ``urls``; without any given, the usual three of ``host``."""
    if urls:
        return tuple(url for url in urls if usable_url(url))
    if not _HOST.fullmatch(host):
        return ()
    return (
        f"turn:{host}:3478?transport=udp",
        f"turn:{host}:3478?transport=tcp",
        f"turns:{host}:443?transport=tcp",
    )


def clean(servers: object) -> tuple[IceServer, ...]:
    """Keep what a browser can use of a list (or one object) that another service sent."""
    entries = servers if isinstance(servers, list) else [servers]
    cleaned = (_clean_entry(entry) for entry in entries if isinstance(entry, dict))
    return tuple(entry for entry in cleaned if entry is not None)


def _clean_entry(entry: dict[Any, Any]) -> IceServer | None:
    urls = tuple(url for url in _urls(entry) if usable_url(url) and not _is_blocked(url))
    if not any(is_relay(url) for url in urls):
        return IceServer(urls) if urls else None
    username, credential = _scalar(entry.get("username")), _scalar(entry.get("credential"))
    return IceServer(urls, username, credential) if username and credential else None


def _urls(entry: dict[Any, Any]) -> list[str]:
    found = entry.get("urls", entry.get("url"))
    listed = found if isinstance(found, list) else [found]
    return [url for url in listed if isinstance(url, str)]


def _scalar(value: object) -> str:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_plain else ""


def _is_blocked(url: str) -> bool:
    parts = _URL.fullmatch(url)
    return parts is not None and parts["port"] is not None and int(parts["port"]) == _BLOCKED_PORT
