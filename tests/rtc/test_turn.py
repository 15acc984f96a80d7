"""The TURN client against relays that lie, stay silent or hang up. A real one: integration."""

import asyncio
import os
from contextlib import asynccontextmanager

import pytest

from poolhouse_node.rtc import stun
from poolhouse_node.rtc.peer import RtcError
from poolhouse_node.rtc.stun import Attribute, Message, MessageClass, Method
from poolhouse_node.rtc.turn import RelayUrl, TurnRefused, allocated, parse_relay_url
from poolhouse_node.rtc.turn_check import check_relay, check_transports

NONCE = ((Attribute.REALM, b"r"), (Attribute.NONCE, b"n"))


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("turn:h", RelayUrl("h", 3478, "udp")),
        ("TURN:h:99?transport=TCP", RelayUrl("h", 99, "tcp")),
        ("turns:h", RelayUrl("h", 5349, "tls")),
        ("turns:[::1]:443?transport=tcp", RelayUrl("::1", 443, "tls")),
    ],
)
def test_addresses_of_relays(url, parts):
    assert parse_relay_url(url) == parts


@pytest.mark.parametrize(
    "url", ["", "stun:h", "turn:", "turn:h:0", "turn:h:70000", "turn:u@h", "turns:h?transport=udp"]
)
def test_what_is_none(url):
    with pytest.raises(RtcError):
        parse_relay_url(url)


def test_ways_that_are_not_offered_are_noted():
    noted = check_transports(["turn:h", "stun:h", "turns:h?transport=udp"])
    assert [(each.what, each.verdict) for each in noted] == [
        ("over tcp", "note"),
        ("over tls", "note"),
    ]
    assert not check_transports(["turn:h", "turn:h?transport=tcp", "turns:h"])


async def test_a_url_that_is_none_is_a_finding():
    (found,) = await check_relay("turn:u@h", "u", "c")
    assert (found.what, found.verdict) == ("address", "failed")


def error(request: Message, code: int, *more: tuple[int, bytes]) -> Message:
    value = bytes([0, 0, code // 100, code % 100]) + b"Said \x07no"
    attributes = ((Attribute.ERROR_CODE, value), *more)
    return Message(request.method, MessageClass.ERROR, request.transaction, attributes)


class Relay(asyncio.DatagramProtocol):
    """Answers by a function of the request."""

    def __init__(self, answer):
        self.answer = answer

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        for answer in self.answer(stun.decode(data)):
            self.transport.sendto(answer, address)


@asynccontextmanager
async def relay(answer):
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: Relay(answer), local_addr=("127.0.0.1", 0)
    )
    try:
        host, port = transport.get_extra_info("sockname")
        yield RelayUrl(host, port, "udp")
    finally:
        transport.close()


async def allocate(url: RelayUrl) -> None:
    async with allocated(url, "user", "pass"):
        raise AssertionError("there is nothing to get")


async def test_an_error_tells_code_and_reason():
    async with relay(lambda request: [stun.encode(error(request, 486))]) as url:
        with pytest.raises(TurnRefused, match=r"^486 Said no$") as caught:
            await allocate(url)
    assert caught.value.code == 486


async def test_wrong_credentials_are_refused_once():
    asked = 0

    def answer(request):
        nonlocal asked
        asked += 1
        return [stun.encode(error(request, 401, *NONCE))]

    async with relay(answer) as url:
        with pytest.raises(TurnRefused, match="401"):
            await allocate(url)
    assert asked == 2, "once to learn the realm, once with the credential"


async def test_a_relay_that_never_takes_its_own_nonce():
    async with relay(lambda request: [stun.encode(error(request, 438, *NONCE))]) as url:
        with pytest.raises(TurnRefused, match="438"):
            await allocate(url)


async def test_a_success_that_is_not_signed_is_not_believed():
    def answer(request):
        if request.get(Attribute.USERNAME) is None:
            return [stun.encode(error(request, 401, *NONCE))]
        address = stun.pack_address(("203.0.113.1", 1), request.transaction)
        attributes = ((Attribute.XOR_RELAYED_ADDRESS, address),)
        success = Message(request.method, MessageClass.SUCCESS, request.transaction, attributes)
        return [stun.encode(success)]

    async with relay(answer) as url:
        with pytest.raises(RtcError, match="not signed"):
            await allocate(url)


async def test_a_success_without_an_address():
    def answer(request):
        return [stun.encode(Message(request.method, MessageClass.SUCCESS, request.transaction))]

    async with relay(answer) as url:
        with pytest.raises(RtcError, match="nonsense"):
            await allocate(url)


async def test_noise_is_not_an_answer():
    def answer(request):
        other = Message(request.method, MessageClass.SUCCESS, bytes(12))
        mirrored = Message(request.method, MessageClass.REQUEST, request.transaction)
        data = Message(Method.DATA, MessageClass.INDICATION, request.transaction)
        noise = [os.urandom(n) for n in (0, 1, 20, 100)]
        return [stun.encode(each) for each in (other, mirrored, data)] + noise

    async with relay(answer) as url:
        with pytest.raises(RtcError, match="does not answer"):
            async with allocated(url, "u", "c", answer_timeout_s=0.8):
                raise AssertionError("there is nothing to get")


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x01\x03\xff\xfc\x21\x12\xa4\x42" + bytes(12)],
    ids=["nothing", "http", "huge"],
)
async def test_a_stream_that_is_no_relay(said):
    async def answer(reader, writer):
        await reader.read(1000)
        writer.write(said)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        (found,) = await check_relay(f"turn:{host}:{port}?transport=tcp", "u", "c")
    assert found.verdict == "failed"
    assert "closed the connection" in found.words
