"""The local port that stands for a relay's TCP or TLS port, against relays that do as told."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import asynccontextmanager

import pytest

from poolhouse_node.rtc import stun, turn_shim
from poolhouse_node.rtc.peer import RtcError, TurnServer
from poolhouse_node.rtc.stun import Message, MessageClass, Method
from poolhouse_node.rtc.turn import RelayUrl
from poolhouse_node.rtc.turn_shim import TurnShim, TurnShims
from tests.support.coturn import Certificate
from tests.support.recorder import until


def allocate(number: int, kind: MessageClass = MessageClass.REQUEST) -> bytes:
    return stun.encode(Message(Method.ALLOCATE, kind, number.to_bytes(12, "big")))


def channel_data(data: bytes) -> bytes:
    return b"\x40\x01" + len(data).to_bytes(2, "big") + data


class Relay:
    """A TCP server that keeps what each connection sent, and says what it is told."""

    def __init__(self) -> None:
        self.heard: list[bytearray] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.server: asyncio.Server | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = bytearray()
        self.heard.append(heard)
        self.writers.append(writer)
        try:
            while data := await reader.read(65536):
                heard += data
        except ConnectionError:
            pass
        finally:
            writer.close()

    @property
    def port(self) -> int:
        return self.server.sockets[0].getsockname()[1]


@asynccontextmanager
async def running_relay(tls: ssl.SSLContext | None = None):
    relay = Relay()
    relay.server = await asyncio.start_server(relay.serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield relay
    finally:
        relay.server.close()
        for writer in relay.writers:
            writer.transport.abort()
        await relay.server.wait_closed()


class Engine(asyncio.DatagramProtocol):
    """One UDP socket of an engine."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def connection_made(self, transport) -> None:
        self.transport = transport

    def datagram_received(self, data, addr) -> None:
        self.heard.append(data)

    def send(self, data: bytes) -> None:
        self.transport.sendto(data)


@asynccontextmanager
async def engine(shim: TurnShim, port: int = 0):
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
        Engine, local_addr=("127.0.0.1", port), remote_addr=("127.0.0.1", shim.port)
    )
    try:
        yield protocol
    finally:
        transport.close()


@asynccontextmanager
async def shim_to(port: int, transport: str = "tcp", **settings):
    shim = await TurnShim.open(RelayUrl("127.0.0.1", port, transport), **settings)
    try:
        yield shim
    finally:
        await shim.close()


async def test_messages_pass_both_ways_padded_on_the_stream_only():
    async with running_relay() as relay, shim_to(relay.port) as shim, engine(shim) as here:
        here.send(channel_data(b"abcde"))
        here.send(allocate(1))
        await until(lambda: relay.heard and len(relay.heard[0]) == 12 + len(allocate(1)))
        assert relay.heard[0] == channel_data(b"abcde") + bytes(3) + allocate(1)
        for byte in allocate(1, MessageClass.SUCCESS) + channel_data(b"xyz") + b"\0":
            relay.writers[0].write(bytes([byte]))
        await until(lambda: len(here.heard) == 2)
        assert here.heard == [allocate(1, MessageClass.SUCCESS), channel_data(b"xyz")]


async def test_every_socket_gets_a_connection_and_its_own_answers():
    async with (
        running_relay() as relay,
        shim_to(relay.port) as shim,
        engine(shim) as one,
        engine(shim) as two,
    ):
        one.send(allocate(1))
        await until(lambda: len(relay.heard) == 1)
        two.send(allocate(2))
        await until(lambda: len(relay.heard) == 2)
        assert shim.flows == 2
        relay.writers[1].write(channel_data(b"two!"))
        relay.writers[0].write(channel_data(b"one!"))
        await until(lambda: one.heard and two.heard)
        assert (one.heard, two.heard) == ([channel_data(b"one!")], [channel_data(b"two!")])


async def test_what_is_sent_again_while_connecting_goes_once_and_noise_never():
    async with running_relay() as relay, shim_to(relay.port) as shim, engine(shim) as here:
        for message in (allocate(1), allocate(1), b"noise", allocate(1), channel_data(b"last")):
            here.send(message)
        await until(lambda: relay.heard and relay.heard[0].endswith(channel_data(b"last")))
        assert relay.heard[0] == allocate(1) + channel_data(b"last")


async def test_a_new_socket_on_an_old_port_gets_a_new_connection():
    async with running_relay() as relay, shim_to(relay.port) as shim:
        async with engine(shim) as here:
            here.send(allocate(1))
            await until(lambda: relay.writers)
            relay.writers[0].write(allocate(1, MessageClass.SUCCESS))
            await until(lambda: here.heard)
            here.send(allocate(1))  # the same request once more is no new socket
            await until(lambda: len(relay.heard[0]) == 2 * len(allocate(1)))
            here.send(allocate(2))
            await until(lambda: len(relay.heard) == 2 and relay.heard[1] == allocate(2))
            await until(lambda: shim.flows == 1)
            relay.writers[1].write(channel_data(b"new!"))
            await until(lambda: len(here.heard) == 2)
        assert len(relay.heard[0]) == 2 * len(allocate(1))


async def test_a_relay_that_hangs_up_is_connected_to_again_with_the_next_message():
    async with running_relay() as relay, shim_to(relay.port) as shim, engine(shim) as here:
        here.send(allocate(1))
        await until(lambda: relay.writers)
        relay.writers[0].close()
        await until(lambda: shim.flows == 0)
        here.send(allocate(2))
        await until(lambda: len(relay.heard) == 2 and relay.heard[1] == allocate(2))


