"""``/api/turn`` on the real server: what HTTP adds to the desk's answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.control import running_control

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COTURN = {"TURN_SECRET": "sesame", "TURN_HOST": "relay.example.org"}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


async def test_a_headless_client_sends_the_servers_own_origin(http: httpx.AsyncClient) -> None:
    """Decision 16."""
    async with running_control(COTURN) as control:
        url = control.signal_url + "api/turn"
        answer = await http.post(url, headers={"origin": control.origin})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["vary"] == "Origin"
    assert answer.headers["access-control-allow-origin"] == control.origin
    body = answer.json()
    assert body["provider"] == "coturn"
    assert body["ttl"] == 21_600
    assert body["iceServers"][0]["username"] == f"{body['expiresAt']}:pooled"
    assert "sesame" not in answer.text + str(answer.headers) + control.log.getvalue()
    assert body["iceServers"][0]["credential"] not in control.log.getvalue()


async def test_without_a_provider_there_is_nothing(http: httpx.AsyncClient) -> None:
    async with running_control() as control:
        url = control.signal_url + "api/turn"
        answer = await http.post(url, headers={"origin": control.origin})
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-type" not in answer.headers


async def test_a_stranger_is_refused(http: httpx.AsyncClient) -> None:
    async with running_control(COTURN) as control:
        url = control.signal_url + "api/turn"
        answer = await http.post(url, headers={"origin": "https://evil.example"})
        bare = await http.post(url)
    for refusal in (answer, bare):
        assert refusal.status_code == 403
        assert refusal.json() == {"error": "origin not allowed"}
        assert refusal.headers["content-type"] == "application/json"
        assert "access-control-allow-origin" not in refusal.headers


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "TRACE"])
async def test_other_methods(http: httpx.AsyncClient, method: str) -> None:
    async with running_control(COTURN) as control:
        answer = await http.request(
            method, control.signal_url + "api/turn", headers={"origin": control.origin}
        )
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST, OPTIONS"
    assert "access-control-allow-origin" not in answer.headers
    if method != "HEAD":
        assert answer.json() == {"error": "POST only"}


async def test_preflight(http: httpx.AsyncClient) -> None:
    async with running_control(COTURN) as control:
        answer = await http.options(
            control.signal_url + "api/turn", headers={"origin": control.origin}
        )
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-methods"] == "POST"
    assert answer.headers["access-control-max-age"] == "600"


@pytest.mark.parametrize(
    ("body", "labelled"),
    [
        (b'{"device":"laptop"}', True),
        (b'{"device":"laptop","x":1}', True),
        (b"", False),
        (b"{}", False),
        (b'{"device":""}', False),
        (b'{"device":5}', False),
        (b"\xff\x00", False),
        (b"[" * 4000, False),
        (json.dumps({"device": "x" * 5000}).encode(), False),
    ],
    ids=["device", "more", "none", "empty", "blank", "number", "noise", "deep", "huge"],
)
async def test_a_body_labels_or_is_ignored(
    http: httpx.AsyncClient, body: bytes, labelled: bool
) -> None:
    async with running_control(COTURN) as control:
        answer = await http.post(
            control.signal_url + "api/turn", content=body, headers={"origin": control.origin}
        )
    assert answer.status_code == 200
    username = answer.json()["iceServers"][0]["username"]
    assert (not username.endswith(":pooled")) is labelled
