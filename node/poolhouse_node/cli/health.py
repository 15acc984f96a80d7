"""``poolhouse health``: does a process here answer? For images, which have no other HTTP client."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

from poolhouse_node.cli.failures import CommandFailed

__all__ = ["DEFAULT_URL", "check_health"]

DEFAULT_URL: Final = "http://127.0.0.1:9090/readyz"
_DEADLINE_S: Final = 4.0
"""Below the five seconds that orchestrators give a probe."""
_LINE_BYTES_MAX: Final = 1024


async def check_health(url: str) -> int:
    """0 when ``url`` answers with a status of 200 to 299.

    Raises :class:`CommandFailed` when it does not answer, or says that it is not well.
    """
    host, port, path = _parts(url)
    try:
        async with asyncio.timeout(_DEADLINE_S):
            line = await _status_line(host, port, path)
    except TimeoutError:
        raise CommandFailed(f"{url} did not answer within {_DEADLINE_S:.0f} s.") from None
    except (OSError, ValueError) as error:
        raise CommandFailed(f"{url} does not answer: {error}.") from error
    words = line.decode("latin-1").split()
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].startswith("2"):
        raise CommandFailed(f"{url} is not well: it answered {' '.join(words) or 'nothing'}.")
    return 0


def _parts(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host, port = None, 0
    if host is None or parts.scheme != "http":
        raise CommandFailed(f"{url!r} is no address such as {DEFAULT_URL}.")
    return host, port, parts.path or "/"


async def _status_line(host: str, port: int, path: str) -> bytes:
    """The first line of the answer; ``ValueError`` for one that does not end."""
    reader, writer = await asyncio.open_connection(host, port, limit=_LINE_BYTES_MAX)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()
