"""Links that meet at a real coturn only: over UDP, TCP and TLS, by both engines."""

from __future__ import annotations

import socket
import time
from contextlib import asynccontextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from poolhouse_control.relay.credentials import issue
from poolhouse_node.cli.turn.config import LINK_ALLOCATIONS
from poolhouse_node.room.links import LinkFailed
from poolhouse_node.rtc.ice import PathSettings
from poolhouse_node.rtc.link import LinkSettings
from poolhouse_node.rtc.open import open_network
from poolhouse_node.rtc.peer import TurnServer
from tests.support.control import running_control
from tests.support.coturn import OLD_SECRET, coturn
from tests.support.recorder import Recorder, frame, positions, until

if TYPE_CHECKING:
    from poolhouse_node.rtc.peer import Engine

pytestmark = [pytest.mark.webrtc, pytest.mark.coturn, pytest.mark.timeout(60)]

HOST = "pooled-room-TEST"
ENGINES: list[Engine] = ["libdatachannel", "aiortc"]
PAIRINGS = list(product(ENGINES, ENGINES))
TRANSPORTS = {"udp": 0, "tcp": 1, "tls": 2}
LOOKED = 2
"""Connections of the support code, which looks whether coturn listens."""
ONE = LinkSettings(associations=1)


def behind(url: str, **said: Any) -> PathSettings:
    """Nothing but a relay, as a person's own."""
    made = issue(OLD_SECRET, ttl_s=600, now_s=time.time(), label="pooled")
    relay = TurnServer(url, made.username, said.pop("credential", made.credential))
    return PathSettings(turn=(relay,), relay_only=True, **said)


async def device(control, paths, peer_id=None, engine="libdatachannel", settings=ONE):
    events = Recorder()
    network = await open_network(
        [control.signal_url], peer_id, engine=engine, paths=paths, settings=settings
    )
    network.mesh.key = ""
    network.listen(events)
    return network, events


@asynccontextmanager
async def linked(control, host_paths, guest_paths, host_engine, guest_engine, settings=ONE):
    """A link, dialed by the guest, and the events of both."""
    host, host_events = await device(control, host_paths, HOST, host_engine, settings)
    guest, guest_events = await device(control, guest_paths, None, guest_engine, settings)
    try:
        link = await guest.dial(HOST, timeout_s=40)
        await until(lambda: host_events.opened)
        yield (link, guest_events), (host_events.opened[0], host_events)
    finally:
        await guest.close()
        await host.close()


@pytest.fixture
async def relay(tmp_path, monkeypatch):
    async with coturn(tmp_path, user_quota=64) as relay:
        monkeypatch.setenv("SSL_CERT_FILE", str(relay.certificate.cert))
        yield relay


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("host_engine", "guest_engine"),
    PAIRINGS,
    ids=["-".join(pair) for pair in PAIRINGS],
)
async def test_frames_pass_a_link_that_only_a_relay_makes(
    relay, transport, host_engine, guest_engine
):
    paths = behind(relay.urls[TRANSPORTS[transport]])
    async with (
        running_control() as control,
        linked(control, paths, paths, host_engine, guest_engine) as (
            (link, guest_events),
            (other, host_events),
        ),
    ):
        for position in range(10):
            link.send_frame(frame(position, 10_240))
            other.send_frame(frame(position, 10_240))
        await until(lambda: len(host_events.frames) == len(guest_events.frames) == 10)
        assert positions(host_events) == positions(guest_events) == list(range(10))
        assert "relay" in link.transport.split(" ")[1]
        assert "relay" in other.transport.split(" ")[1]
    assert relay.log.count(b"ALLOCATE processed, success") >= 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_relay_is_reached_by_the_transport_that_was_named(relay, transport, engine):
    paths = behind(relay.urls[TRANSPORTS[transport]])
    async with (
        running_control() as control,
        linked(control, paths, paths, engine, engine) as ((link, _), _),
    ):
        assert link.is_open
    streams = relay.log.count(b"tcp or tls connected to") - LOOKED
    if transport == "udp":
        assert streams == 0
        return
    assert streams >= 2
    port = (relay.port, relay.tls_port)[transport == "tls"]
    await until(lambda: relay.log.count(f"local 127.0.0.1:{port}, remote".encode()) >= 2)


