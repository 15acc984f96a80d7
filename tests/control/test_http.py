"""HTTP of signaling and of the admin port, on the real server."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.control import running_control
from tests.support.peerjs_socket import peer_socket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PAGE = {"origin": "https://page.example"}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


async def test_the_card(http: httpx.AsyncClient) -> None:
    async with running_control(public_url="https://room.example") as control:
        answer = await http.get(control.signal_url)
    assert answer.status_code == 200
    card = answer.json()
    assert card.keys() >= {"name", "description", "website"}
    assert all(isinstance(value, str) for value in card.values())
    assert card["website"] == "https://room.example"
    assert "server" not in answer.headers


async def test_who_only_looks_is_answered(http: httpx.AsyncClient) -> None:
    async with running_control() as control:
        answer = await http.head(control.signal_url)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", ["peerjs/id?ts=1700000000.123&version=1.5.5", "peerjs/id/"])
async def test_an_id_is_bare_text(http: httpx.AsyncClient, path: str) -> None:
    """Signaling, 1.1 and 1.2."""
    async with running_control() as control:
        first, second = [await http.get(control.signal_url + path) for _ in range(2)]
    assert first.status_code == 200
    assert first.headers["content-type"].startswith("text/plain")
    assert first.headers["cache-control"] == "no-store"
    assert first.text == str(uuid.UUID(first.text, version=4))
    assert first.text != second.text


async def test_an_id_can_be_registered(http: httpx.AsyncClient) -> None:
    async with running_control() as control:
        new_id = (await http.get(control.signal_url + "peerjs/id")).text
        async with peer_socket(control.socket_url, new_id) as peer:
            assert await peer.hear() == {"type": "OPEN"}


async def test_discovery_is_off(http: httpx.AsyncClient) -> None:
    async with running_control() as control:
        answer = await http.get(control.signal_url + "peerjs/peers", headers=PAGE)
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == PAGE["origin"]


async def test_discovery_lists_ids(http: httpx.AsyncClient) -> None:
    async with (
        running_control(allow_discovery=True) as control,
        peer_socket(control.socket_url, "A") as a,
        peer_socket(control.socket_url, "B") as b,
    ):
        await a.hear()
        await b.hear()
        answer = await http.get(control.signal_url + "peerjs/peers")
    assert answer.status_code == 200
    assert answer.json() == ["A", "B"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["wrong/id", "wrong/peers", "peerjs/nothing", "nothing", "peerjs", "peerjs?id=A"]
)
async def test_a_wrong_key_and_unknown_addresses_are_404(
    http: httpx.AsyncClient, path: str
) -> None:
    """Signaling, 1.1: errors carry the header too, or the client cannot read their status."""
    async with running_control() as control:
        answer = await http.get(control.signal_url + path, headers=PAGE)
    assert answer.status_code == 404
    assert answer.headers["access-control-allow-origin"] == PAGE["origin"]


async def test_own_key_and_path(http: httpx.AsyncClient) -> None:
    async with running_control(key="mine", path="a/b") as control:
        assert (await http.get(control.signal_url + "mine/id")).status_code == 200
        assert (await http.get(control.signal_url + "peerjs/id")).status_code == 404
        assert (await http.get(control.signal_url)).status_code == 200


async def test_cors_echoes_any_origin_by_default(http: httpx.AsyncClient) -> None:
    async with running_control() as control:
        with_origin = await http.get(control.signal_url + "peerjs/id", headers=PAGE)
        without = await http.get(control.signal_url + "peerjs/id")
    assert with_origin.headers["access-control-allow-origin"] == PAGE["origin"]
    assert "origin" in with_origin.headers["vary"].lower()
    assert "access-control-allow-origin" not in without.headers


async def test_cors_with_a_list(http: httpx.AsyncClient) -> None:
    async with running_control(origins="https://room.example") as control:
        url = control.signal_url + "peerjs/id"
        listed = await http.get(url, headers={"origin": "https://room.example"})
        other = await http.get(url, headers=PAGE)
    assert listed.headers["access-control-allow-origin"] == "https://room.example"
    assert "access-control-allow-origin" not in other.headers
    assert other.status_code == 200


@pytest.mark.parametrize("path", ["", "peerjs/id", "peerjs/peers"])
async def test_options(http: httpx.AsyncClient, path: str) -> None:
    async with running_control() as control:
        answer = await http.options(control.signal_url + path, headers=PAGE)
    assert answer.status_code == 204
    assert answer.content == b""
    assert "GET" in answer.headers["access-control-allow-methods"]
    assert answer.headers["access-control-allow-origin"] == PAGE["origin"]
    assert "access-control-request-headers" in answer.headers["vary"].lower()


async def test_health(http: httpx.AsyncClient) -> None:
    async with running_control() as control:
        live = await http.get(control.admin_url + "livez")
        ready = await http.get(control.admin_url + "readyz")
    assert (live.status_code, live.text) == (200, "ok")
    assert (ready.status_code, ready.text) == (200, "ready")


async def test_ops_are_not_on_the_public_port(http: httpx.AsyncClient) -> None:
    async with running_control() as control:
        for path in ("metrics", "livez", "readyz", "schema"):
            assert (await http.get(control.signal_url + path)).status_code == 404
        assert (await http.get(control.admin_url + "peerjs/id")).status_code == 404


async def test_metrics_in_both_formats(http: httpx.AsyncClient) -> None:
    async with running_control() as control:
        plain = await http.get(control.admin_url + "metrics")
        open_metrics = await http.get(
            control.admin_url + "metrics",
            headers={"accept": "application/openmetrics-text; version=1.0.0"},
        )
    assert plain.headers["content-type"].startswith("text/plain; version=")
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
    assert open_metrics.text.endswith("# EOF\n")
    assert re.search(r"^poolhouse_build_info\{.*\} 1\.0$", plain.text, re.MULTILINE)


async def test_metrics_after_a_scripted_run(http: httpx.AsyncClient) -> None:
    """Values tell what happened, and the number of series does not grow with it."""
    async with running_control() as control:
        before = series((await http.get(control.admin_url + "metrics")).text)
        async with peer_socket(control.socket_url, "A", "one") as a:
            await a.hear()
            async with peer_socket(control.socket_url, "A", "two") as rival:
                await rival.hear()
            await a.say({"type": "OFFER", "dst": "A", "payload": 1})
            await a.hear()
            for number in range(30):
                await a.say({"type": "OFFER", "dst": f"Z{number}", "payload": 1})
            await a.say({"type": "HEARTBEAT"})
            await a.say("noise")
            await a.say({"type": "CANDIDATE", "dst": "A", "payload": 1})
            await a.hear()
            await http.post(control.signal_url + "api/turn", headers={"origin": control.origin})
            await http.post(control.signal_url + "api/turn", headers=PAGE)
            after = series((await http.get(control.admin_url + "metrics")).text)
    assert after.keys() == before.keys()
    assert len(after) < 300
    expected = {
        'poolhouse_signal_connects_total{outcome="opened"}': 1,
        'poolhouse_signal_connects_total{outcome="id_taken"}': 1,
        "poolhouse_signal_peers": 1,
        "poolhouse_signal_queue_messages": 30,
        "poolhouse_signal_heartbeats_total": 1,
        'poolhouse_signal_dropped_frames_total{reason="bad"}': 1,
        'poolhouse_signal_messages_total{route="local",type="OFFER"}': 1,
        'poolhouse_signal_messages_total{route="queued",type="OFFER"}': 30,
        'poolhouse_signal_messages_total{route="local",type="CANDIDATE"}': 1,
        'poolhouse_relay_credentials_total{outcome="not_configured"}': 1,
        'poolhouse_relay_credentials_total{outcome="origin"}': 1,
    }
    assert {name: after[name] for name in expected} == expected


def series(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}
    assert len(found) == len(lines), "a series stands twice"
    return found
