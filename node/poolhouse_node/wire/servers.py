"""Addresses of signaling servers (liveness, section 12)."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["CLOUD", "SignalServer", "parse_server"]

_SCHEMES = {"ws": False, "http": False, "wss": True, "https": True}
_URL = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<rest>.*)\Z", re.DOTALL)
_ADDRESS = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[A-Za-z0-9._~/%-]*)?\Z"
)
_LONGEST_SPEC = 512


@dataclass(frozen=True, slots=True)
class SignalServer:
    """Where a device registers and finds others."""

    spec: str
    """The canonical form, for links and settings; reading it again gives the same server."""
    label: str
    """For people: host, and the port when it is not the usual one."""
    host: str
    """A name or address; IPv6 in brackets."""
    port: int
    path: str
    """Begins and ends with ``/``."""
    secure: bool


CLOUD = SignalServer("cloud", "0.peerjs.com", "0.peerjs.com", 443, "/", secure=True)
"""The public server that PeerJS uses when it is told nothing."""


def parse_server(spec: str, *, page_secure: bool) -> SignalServer | None:
    """Read ``cloud``, ``host``, ``host:port``, ``host:port/path`` or a URL; ``None`` for others.

    A bare host is secure when ``page_secure`` (the page, or the control plane, is). The port is
    443 unless given; 80 for ``ws`` and ``http``.
    """
    spec = spec.strip()
    if spec in {"cloud", CLOUD.host}:
        return CLOUD
    url = _URL.match(spec) if 0 < len(spec) <= _LONGEST_SPEC else None
    address = _ADDRESS.match(url["rest"]) if url else None
    if url is None or address is None:
        return None
    scheme = url["scheme"]
    if scheme is None:
        return _server(address, spec.rstrip("/"), secure=page_secure, usual_port=443)
    secure = _SCHEMES.get(scheme.lower())
    if secure is None:
        return None
    return _server(address, None, secure=secure, usual_port=443 if secure else 80)


def _server(
    address: re.Match[str], spec: str | None, *, secure: bool, usual_port: int
) -> SignalServer | None:
    host, path = address["host"].lower(), f"{(address['path'] or '').rstrip('/')}/"
    port = int(address["port"] or usual_port)
    if not 1 <= port <= 65535:
        return None
    full = f"{'wss' if secure else 'ws'}://{host}:{port}{path.rstrip('/')}"
    label = host if port == (443 if secure else 80) else f"{host}:{port}"
    return SignalServer(spec or full, label, host, port, path, secure)
