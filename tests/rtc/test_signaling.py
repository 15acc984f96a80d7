"""The signaling client, against the real control plane and against scripted servers."""

from __future__ import annotations

import json
import logging
import socket
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.server import serve

from poolhouse_node.rtc.open import parse_servers
from poolhouse_node.rtc.peer import RtcError
from poolhouse_node.rtc.signaling import (
    SignalingClient,
    SignalingError,
    SignalingTimes,
    is_loopback,
)
from poolhouse_node.rtc.signaling_messages import MAX_MESSAGE_BYTES, Offer, decode_payload
from poolhouse_node.wire.servers import CLOUD
from tests.support.control import running_control
from tests.support.recorder import until

FAST = SignalingTimes(
    opening_s=0.5, opening_last_s=0.5, heartbeat_s=0.05, closing_s=0.2, reconnect_s=lambda _: 0.05
)


def client(*urls, peer_id="device-1", times=FAST):
    signaling = SignalingClient(parse_servers(urls), peer_id, times=times)
    got, states = [], []
    signaling.on_message, signaling.on_state = got.append, states.append
    return signaling, got, states


@asynccontextmanager
async def scripted(*replies, port=0):
    """A server that answers each new socket with the replies and then listens."""
    heard, queries, sockets = [], [], []

    async def handle(connection):
        sockets.append(connection)
        queries.append(parse_qs(urlsplit(connection.request.path).query))
        for reply in replies:
            await connection.send(reply if isinstance(reply, str | bytes) else json.dumps(reply))
        async for data in connection:
            heard.append(json.loads(data))

    async with serve(handle, "127.0.0.1", port) as server:
        server.heard, server.queries, server.clients = heard, queries, sockets
        number = server.sockets[0].getsockname()[1]
        server.url = f"ws://127.0.0.1:{number}/"
        server.port = number
        yield server


OPEN = {"type": "OPEN"}


async def test_two_clients_are_introduced_by_the_real_server():
    async with running_control() as control:
        one, _, _ = client(control.signal_url, peer_id="one")
        two, got, _ = client(control.signal_url, peer_id="two")
        assert await one.open() == "one"
        await two.open()
        payload = {
            "sdp": {"type": "offer", "sdp": "v=0"},
            "type": "data",
            "connectionId": "dc_1",
            "serialization": "binary",
            "metadata": {"x": 1},
        }
        await one.send("OFFER", "two", payload)
        await until(lambda: got)
        assert (got[0].type, got[0].src) == ("OFFER", "one")
        offer = decode_payload(got[0], Offer)
        assert (offer.connection_id, offer.sdp.sdp, offer.label) == ("dc_1", "v=0", None)
        await one.close()
        await two.close()


async def test_an_id_is_asked_for_when_none_is_given():
    async with running_control() as control:
        signaling, _, _ = client(control.signal_url, peer_id=None)
        peer_id = await signaling.open()
        assert len(peer_id) == 36
        assert signaling.connected
        await signaling.close()
        assert not signaling.connected


async def test_a_taken_id_is_final():
    async with running_control() as control, scripted(OPEN) as second:
        first, _, _ = client(control.signal_url)
        await first.open()
        other, _, _ = client(control.signal_url, second.url)
        with pytest.raises(SignalingError) as failed:
            await other.open()
        assert failed.value.kind == "id-taken"
        assert "device-1 is in use" in str(failed.value)
        assert not second.clients, "the next server is not tried"
        await first.close()


async def test_a_peer_that_is_not_there_expires():
    async with running_control(expire_after_s=0.2, sweep_every_s=0.1) as control:
        signaling, got, _ = client(control.signal_url)
        await signaling.open()
        await signaling.send("OFFER", "nobody", {})
        await until(lambda: got)
        assert (got[0].type, got[0].src) == ("EXPIRE", "nobody")
        await signaling.close()


@pytest.mark.parametrize("peer_id", ["-x", "a/b", "x" * 129, "two  spaces", "é"])
async def test_an_id_outside_the_rule_is_refused_here(peer_id):
    signaling, _, _ = client("ws://127.0.0.1:9/", peer_id=peer_id)
    with pytest.raises(SignalingError) as failed:
        await signaling.open()
    assert failed.value.kind == "invalid-id"


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        ({"type": "ERROR", "payload": {"msg": "Full.\n\x1b"}}, "server-error", "Full."),
        ({"type": "ERROR", "payload": None}, "server-error", "no reason given"),
        ({"type": "INVALID-KEY"}, "invalid-key", "another key"),
        ({"type": "HELLO"}, "server-error", "refused"),
        ("not json", "server-error", "not a signaling server"),
        ([1], "server-error", "not a signaling server"),
    ],
)
async def test_a_refusal_is_an_error_with_a_sentence(reply, kind, text):
    async with scripted(reply) as server:
        signaling, _, _ = client(server.url)
        with pytest.raises(SignalingError) as failed:
            await signaling.open()
        assert failed.value.kind == kind
        assert text in str(failed.value)
        assert str(failed.value).isprintable()