@pytest.mark.parametrize(
    "said", [b"\x80\0\0\0", b"\x15\3\1\0" + bytes(300), bytes(20)], ids=["rtp", "tls", "zeros"]
)
async def test_what_speaks_no_turn_is_left(said, caplog):
    async with running_relay() as relay, shim_to(relay.port) as shim, engine(shim) as here:
        here.send(allocate(1))
        await until(lambda: relay.writers)
        relay.writers[0].write(said)
        await until(lambda: shim.flows == 0)
        assert "does not speak TURN" in caplog.text


async def test_a_message_too_large_for_the_engine_is_dropped_alone():
    async with running_relay() as relay, shim_to(relay.port) as shim, engine(shim) as here:
        here.send(allocate(1))
        await until(lambda: relay.writers)
        relay.writers[0].write(channel_data(bytes(60_000)) + channel_data(b"next"))
        await until(lambda: here.heard)
        assert here.heard == [channel_data(b"next")]


async def test_a_relay_that_stays_silent_too_long_is_let_go():
    async with (
        running_relay() as relay,
        shim_to(relay.port, silence_limit_s=0.05) as shim,
        engine(shim) as here,
    ):
        here.send(allocate(1))
        await until(lambda: relay.writers)
        await until(lambda: shim.flows == 0)


async def test_an_unreachable_relay_is_said_once_and_not_hammered(caplog):
    async with running_relay() as relay:
        port = relay.port
    async with shim_to(port) as shim, engine(shim) as here:
        here.send(allocate(1))
        await until(lambda: "relay.unreachable" in caplog.text)
        here.send(allocate(2))
        here.send(allocate(3))
        await asyncio.sleep(0)
        assert shim.flows == 0
        assert caplog.text.count("relay.unreachable") == 1


async def test_a_relay_that_never_accepts_is_given_up(monkeypatch, caplog):
    monkeypatch.setattr(turn_shim, "_CONNECT_TIMEOUT_S", 0.05)

    async def never(*_, **__):
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", never)
    async with shim_to(1) as shim, engine(shim) as here:
        here.send(allocate(1))
        await until(lambda: "it does not answer" in caplog.text)


async def test_sockets_beyond_the_bound_get_nothing(monkeypatch):
    monkeypatch.setattr(turn_shim, "_MAX_FLOWS", 1)
    async with (
        running_relay() as relay,
        shim_to(relay.port) as shim,
        engine(shim) as one,
        engine(shim) as two,
    ):
        one.send(allocate(1))
        await until(lambda: relay.heard)
        two.send(allocate(2))
        one.send(channel_data(b"more"))
        await until(lambda: relay.heard[0].endswith(channel_data(b"more")))
        assert shim.flows == 1


async def test_a_relay_that_does_not_read_costs_bounded_memory(monkeypatch):
    async with running_relay() as relay, shim_to(relay.port) as shim, engine(shim) as here:
        here.send(allocate(1))
        await until(lambda: relay.writers)
        ((address, flow),) = shim._flows.items()
        await until(lambda: flow._writer is not None)
        monkeypatch.setattr(turn_shim, "_MAX_UNSENT_BYTES", 0)
        shim.datagram_received(channel_data(b"lost"), address)
        monkeypatch.undo()
        here.send(channel_data(b"kept"))
        await until(lambda: relay.heard[0].endswith(channel_data(b"kept")))
        assert b"lost" not in relay.heard[0]


async def test_tls_is_spoken_and_the_certificate_verified(tmp_path, caplog):
    certificate = Certificate.make(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate.cert, certificate.key)
    async with running_relay(serving) as relay:
        async with (
            shim_to(relay.port, "tls", tls=certificate.trusted()) as shim,
            engine(shim) as here,
        ):
            here.send(allocate(1))
            await until(lambda: relay.heard and relay.heard[0] == allocate(1))
            relay.writers[0].write(channel_data(b"safe"))
            await until(lambda: here.heard == [channel_data(b"safe")])
        async with (
            shim_to(relay.port, "tls", tls=ssl.create_default_context()) as shim,
            engine(shim) as here,
        ):
            here.send(allocate(2))
            await until(lambda: "its certificate is not trusted" in caplog.text)
        assert all(allocate(2) not in heard for heard in relay.heard)


async def test_closing_ends_connections_and_the_port():
    async with running_relay() as relay:
        shim = await TurnShim.open(RelayUrl("127.0.0.1", relay.port, "tcp"))
        async with engine(shim) as here:
            here.send(allocate(1))
            await until(lambda: relay.heard)
            await shim.close()
            await shim.close()
            await until(relay.writers[0].is_closing)
            assert shim.flows == 0


async def test_one_port_for_each_address_of_a_relay():
    shims = TurnShims()
    try:
        by_udp = TurnServer("turn:127.0.0.1:3478", "u", "c")
        assert await shims.local(by_udp) is by_udp
        first = await shims.local(TurnServer("turn:127.0.0.1:3478?transport=tcp", "u", "c"))
        again = await shims.local(TurnServer("TURN:127.0.0.1?transport=TCP", "v", "d"))
        other = await shims.local(TurnServer("turns:127.0.0.1:3478", "u", "c"))
        assert (first.username, first.credential) == ("u", "c")
        assert first.url == again.url != other.url
        assert again.credential == "d", "new credentials go through the port there is"
        with pytest.raises(RtcError):
            await shims.local(TurnServer("turns:h?transport=udp", "u", "c"))
    finally:
        await shims.close()


@pytest.fixture(autouse=True)
def _logged(caplog):
    caplog.set_level(logging.WARNING)
