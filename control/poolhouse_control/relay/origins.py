"""Which pages may ask for relay credentials (relay credentials, 2, "Origin").

Bandwidth of a relay costs money, so nothing is allowed but the deployment's own pages and those
that its operator lists. Headless clients send the deployment's own origin (decision 16).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

__all__ = ["host_of", "is_allowed"]

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST: Final = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")


@lru_cache(maxsize=1024)
def is_allowed(origin: str | None, *, own_host: str, listed: tuple[str, ...] = ()) -> bool:
    """Tell whether ``origin`` is that of a page at ``own_host`` (``host[:port]``) or listed."""
    parts = _split(origin or "")
    if parts is None:
        return False
    scheme, host, port = parts
    normal = _normal(scheme, host, port)
    if any(_matches(normal, entry) for entry in listed):
        return True
    if scheme == "http" and host not in _LOOPBACK_NAMES:
        return False
    own = _split(f"{scheme}://{own_host}")
    return own is not None and _normal(*own) == normal


def host_of(url: str) -> str:
    """Return the ``host[:port]`` of an address, empty if it has none."""
    parts = _split(url)
    return _normal(*parts).partition("://")[2] if parts else ""


def _split(url: str) -> tuple[str, str, int] | None:
    """Scheme, lower-case host (IPv6 in brackets) and port; None if it is no web address."""
    if not url.isprintable() or " " in url:  # urlsplit would drop line breaks in silence
        return None
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return None
    if ":" in host:
        host = f"[{host}]"
    if parts.scheme not in _DEFAULT_PORTS or "@" in parts.netloc or not _HOST.fullmatch(host):
        return None
    return parts.scheme, host, _DEFAULT_PORTS[parts.scheme] if port is None else port


def _normal(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{host}" + ("" if port == _DEFAULT_PORTS[scheme] else f":{port}")


def _matches(origin: str, entry: str) -> bool:
    """Match whole; ``*`` stands for letters, digits and dashes, so it stays in one label."""
    pattern = "[a-z0-9-]*".join(re.escape(part) for part in entry.strip().lower().split("*"))
    return re.fullmatch(pattern, origin) is not None
