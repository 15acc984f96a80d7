"""Does UDP get out? Asked of servers that answer, are silent, or talk nonsense."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import asynccontextmanager, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.rtc import stun, udp
from poolhouse_node.rtc.peer import IceSettings, TurnServer
from poolhouse_node.rtc.stun import Message, MessageClass, Method
from poolhouse_node.rtc.tasks import TaskSet
from poolhouse_node.rtc.udp import UdpCheck, stun_address, udp_gets_out
from tests.support.virtual_time import run_virtual

UNKNOWN = "stun:nobody.invalid:3478"
STUN = IceSettings(stun=("stun:s",))
RELAY = TurnServer("turn:relay:3478", "u", "c")


class Server(asyncio.DatagramProtocol):
    """Says to each request what ``answer`` makes of it."""

    def __init__(self, answer):
        self.answer, self.heard = answer, 0

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.heard += 1
        for said in self.answer(stun.decode(data), self.heard):
            self.transport.sendto(said, addr)


@asynccontextmanager
async def server(answer, address="127.0.0.1"):
    transport, served = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Server(answer), local_addr=(address, 0)
    )
    port = transport.get_extra_info("sockname")[1]
    try:
        yield (f"stun:[{address}]:{port}" if ":" in address else f"stun:{address}:{port}"), served
    finally:
        transport.close()


@contextmanager
def nobody():
    """A port that stays silent."""
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"stun:127.0.0.1:{taken.getsockname()[1]}"


def success(request, _=1, kind=MessageClass.SUCCESS):
    return [stun.encode(Message(request.method, kind, request.transaction))]


def failure(request, _):
    return success(request, kind=MessageClass.ERROR)


def silence(request, _):
    return []


def other_transaction(request, _):
    return success(Message(request.method, request.kind, bytes(12)))


def other_method(request, _):
    return success(Message(Method.ALLOCATE, request.kind, request.transaction))


def echo(request, _):
    return [stun.encode(request)]


def noise(request, _):
    return [b"", b"\xff" * 20, b"\x01\x01\0\x04" + stun.encode(request)[4:20]]


@pytest.mark.parametrize("answer", [success, failure])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_one_answer_is_enough(answer, address):
    async with server(answer, address) as (url, served):
        with nobody() as silent:
            assert await udp_gets_out([silent, url, UNKNOWN], timeout_s=5) is True
        assert served.heard == 1


async def test_a_question_that_was_lost_is_asked_again(monkeypatch):
    monkeypatch.setattr(udp, "_RESEND_EVERY_S", 0.01)
    async with server(lambda request, number: success(request) if number > 2 else []) as (url, _):
        assert await udp_gets_out([url], timeout_s=5) is True


@pytest.mark.parametrize("answer", [silence, other_transaction, other_method, echo, noise])
async def test_what_is_no_answer(answer):
    async with server(answer) as (url, served):
        assert await udp_gets_out([url, UNKNOWN], timeout_s=0.1) is False
        assert served.heard


async def test_a_port_where_nobody_listens_is_no_answer():
    with nobody() as url:
        pass
    assert await udp_gets_out([url], timeout_s=0.1) is False


@pytest.mark.parametrize("urls", [[], [UNKNOWN], ["stuns:127.0.0.1:5349"], ["stun:a..b:1"]])
async def test_nothing_is_known_when_nobody_can_be_asked(urls):
    assert await udp_gets_out(urls, timeout_s=5) is None


async def test_the_local_address_is_the_one_that_was_chosen():
    seen = []

    class Noting(Server):
        def datagram_received(self, data, addr):
            seen.append(addr[0])
            super().datagram_received(data, addr)

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: Noting(success), local_addr=("127.0.0.1", 0)
    )
    url = f"stun:127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    assert await udp_gets_out([url], bind="127.0.0.9", timeout_s=5) is True
    assert seen == ["127.0.0.9"]
    assert await udp_gets_out([url], bind="192.0.2.77", timeout_s=5) is None
    transport.close()


async def test_a_resolver_that_is_silent_holds_up_nobody(monkeypatch):
    async def never(*_):
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(udp, "_look_up", never)
    assert await udp_gets_out(["stun:slow.example"], timeout_s=0.05) is None


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("stun:s.example.org", ("s.example.org", 3478)),
        ("STUN:s.example.org:19302", ("s.example.org", 19302)),
        ("stun:[2001:db8::1]", ("2001:db8::1", 3478)),
        ("stun:[2001:db8::1]:5", ("2001:db8::1", 5)),
        ("stuns:s.example.org", None),
        ("stun:s:0", None),
        ("stun:s:99999", None),
        ("stun:s:x", None),
        ("turn:s", None),
    ],
)
def test_where_a_server_is(url, address):
    assert stun_address(url) == address


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_none(text):
    found = stun_address(f"stun:{text}")
    assert found is None or 0 < found[1] < 65536


# What a device keeps of it.


class Network:
    """Answers in turn, after four seconds."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0

    async def __call__(self, ice):
        self.asked += 1
        await asyncio.sleep(4)
        return self.answers.pop(0)


@pytest.mark.parametrize(("gets_out", "blocked"), [(True, False), (False, True), (None, None)])
def test_nothing_is_known_until_the_answer(gets_out, blocked):
    async def main():
        check = UdpCheck(TaskSet(), Network(gets_out))
        check.look(STUN)
        await asyncio.sleep(3.9)
        assert check.blocked is None
        await asyncio.sleep(0.2)
        assert check.blocked is blocked

    run_virtual(main())


def test_it_is_asked_again_after_a_minute_at_the_earliest():
    async def main():
        network = Network(False, True)
        check = UdpCheck(TaskSet(), network)
        for _ in range(3):
            check.look(STUN)
            await asyncio.sleep(15)
        assert (network.asked, check.blocked) == (1, True)
        await asyncio.sleep(20)
        check.look(STUN)
        await asyncio.sleep(5)
        assert (network.asked, check.blocked) == (2, False)

    run_virtual(main())


def test_without_a_server_nobody_is_asked():
    async def main():
        network = Network(False)
        UdpCheck(TaskSet(), network).look(IceSettings(turn=(RELAY,)))
        await asyncio.sleep(5)
        assert network.asked == 0

    run_virtual(main())


@pytest.mark.parametrize(
    ("turn", "said"), [((), "there is no relay"), ((RELAY,), "go through the relay")]
)
def test_it_is_said_once_that_udp_is_blocked(turn, said, caplog):
    async def main():
        check = UdpCheck(TaskSet(), Network(False, False, True, False))
        for _ in range(4):
            check.look(IceSettings(stun=STUN.stun, turn=turn))
            await asyncio.sleep(61)

    with caplog.at_level(logging.INFO):
        run_virtual(main())
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2, "once, and once more after it had got out"
    assert all(said in warning for warning in warnings)
