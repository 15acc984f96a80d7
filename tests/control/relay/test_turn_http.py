"""``/api/turn`` on the real server: what HTTP adds to the desk's answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.control import RunningControl, running_control
from tests.support.peerjs_socket import peer_socket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COTURN = {
    "TURN_SECRET": "sesame",
    "TURN_HOST": "relay.example.org",
    "POOLHOUSE_TURN_PROBE_EVERY_S": "0",
}


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


async def limited(control: RunningControl, http: httpx.AsyncClient, **headers: str) -> int:
    answer = await http.post(
        control.signal_url + "api/turn", headers={"origin": control.origin} | headers
    )
    return answer.status_code


async def test_headers_of_a_stranger_do_not_make_a_new_client(http: httpx.AsyncClient) -> None:
    async with running_control(COTURN | {"TURN_RATE": "2"}) as control:
        statuses = [
            await limited(control, http, **{"x-real-ip": f"203.0.113.{i}"}) for i in range(3)
        ]
    assert statuses == [200, 200, 429]


async def test_headers_of_a_trusted_proxy_tell_the_client(http: httpx.AsyncClient) -> None:
    env = COTURN | {"TURN_RATE": "1", "POOLHOUSE_TRUSTED_PROXIES": "127.0.0.0/8"}
    async with running_control(env) as control:
        for name in ("x-real-ip", "x-forwarded-for"):
            first = {name: f"{len(name)}.0.0.1"}
            assert await limited(control, http, **first) == 200
            assert await limited(control, http, **first) == 429
        forged = [
            await limited(control, http, **{"x-forwarded-for": f"203.0.113.{i}, 9.9.9.9"})
            for i in range(2)
        ]
    assert forged == [200, 429], "what a client wrote in front does not count"


async def test_a_refusal_by_the_limit(http: httpx.AsyncClient) -> None:
    async with running_control(COTURN | {"TURN_RATE": "1"}) as control:
        url = control.signal_url + "api/turn"
        await http.post(url, headers={"origin": control.origin})
        answer = await http.post(url, headers={"origin": control.origin})
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert answer.headers["access-control-allow-origin"] == control.origin
    assert answer.json() == {"error": "too many requests"}


async def test_a_live_registration_is_a_proof(http: httpx.AsyncClient) -> None:
    env = COTURN | {"POOLHOUSE_TURN_REQUIRE": "peer"}
    async with running_control(env) as control:
        url, headers = control.signal_url + "api/turn", {"origin": control.origin}

        async def ask(token: str) -> httpx.Response:
            return await http.post(url, headers=headers, json={"peer": "A", "token": token})

        before = await ask("sesame-of-a")
        async with peer_socket(control.socket_url, "A", "sesame-of-a") as peer:
            await peer.hear()
            during, wrong = await ask("sesame-of-a"), await ask("other")
        log = control.log.getvalue()
    assert (before.status_code, during.status_code, wrong.status_code) == (403, 200, 403)
    assert wrong.headers["content-type"] == "application/problem+json"
    assert wrong.json()["type"] == "urn:poolhouse:problem:registration-needed"
    assert "sesame-of-a" not in log


@pytest.mark.parametrize(("path", "status"), [("api/nothing", 404), ("api/openapi.json", 405)])
async def test_other_errors_of_the_api_are_problems(
    http: httpx.AsyncClient, path: str, status: int
) -> None:
    async with running_control() as control:
        answer = await http.post(control.signal_url + path)
        elsewhere = await http.post(control.signal_url + "nothing")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert elsewhere.headers["content-type"] != "application/problem+json"


async def test_the_description_of_the_api_is_the_committed_one(http: httpx.AsyncClient) -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "openapi.json"
    async with running_control() as control:
        served = await http.get(control.signal_url + "api/openapi.json")
        shown = [await http.get(control.signal_url + path) for path in ("api", "api/swagger")]
    assert served.json() == json.loads(page.read_text(encoding="utf-8"))
    assert list(served.json()["paths"]) == ["/api/turn"]
    assert [answer.status_code for answer in shown] == [404, 404], "no page that loads scripts"
