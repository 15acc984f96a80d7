"""Relays lent by a control plane: asked for, reused, refreshed (relay, section 3)."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager

import pytest

from poolhouse_node.rtc import relays as module
from poolhouse_node.rtc.open import parse_servers
from poolhouse_node.rtc.peer import TurnServer
from poolhouse_node.rtc.relay_answer import RelayGrant
from poolhouse_node.rtc.relays import RelayCaller, Relays, ask_control_plane, origin_of
from poolhouse_node.rtc.signaling import SignalingClient
from tests.support.control import running_control
from tests.support.coturn import OLD_SECRET
from tests.support.virtual_time import run_virtual

SERVER = parse_servers(["wss://room.example.org"])[0]
CALLER = RelayCaller(SERVER, "me", "token")
LENT = {
    "iceServers": [{"urls": ["turn:r.example.org"], "username": "u", "credential": "c"}],
    "ttl": 600,
}


def grant(life_s: float = 600, number: int = 0) -> RelayGrant:
    return RelayGrant((), (TurnServer("turn:r", f"u{number}", "c"),), life_s)


class Lender:
    """Answers with what it has, one after the other, then with the last for ever."""

    def __init__(self, *answers: RelayGrant | None) -> None:
        self.answers = list(answers)
        self.asked_at: list[float] = []

    async def __call__(self, caller: RelayCaller) -> RelayGrant | None:
        self.asked_at.append(asyncio.get_running_loop().time())
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize(
    ("spec", "origin"),
    [
        ("room.example.org", "https://room.example.org"),
        ("wss://room.example.org:8443/x", "https://room.example.org:8443"),
        ("ws://attic.lan", "http://attic.lan"),
        ("attic.lan:8080", "http://attic.lan:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_the_origin_is_the_control_planes_own(spec, origin):
    assert origin_of(parse_servers([spec])[0]) == origin


# ---- time ---------------------------------------------------------------------------------------


def asked_at(lender: Lender, until_s: float) -> list[float]:
    """When ``keep_fresh`` asked, with a first join at 0."""
    told: list[RelayGrant] = []

    async def changed(lent: RelayGrant) -> None:
        told.append(lent)

    async def main() -> None:
        relays = Relays(lender)
        await relays.grant(CALLER)
        keeping = asyncio.create_task(relays.keep_fresh(CALLER, changed))
        await asyncio.sleep(until_s)
        keeping.cancel()
        await asyncio.wait({keeping})

    run_virtual(main())
    return lender.asked_at


def test_relays_are_refreshed_at_three_quarters_of_each_life():
    lender = Lender(grant(3600), grant(600), grant(60), grant(7200))
    assert asked_at(lender, 9000) == [0, 2700, 3150, 3210, 8610]


def test_a_refresh_that_fails_comes_again_as_if_the_life_were_a_quarter():
    lender = Lender(grant(3600), None, None, grant(3600), None)
    assert asked_at(lender, 7500) == [0, 2700, 3375, 4050, 6750, 7425]


def test_a_control_plane_that_was_late_at_first_is_asked_again_soon():
    assert asked_at(Lender(None, grant(3600)), 2800) == [0, 15, 2715]


def test_a_control_plane_that_lends_nothing_is_asked_less_and_less():
    asked = asked_at(Lender(*[None] * 20), 3000)
    assert asked == [0, 15, 45, 105, 225, 465, 945, 1620, 2295, 2970]


def test_each_refresh_tells_what_is_new_and_a_failure_tells_nothing():
    told = []

    async def changed(lent):
        told.append(lent.turn[0].username)

    async def main():
        relays = Relays(Lender(grant(600, 0), grant(600, 1), None, grant(600, 2)))
        await relays.grant(CALLER)
        keeping = asyncio.create_task(relays.keep_fresh(CALLER, changed))
        await asyncio.sleep(1020)  # 450, 900 without an answer, 1012.5
        keeping.cancel()
        await asyncio.wait({keeping})

    run_virtual(main())
    assert told == ["u1", "u2"]


def test_later_joins_reuse_what_is_fresh_and_ask_again_past_half_its_life():
    lender = Lender(grant(600, 0), grant(600, 1))
    used = []

    async def main():
        relays = Relays(lender)
        for _ in range(5):
            used.append((await relays.grant(CALLER)).turn[0].username)
            await asyncio.sleep(100)

    run_virtual(main())
    assert used == ["u0", "u0", "u0", "u1", "u1"]
    assert lender.asked_at == [0, 300]


def test_what_was_reused_is_refreshed_by_its_own_age():
    lender = Lender(grant(600))

    async def main():
        relays = Relays(lender)
        await relays.grant(CALLER)
        await asyncio.sleep(250)
        await relays.grant(CALLER)
        keeping = asyncio.create_task(relays.keep_fresh(CALLER, asyncio.sleep))
        await asyncio.sleep(201)
        keeping.cancel()
        await asyncio.wait({keeping})

    run_virtual(main())
    assert lender.asked_at == [0, 450]


def test_control_planes_are_kept_apart():
    lender = Lender(grant())
    other = RelayCaller(parse_servers(["wss://other.example.org"])[0], "me", "token")

    async def main():
        relays = Relays(lender)
        await relays.grant(CALLER)
        await relays.grant(other)
        await relays.grant(CALLER)

    run_virtual(main())
    assert len(lender.asked_at) == 2


# ---- asking -------------------------------------------------------------------------------------


@asynccontextmanager
async def caller_of(control, api_token=None):
    """A caller with a live registration."""
    server = parse_servers([control.signal_url])[0]
    signaling = SignalingClient([server])
    await signaling.open()
    try:
        yield RelayCaller(server, signaling.peer_id, signaling.token, api_token)
    finally:
        await signaling.close()


TURN = {"TURN_SECRET": OLD_SECRET, "TURN_URLS": "turn:r.example.org,turns:r.example.org:443"}


@pytest.mark.parametrize("require", ["none", "peer"])
async def test_a_real_control_plane_lends(require):
    async with (
        running_control(TURN | {"POOLHOUSE_TURN_REQUIRE": require}) as control,
        caller_of(control) as caller,
    ):
        lent = await ask_control_plane(caller)
    assert [relay.url for relay in lent.turn] == TURN["TURN_URLS"].split(",")
    assert lent.life_s == 21_600
    assert caller.peer_token not in repr(caller)


async def test_a_control_plane_that_wants_a_token_lends_to_its_holder_only(tmp_path):
    environ = TURN | {"POOLHOUSE_TURN_REQUIRE": "token", "POOLHOUSE_API_TOKENS": "t" * 40}
    async with running_control(environ) as control:
        async with caller_of(control) as caller:
            assert await ask_control_plane(caller) is None
        async with caller_of(control, "t" * 40) as caller:
            assert await ask_control_plane(caller) is not None


async def test_a_control_plane_without_a_relay_lends_none():
    async with running_control() as control, caller_of(control) as caller:
        assert await ask_control_plane(caller) is None


async def answered(status: int, body: bytes, *, length: int | None = None, pause_s: float = 0):
    """What is made of one raw answer, and the request that it answered."""
    request = bytearray()

    async def serve(reader, writer):
        request.extend(await reader.readuntil(b"\r\n\r\n"))
        await asyncio.sleep(pause_s)
        size = len(body) if length is None else length
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {size}\r\n\r\n".encode() + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        caller = RelayCaller(parse_servers([f"127.0.0.1:{port}"])[0], "me", "token", "api")
        return await ask_control_plane(caller), request.decode(), port


async def test_the_request_has_an_origin_and_no_more_than_it_needs():
    lent, request, port = await answered(200, json.dumps(LENT).encode())
    assert lent.life_s == 600
    assert request.startswith("POST /api/turn HTTP/1.1\r\n")
    assert f"origin: http://127.0.0.1:{port}\r\n" in request.lower()
    assert "authorization: bearer api\r\n" in request.lower()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (204, b""),
        (201, json.dumps(LENT).encode()),
        (302, b""),
        (403, b'{"error": "origin not allowed"}'),
        (429, b""),
        (500, b"oops"),
        (200, b"<html>"),
        (200, b"{}"),
        (200, b" " * 70_000 + json.dumps(LENT).encode()),
    ],
    ids=["204", "201", "302", "403", "429", "500", "html", "empty", "huge"],
)
async def test_anything_else_means_no_relay(status, body):
    lent, _, _ = await answered(status, body)
    assert lent is None


async def test_an_answer_cut_short_means_no_relay():
    lent, _, _ = await answered(200, b'{"ice', length=100)
    assert lent is None


async def test_an_answer_that_comes_late_means_no_relay(monkeypatch):
    monkeypatch.setattr(module, "ASK_TIMEOUT_S", 0.05)
    lent, _, _ = await answered(200, json.dumps(LENT).encode(), pause_s=0.3)
    assert lent is None


async def test_nobody_there_means_no_relay_and_no_secret_is_logged(caplog):
    caplog.set_level(logging.INFO, "poolhouse_node")
    server = parse_servers(["127.0.0.1:1"])[0]
    assert await ask_control_plane(RelayCaller(server, "me", "hush-token", "hush-api")) is None
    assert "relay.not_asked" in caplog.text
    assert "hush" not in caplog.text
