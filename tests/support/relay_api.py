"""A stand-in for a hosted API of relay credentials, on a free loopback port."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["CLOUDFLARE_ANSWER", "RelayApi", "relay_api"]

_HOST = "turn.cloudflare.com"
CLOUDFLARE_ANSWER = {
    "iceServers": [
        {"urls": ["stun:stun.cloudflare.com:3478", "stun:stun.cloudflare.com:53"]},
        {
            "urls": [
                f"turn:{_HOST}:3478?transport=udp",
                f"turn:{_HOST}:53?transport=udp",
                f"turns:{_HOST}:443?transport=tcp",
                f"turns:{_HOST}:5349?transport=tcp",
            ],
            "username": "cfuser",
            "credential": "cfcred",
        },
    ]
}


class RelayApi:
    """Answers every request with what it was told to, and remembers the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self._status = 500
        self._body = b"{}"

    def answer(self, status: int, body: Any) -> None:
        """Answer so from now on; ``body`` is bytes, or goes out as JSON."""
        self._status = status
        self._body = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            request, *lines = head.strip().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append(
                {
                    "path": request.split(" ")[1],
                    "authorization": headers.get("authorization"),
                    "body": json.loads(body),
                }
            )
            writer.write(
                f"HTTP/1.1 {self._status} X\r\nContent-Length: {len(self._body)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + self._body
            )
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def relay_api() -> AsyncIterator[RelayApi]:
    """Run one while the context is open."""
    api = RelayApi()
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    api.url = f"http://{host}:{port}"
    try:
        yield api
    finally:
        server.close()
        await server.wait_closed()
