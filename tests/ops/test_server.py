"""The port of metrics and health: what it answers, and what it does to those who ask oddly."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter

from poolhouse_node.ops import server
from poolhouse_node.ops.server import Bound, CannotListen, serve_metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def serving(*, is_ready: bool = True) -> AsyncIterator[Bound]:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    served = serve_metrics(registry, lambda: is_ready, host="127.0.0.1", port=0)
    async with served as bound:
        yield bound


async def ask(bound: Bound, path: str, **options) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        method = options.pop("method", "GET")
        url = f"http://{bound.host}:{bound.port}{path}"
        return await client.request(method, url, **options)


async def speak(bound: Bound, data: bytes, *, ends: bool = True) -> bytes:
    """What comes back for these bytes, until the other side closes."""
    reader, writer = await asyncio.open_connection(bound.host, bound.port)
    try:
        writer.write(data)
        if ends:
            writer.write_eof()
        return await reader.read()
    finally:
        await end(writer)


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_metrics_are_text_by_default():
    async with serving() as bound:
        answer = await ask(bound, "/metrics")
    assert answer.status_code == 200
    assert "things_total 3.0\n" in answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_openmetrics_where_a_scraper_wants_it():
    async with serving() as bound:
        wanted = {"accept": "application/openmetrics-text;version=1.0.0"}
        answer = await ask(bound, "/metrics?x=1", headers=wanted)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("path", "is_ready", "status"),
    [
        ("/livez", False, 200),
        ("/readyz", True, 200),
        ("/readyz", False, 503),
        ("/", True, 404),
        ("/metrics/..", True, 404),
    ],
)
async def test_paths(path, is_ready, status):
    async with serving(is_ready=is_ready) as bound:
        assert (await ask(bound, path)).status_code == status


async def test_nothing_can_be_posted():
    async with serving() as bound:
        assert (await ask(bound, "/metrics", method="POST", content=b"x" * 100)).status_code == 405


async def test_a_head_has_no_body():
    async with serving() as bound:
        answer = await ask(bound, "/metrics", method="HEAD")
    assert answer.content == b""
    assert int(answer.headers["content-length"]) > 0


async def test_a_connection_takes_one_request_after_the_other():
    request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
    async with serving() as bound:
        answer = await speak(bound, request + request)
    assert answer.count(b"HTTP/1.1 200 ") == 2


async def test_what_is_no_http_is_refused():
    async with serving() as bound:
        assert (await speak(bound, b"\x16\x03\x01\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_a_head_that_does_not_end_is_refused():
    async with serving() as bound:
        answer = await speak(bound, b"GET / HTTP/1.1\r\nx: " + b"a" * 20_000)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))


async def test_who_says_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(server, "_REQUEST_S", 0.05)
    async with serving() as bound:
        assert await speak(bound, b"GET /metrics HT", ends=False) == b""


async def test_too_many_connections_are_turned_away(monkeypatch):
    monkeypatch.setattr(server, "_CONNECTIONS_MAX", 1)
    request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
    async with serving() as bound:
        reader, first = await asyncio.open_connection(bound.host, bound.port)
        first.write(request)
        await reader.readuntil(b"ok")
        try:
            assert await speak(bound, request, ends=False) == b""
        except ConnectionError:
            pass  # its request was not even read
        finally:
            await end(first)


async def test_open_connections_do_not_hold_up_the_end():
    async with asyncio.timeout(5):
        async with serving() as bound:
            reader, writer = await asyncio.open_connection(bound.host, bound.port)
        assert await reader.read() == b""
        await end(writer)


async def test_a_port_that_is_taken_is_a_sentence():
    async with serving() as bound:
        taken = serve_metrics(CollectorRegistry(), lambda: True, host=bound.host, port=bound.port)
        with pytest.raises(CannotListen, match="--metrics-port"):
            async with taken:
                pass


def test_an_address_of_version_6_is_bracketed():
    assert Bound("::1", 9100).url == "http://[::1]:9100/metrics"


@given(st.lists(st.binary(max_size=200), max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_bytes_end_in_an_answer_or_an_end(pieces):
    async def main() -> None:
        async with serving() as bound:
            answer = await speak(bound, b"".join(pieces))
            assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
            assert (await ask(bound, "/livez")).text == "ok"

    asyncio.run(main())
