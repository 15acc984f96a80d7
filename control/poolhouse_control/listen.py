"""Sockets to listen on, bound before any server starts: clean errors, and port 0 is known."""

from __future__ import annotations

import errno
import os
import socket

from poolhouse_control.errors import ListenError, PortInUse

__all__ = ["bind", "url_of"]


def bind(host: str, port: int, *, setting: str) -> socket.socket:
    """Bind a TCP socket. The caller closes it. ``setting`` names what chooses the port.

    Raises:
        PortInUse: another program listens there.
        ListenError: any other reason.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ListenError(host, port, f"{host!r} is not an address of this machine.") from error
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _explain(host, port, setting, error) from error
    return sock


def url_of(host: str, port: int, *, scheme: str = "http") -> str:
    """Address at which this machine reaches what listens on ``host``."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - a comparison
    name = f"[{reachable}]" if ":" in reachable else reachable
    return f"{scheme}://{name}:{port}"


def _explain(host: str, port: int, setting: str, error: OSError) -> ListenError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(host, port, setting)
    if error.errno == errno.EACCES:
        text = f"Port {port} needs rights this program does not have: choose one above 1023."
    elif error.errno == errno.EADDRNOTAVAIL:
        text = f"{host} is not an address of this machine."
    else:
        reason = os.strerror(error.errno) if error.errno else str(error)
        text = f"Cannot listen on {host} port {port}: {reason}."
    return ListenError(host, port, text)