async def test_a_link_takes_no_more_allocations_than_operators_are_told(relay):
    """With every address of the relay, as control planes hand them out."""
    made = issue(OLD_SECRET, ttl_s=600, now_s=time.time(), label="pooled")
    servers = tuple(TurnServer(url, made.username, made.credential) for url in relay.urls)
    paths = PathSettings(turn=servers, relay_only=True)
    async with (
        running_control() as control,
        linked(control, paths, paths, *ENGINES[:1] * 2, LinkSettings()) as ((link, _), (other, _)),
    ):
        await until(lambda: link.stripes == other.stripes == 3)
        await until(lambda: _allocations(relay) == LINK_ALLOCATIONS)
    assert _allocations(relay) == LINK_ALLOCATIONS


def _allocations(relay) -> int:
    return relay.log.count(b"ALLOCATE processed, success")


async def test_all_four_associations_of_a_link_pass_one_relay_over_tls(relay):
    paths = behind(relay.urls[2])
    async with (
        running_control() as control,
        linked(control, paths, paths, *ENGINES[:1] * 2, LinkSettings()) as (
            (link, _),
            (other, host_events),
        ),
    ):
        await until(lambda: link.stripes == other.stripes == 3)
        for position in range(30):
            link.send_frame(frame(position, 40_000))
        await until(lambda: len(host_events.frames) == 30)
        assert positions(host_events) == list(range(30))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_wrong_password_fails_with_a_sentence(relay, transport, engine):
    paths = behind(relay.urls[TRANSPORTS[transport]], credential="wrong")
    async with running_control() as control:
        guest, _ = await device(control, paths, engine=engine)
        with pytest.raises(LinkFailed, match="relay") as failed:
            await guest.dial(HOST, timeout_s=20)
        assert "wrong" not in str(failed.value)
        await guest.close()


async def test_a_relay_whose_certificate_is_not_trusted_gets_nothing(relay, monkeypatch, caplog):
    monkeypatch.delenv("SSL_CERT_FILE")
    async with running_control() as control:
        guest, _ = await device(control, behind(relay.urls[2]))
        with pytest.raises(LinkFailed):
            await guest.dial(HOST, timeout_s=2)
        await guest.close()
    assert "its certificate is not trusted" in caplog.text


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_relay_that_the_control_plane_lends_makes_a_link(relay, engine, monkeypatch):
    """All addresses are lent; each engine takes those that it can use."""
    monkeypatch.setattr(PathSettings, "asks_at", lambda self, server: True)  # not on loopback
    lends = {"TURN_SECRET": OLD_SECRET, "TURN_URLS": ",".join(relay.urls)}
    paths = PathSettings(relay_only=True)
    async with (
        running_control(lends) as control,
        linked(control, paths, paths, engine, engine) as ((link, _), (other, _)),
    ):
        assert "relay" in link.transport
        assert "relay" in other.transport
    streams = relay.log.count(b"tcp or tls connected to") - LOOKED
    assert streams == (0 if engine == "aiortc" else 2), "TLS beside UDP, by libdatachannel"


@pytest.fixture
def silent_url():
    """A relay's address where UDP goes in and nothing comes back, as behind many firewalls."""
    with socket.socket(type=socket.SOCK_DGRAM) as hole:
        hole.bind(("127.0.0.1", 0))
        yield f"turn:127.0.0.1:{hole.getsockname()[1]}"


async def test_a_network_that_blocks_udp_gets_through_over_tls(relay, silent_url):
    over_tls = behind(relay.urls[2])
    silent = TurnServer(silent_url, over_tls.turn[0].username, over_tls.turn[0].credential)
    paths = PathSettings(turn=(silent, *over_tls.turn), relay_only=True)
    started_at = time.monotonic()
    async with (
        running_control() as control,
        linked(control, paths, paths, *ENGINES[:1] * 2) as ((link, _), _),
    ):
        assert "relay" in link.transport
        assert time.monotonic() - started_at < 14, "a dial that takes 15 s is given up"


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_relay_that_is_down_keeps_nobody_from_a_direct_path(silent_url, engine):
    paths = PathSettings(turn=(TurnServer(silent_url, "u", "c"),), bind="127.0.0.1")
    started_at = time.monotonic()
    async with (
        running_control() as control,
        linked(control, paths, paths, engine, engine) as ((link, _), _),
    ):
        assert "relay" not in link.transport
        assert time.monotonic() - started_at < 14, "a dial that takes 15 s is given up"