async def test_a_server_that_never_opens_is_given_up_in_time():
    async with scripted() as server:
        signaling, _, _ = client(server.url)
        with pytest.raises(SignalingError) as failed:
            await signaling.open()
        assert failed.value.kind == "network"
        assert "does not answer" in str(failed.value)
        await until(lambda: all(s.state.name == "CLOSED" for s in server.clients))


async def test_the_next_server_of_the_list_is_tried():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # not listening: refused at once
        dead = f"ws://127.0.0.1:{unused.getsockname()[1]}/"
        async with (
            scripted({"type": "ERROR", "payload": {"msg": "x"}}) as bad,
            scripted(OPEN) as ok,
        ):
            signaling, _, _ = client(dead, bad.url, ok.url)
            await signaling.open()
            assert signaling.server.port == ok.port
            await signaling.close()
        signaling, _, _ = client(dead, dead)
        with pytest.raises(SignalingError):
            await signaling.open()


async def test_heartbeats_go_out():
    async with scripted(OPEN) as server:
        signaling, _, _ = client(server.url)
        await signaling.open()
        await until(lambda: len(server.heard) >= 3)
        assert server.heard[0] == {"type": "HEARTBEAT"}
        await signaling.close()


async def test_a_lost_server_is_reached_again_with_the_same_id_and_token():
    async with scripted(OPEN) as server:
        signaling, got, states = client(server.url)
        await signaling.open()
        first, port = server.queries[0], server.port
        assert states == []
    await until(lambda: states == [False])
    with pytest.raises(RtcError, match="not connected"):
        await signaling.send("OFFER", "x", {})
    async with scripted(OPEN, {"type": "OFFER", "src": "y"}, port=port) as server:
        await until(lambda: states == [False, True])
        await until(lambda: got)
        assert server.queries[0] == first
        assert len(first["token"][0]) >= 16
        await signaling.send("OFFER", "x", {"a": 1})
        await until(lambda: any(m["type"] == "OFFER" for m in server.heard))
        await signaling.close()
    assert states == [False, True]


async def test_the_wait_between_tries_grows_and_starts_again():
    waits = []

    def wait(attempt):
        waits.append(attempt)
        return 0.01

    times = SignalingTimes(opening_s=0.2, opening_last_s=0.2, closing_s=0.2, reconnect_s=wait)
    async with scripted(OPEN) as server:
        signaling, _, states = client(server.url, times=times)
        await signaling.open()
        port = server.port
    await until(lambda: len(waits) >= 3)
    async with scripted(OPEN, port=port):
        await until(lambda: states == [False, True])
    await until(lambda: states == [False, True, False])
    await until(lambda: waits.count(0) == 2)
    assert waits[:3] == [0, 1, 2]
    await signaling.close()


async def test_who_wants_a_link_does_not_wait_for_the_next_try():
    times = SignalingTimes(
        opening_s=0.2, opening_last_s=0.2, closing_s=0.2, reconnect_s=lambda _: 3600.0
    )
    async with scripted(OPEN) as server:
        signaling, _, states = client(server.url, times=times)
        await signaling.open()
        port = server.port
    await until(lambda: states == [False])
    async with scripted(OPEN, port=port):
        signaling.hurry()
        await until(lambda: states == [False, True])
        signaling.hurry()  # nothing to find
        await signaling.close()


@pytest.mark.parametrize(
    "data", ["", "null", "[]", "{}", '{"type": 5}', '{"type":"OFFER","src":[]}', b"\xff\x00"]
)
async def test_malformed_messages_are_dropped(data):
    async with scripted(OPEN, data, {"type": "CANDIDATE", "src": "y"}) as server:
        signaling, got, states = client(server.url)
        await signaling.open()
        await until(lambda: got)
        assert [m.type for m in got] == ["CANDIDATE"]
        assert states == []
        await signaling.close()


async def test_a_message_above_the_limit_costs_the_server_its_socket():
    async with scripted(OPEN, "x" * (MAX_MESSAGE_BYTES + 1)) as server:
        signaling, got, states = client(server.url)
        await signaling.open()
        await until(lambda: states)
        assert got == []
        await signaling.close()


async def test_the_token_is_never_logged(caplog):
    caplog.set_level(logging.DEBUG)
    async with running_control() as control:
        signaling, _, _ = client(control.signal_url, peer_id=None)
        await signaling.open()
        await signaling.close()
    signaling, _, _ = client("ws://127.0.0.1:1/")
    with pytest.raises(SignalingError) as failed:
        await signaling.open()
    shown = caplog.text + "".join(map(str, [failed.value, failed.value.__cause__]))
    assert signaling._token not in shown
    assert "token=" not in "".join(r.getMessage() for r in caplog.records if "poolhouse" in r.name)


async def test_without_servers_there_is_nothing_to_open():
    with pytest.raises(SignalingError):
        SignalingClient([])
    with pytest.raises(RtcError, match="not a signaling server"):
        parse_servers(["http://"])


def test_servers_on_this_machine_are_known():
    local = ["localhost:9", "http://127.0.0.1:1", "ws://[::1]:5/x", "http://a.localhost"]
    assert all(is_loopback(server) for server in parse_servers(local))
    assert not any(is_loopback(server) for server in [CLOUD, *parse_servers(["10.0.0.1:9000"])])
