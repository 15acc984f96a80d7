"""The load of ``bench signaling``: its frames, its counting, what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from poolhouse_node.cli.bench import procfs
from poolhouse_node.cli.bench.signaling_crowd import Address, open_crowd
from poolhouse_node.cli.bench.signaling_frames import (
    MessageFrames,
    Stamp,
    client_frame,
    read_server_frame,
)
from poolhouse_node.cli.bench.signaling_phases import relay_at_rate, relay_flat_out, settle
from poolhouse_node.cli.bench.signaling_servers import address_of
from poolhouse_node.cli.failures import CommandFailed
from tests.support.control import running_control
from tests.support.program import run


def unmask(frame: bytes) -> bytes:
    """The payload of a client's frame, read by hand."""
    size = frame[1] & 0x7F
    at = 4 if size == 126 else 2
    mask, body = frame[at : at + 4], frame[at + 4 :]
    return bytes(byte ^ mask[i % 4] for i, byte in enumerate(body))


@pytest.mark.parametrize("size", [0, 1, 125, 126, 5000])
def test_client_frames_are_masked_text(size: int) -> None:
    payload = bytes(i % 256 for i in range(size))
    frame = client_frame(payload)
    assert frame[0] == 0x81
    assert frame[1] & 0x80
    assert unmask(frame) == payload


@pytest.mark.parametrize("size", [300, 301, 302, 303, 1200, 8000])
def test_messages_have_their_size_and_are_offers(size: int) -> None:
    frames = MessageFrames.between("load-00001", "load-00002", size)
    text = unmask(frames.frame(7, 123))
    assert len(text) == size
    message = json.loads(text)
    assert message["type"] == "OFFER"
    assert message["dst"] == "load-00002"
    assert message["payload"]["sdp"]["type"] == "offer"


@given(number=st.integers(0, 2**32 - 1), sent_at_ns=st.integers(0, 2**63))
def test_a_stamp_survives_the_relay(number: int, sent_at_ns: int) -> None:
    frames = MessageFrames.between("a", "b", 600)
    heard = relayed(frames, number, sent_at_ns)
    assert frames.read(heard) == Stamp(number, sent_at_ns)


@given(at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_changed_byte_is_seen(at: int, byte: int) -> None:
    frames = MessageFrames.between("a", "b", 600)
    heard = relayed(frames, 1, 2)
    at %= len(heard)
    changed = heard[:at] + bytes((byte,)) + heard[at + 1 :]
    assert frames.read(changed) != Stamp(1, 2) or changed == heard


def relayed(frames: MessageFrames, number: int, sent_at_ns: int) -> bytes:
    message = json.loads(unmask(frames.frame(number, sent_at_ns)))
    ordered = {"type": "OFFER", "src": "a", "dst": "b", "payload": message["payload"]}
    return json.dumps(ordered, separators=(",", ":")).encode()


@given(
    payloads=st.lists(st.integers(0, 300) | st.sampled_from([65_535, 65_536]), max_size=4),
    cut=st.integers(0, 100),
)
def test_server_frames_are_found_when_whole(payloads: list[int], cut: int) -> None:
    frames = [Frame(Opcode.TEXT, b"x" * n).serialize(mask=False) for n in payloads]
    data = b"".join(frames)
    at = 0
    for frame, size in zip(frames, payloads, strict=True):
        if cut < len(frame):
            assert read_server_frame(data[: at + cut], at) is None
        found = read_server_frame(data, at)
        assert found is not None
        assert found.end - found.start == size
        at = found.end
    assert at == len(data)


async def test_every_message_is_counted_at_its_receiver() -> None:
    async with running_control(log_level="error") as control:
        crowd = await open_crowd([address_of(control.signal_url)], 7, 500)
        assert await settle(crowd) == 0
        flat_out = await relay_flat_out(crowd, 500)
        at_rate = await relay_at_rate(crowd, 1000, 100)
        assert crowd.sent == crowd.received == 607
        assert (flat_out.lost, at_rate.lost, crowd.damaged) == (0, 0, 0)
        assert len(flat_out.latencies_ns) == 500
        assert len(at_rate.lags_ns) == 100
        assert at_rate.seconds >= 0.099
        crowd.close()


async def test_lost_and_repeated_messages_are_seen() -> None:
    async with running_control(log_level="error") as control:
        crowd = await open_crowd([address_of(control.signal_url)], 2, 500)
        sender, receiver = crowd.peers
        sender.sent = 3  # as if the first three had been lost
        sender.send()
        await until_heard(receiver.peer_id, crowd, 1)
        assert (crowd.sent, crowd.received, crowd.damaged) == (4, 1, 1)
        sender.sent = 0  # an old one again
        sender.send()
        async with asyncio.timeout(5):
            while crowd.damaged < 2:
                await asyncio.sleep(0.001)
        assert receiver.received == 1
        crowd.close()


async def until_heard(peer_id: str, crowd, count: int) -> None:
    peer = next(peer for peer in crowd.peers if peer.peer_id == peer_id)
    async with asyncio.timeout(5):
        while peer.received < count:
            await asyncio.sleep(0.001)


async def test_a_refused_socket_is_a_sentence() -> None:
    async with running_control(log_level="error") as control:
        address = address_of(control.signal_url)
        crowd = await open_crowd([address], 2, 500)
        with pytest.raises(CommandFailed, match=r"The server refused a WebSocket: HTTP/1\.1 4"):
            await open_crowd([Address(address.host, address.port, "/nowhere/")], 2, 500)
        crowd.close()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:9000", Address("127.0.0.1", 9000, "/")),
        ("ws://localhost:9000/my/app", Address("127.0.0.1", 9000, "/my/app/")),
        ("[::1]:9000/", Address("::1", 9000, "/")),
    ],
)
def test_loopback_addresses_are_taken(url: str, address: Address) -> None:
    assert address_of(url) == address


@pytest.mark.parametrize(
    "url",
    ["http://192.0.2.1:9000", "http://example.org:80/", "https://127.0.0.1:1", "127.0.0.1", "x:y"],
)
def test_any_other_address_is_refused(url: str) -> None:
    with pytest.raises(CommandFailed):
        address_of(url)


def test_nothing_is_started_for_an_address_of_another_machine() -> None:
    ended = run("bench", "signaling", "--against", "http://192.0.2.1:9000/")
    assert ended.process.returncode == 1
    assert ended.stderr == (
        "poolhouse: bench signaling puts load on this machine only, and 192.0.2.1 is not a "
        "loopback address.\n"
    )


def test_this_process_is_known() -> None:
    assert procfs.cpu_s(os.getpid()) > 0
    assert procfs.resident_kb(os.getpid()) > 1000


def test_who_listens_is_found_by_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert procfs.pid_listening_on(server.getsockname()[1]) == os.getpid()
        free = server.getsockname()[1]
    assert procfs.pid_listening_on(free) is None


def test_a_process_that_is_gone_is_a_sentence() -> None:
    with pytest.raises(CommandFailed, match="is gone"):
        procfs.cpu_s(2**22 + 1)
