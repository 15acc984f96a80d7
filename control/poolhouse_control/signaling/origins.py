"""Which web pages may use signaling, and the CORS headers that tell browsers so.

Pages are told apart by their ``Origin``. An empty list allows every page, as the reference
server does. Browsers do not apply CORS to WebSockets, so the socket checks the list itself
(signaling, 1.1).
"""

from __future__ import annotations

__all__ = ["cors_headers", "is_listed"]

_VARY = (b"vary", b"Origin")
_VARY_PREFLIGHT = (b"vary", b"Origin, Access-Control-Request-Headers")
_METHODS = (b"access-control-allow-methods", b"GET,HEAD,PUT,PATCH,POST,DELETE")


def is_listed(origin: str | None, allowed: tuple[str, ...]) -> bool:
    """Tell whether ``origin`` may connect. Programs that are not browsers send none and may."""
    return not allowed or origin is None or origin.lower() in allowed


def cors_headers(
    origin: str | None, allowed: tuple[str, ...], *, preflight: bool = False
) -> list[tuple[bytes, bytes]]:
    """Headers for an HTTP answer, also for an error: the client reads its status (1.1)."""
    headers = [_VARY_PREFLIGHT, _METHODS] if preflight else [_VARY]
    if origin and is_listed(origin, allowed):
        headers.append((b"access-control-allow-origin", origin.encode("latin-1", "replace")))
    return headers
