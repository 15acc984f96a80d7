"""The port that tells metrics and health, over HTTP. It answers GET and HEAD, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11
from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from prometheus_client import CollectorRegistry

__all__ = ["Bound", "CannotListen", "serve_metrics"]

_REQUEST_S: Final = 10.0
"""For a request to come, for an answer to be taken: a scraper asks at once and reads at once."""
_CLOSING_S: Final = 1.0
_REQUEST_BYTES_MAX: Final = 16 * 1024
_CONNECTIONS_MAX: Final = 32
_READ_BYTES: Final = 4096


class CannotListen(Exception):
    """The port cannot be had; the text is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where it listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Address of the metrics."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"


@dataclass(frozen=True, slots=True)
class _Answer:
    status: HTTPStatus
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


@contextlib.asynccontextmanager
async def serve_metrics(
    registry: CollectorRegistry, is_ready: Callable[[], bool], *, host: str, port: int
) -> AsyncIterator[Bound]:
    """Answer ``/metrics``, ``/livez`` and ``/readyz`` while the context is open.

    Port 0 takes a free one. Raises :class:`CannotListen`.
    """
    site = _Site(registry, is_ready)
    try:
        server = await asyncio.start_server(site.connected, host, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise CannotListen(
            f"The metrics port {host}:{port} cannot be had ({why}): choose another with "
            "--metrics-port or --metrics-bind."
        ) from error
    try:
        yield Bound(host, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await site.close()


class _Site:
    """What is told, and the connections that ask for it."""

    def __init__(self, registry: CollectorRegistry, is_ready: Callable[[], bool]) -> None:
        self._registry, self._is_ready = registry, is_ready
        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client connected."""
        if len(self._tasks) >= _CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests until the client has no more, or does what it must not."""
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_REQUEST_BYTES_MAX)
        try:
            while True:
                async with asyncio.timeout(_REQUEST_S):
                    request = await _next_request(connection, reader)
                    if request is None:
                        break
                    writer.write(_encode(connection, request, self._answer(request)))
                    await writer.drain()
                if connection.our_state is not h11.DONE:  # the client wants no more
                    break
                connection.start_next_cycle()
        except h11.RemoteProtocolError as error:
            writer.write(_encode_refusal(connection, HTTPStatus(error.error_status_hint)))
        except (OSError, TimeoutError):
            pass  # it went away, or took too long
        finally:
            await _close(writer)

    def _answer(self, request: h11.Request) -> _Answer:
        if request.method not in {b"GET", b"HEAD"}:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        match request.target.partition(b"?")[0]:
            case b"/metrics":
                accepted = dict(request.headers).get(b"accept", b"").decode("latin-1")
                encode, content_type = choose_encoder(accepted)
                return _Answer(HTTPStatus.OK, encode(self._registry), content_type)
            case b"/livez":
                return _Answer(HTTPStatus.OK, b"ok")
            case b"/readyz" if self._is_ready():
                return _Answer(HTTPStatus.OK, b"ready")
            case b"/readyz":
                return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"not ready")
            case _:
                return _plain(HTTPStatus.NOT_FOUND)


async def _next_request(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> h11.Request | None:
    """The head of the next request, its body read and left; ``None`` at the end."""
    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif not isinstance(event, h11.Data):
            return None


async def _close(writer: asyncio.StreamWriter) -> None:
    """Let it take what was written, but not for long."""
    writer.close()
    try:
        async with asyncio.timeout(_CLOSING_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


def _plain(status: HTTPStatus) -> _Answer:
    return _Answer(status, status.phrase.encode())


def _encode(connection: h11.Connection, request: h11.Request, answer: _Answer) -> bytes:
    headers = [
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
        ("cache-control", "no-store"),
    ]
    head = h11.Response(
        status_code=answer.status, headers=headers, reason=answer.status.phrase.encode()
    )
    body = b"" if request.method == b"HEAD" else answer.body
    events = [head, h11.Data(data=body), h11.EndOfMessage()]
    return b"".join(connection.send(event) or b"" for event in events)


def _encode_refusal(connection: h11.Connection, status: HTTPStatus) -> bytes:
    if connection.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
        return b""
    headers = [("content-length", "0"), ("connection", "close")]
    head = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
    return b"".join(connection.send(event) or b"" for event in (head, h11.EndOfMessage()))
