"""Probes of relay hosts, and which addresses are handed out after them."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.ops.logs import make_logger
from poolhouse_control.ops.metrics import RelayMetrics, make_registry
from poolhouse_control.relay.health import RelayHealth
from poolhouse_control.relay.probe import binding_request, is_binding_answer, probe

ONE = ("turn:one:3478?transport=udp", "turns:one:443?transport=tcp")
TWO = ("turn:two.example:99",)
TLS_ONLY = ("turns:three:443",)
ID = bytes(range(12))


def answer_to(request: bytes, kind: int = 0x0101) -> bytes:
    return kind.to_bytes(2, "big") + bytes(2) + request[4:20]


def test_a_request_is_a_bare_header() -> None:
    assert binding_request(ID).hex() == "000100002112a442" + ID.hex()


@pytest.mark.parametrize("kind", [0x0101, 0x0111])
def test_an_answer_and_an_error_are_signs_of_life(kind: int) -> None:
    assert is_binding_answer(answer_to(binding_request(ID), kind), ID)


def test_what_is_no_answer() -> None:
    request = binding_request(ID)
    good = answer_to(request)
    assert not is_binding_answer(request, ID)
    assert not is_binding_answer(good, bytes(12))
    assert not is_binding_answer(good + b"x", ID)
    assert not is_binding_answer(good[:19], ID)
    assert not is_binding_answer(b"", ID)


@given(st.binary(max_size=64))
def test_noise_is_no_answer(data: bytes) -> None:
    assert not is_binding_answer(data, ID)


class Relay(asyncio.DatagramProtocol):
    """Answers bindings, after ignoring as many as it is told to."""

    def __init__(self, *, ignores: int = 0) -> None:
        self.ignores = ignores

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        if self.ignores:
            self.ignores -= 1
            return
        self.transport.sendto(b"noise", address)
        self.transport.sendto(answer_to(data), address)


@pytest.mark.parametrize(("ignores", "is_there"), [(0, True), (1, True), (99, False)])
async def test_a_probe(ignores: int, is_there: bool) -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: Relay(ignores=ignores), local_addr=("127.0.0.1", 0)
    )
    host, port = transport.get_extra_info("sockname")
    assert await probe(host, port, timeout_s=0.9) is is_there
    transport.close()


async def test_a_name_that_does_not_exist_is_not_there() -> None:
    assert not await probe("no-such-host.invalid", 3478, timeout_s=1.0)
    assert not await probe("x" * 300, 3478, timeout_s=1.0)


class Answers:
    def __init__(self, **answers: bool) -> None:
        self.answers = answers
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> bool:
        self.asked.append((host, port))
        return self.answers[host.partition(".")[0]]


def make_health(
    answers: Answers, *urls: str, log: io.StringIO | None = None, every_s: float = 1
) -> RelayHealth:
    logger = make_logger(stream=log or io.StringIO(), style="json")
    return RelayHealth(urls, logger, every_s=every_s, ask=answers)


async def test_a_host_is_left_out_after_two_silences_and_back_after_an_answer() -> None:
    answers, log = Answers(one=False, two=True), io.StringIO()
    health = make_health(answers, *ONE, *TWO, *TLS_ONLY, log=log)
    urls = ONE + TWO + TLS_ONLY
    await health.look()
    assert sorted(answers.asked) == [("one", 3478), ("two.example", 99)]
    assert health.choose(urls) == urls, "one lost datagram is no reason"
    await health.look()
    assert health.choose(urls) == TWO + TLS_ONLY
    assert (health.up_count, health.down_count) == (1, 1)
    await health.look()
    answers.answers["one"] = True
    await health.look()
    assert health.choose(urls) == urls
    assert [event in log.getvalue() for event in ("relay_host.down", "relay_host.up")] == [True] * 2
    assert log.getvalue().count("\n") == 2, "one line a change"


async def test_if_all_are_silent_all_are_handed_out() -> None:
    health = make_health(Answers(one=False, two=False), *ONE, *TWO)
    for _ in range(2):
        await health.look()
    assert health.choose(ONE + TWO) == ONE + TWO
    assert health.up_count == 0


async def test_it_keeps_looking_while_it_runs() -> None:
    answers = Answers(one=True)
    health = make_health(answers, *ONE, every_s=0.01)
    async with asyncio.timeout(5), health.running():
        while len(answers.asked) < 3:
            await asyncio.sleep(0.01)
    count = len(answers.asked)
    await asyncio.sleep(0.05)
    assert len(answers.asked) == count


async def test_zero_seconds_mean_never() -> None:
    answers = Answers(one=True)
    async with make_health(answers, *ONE, every_s=0).running():
        await asyncio.sleep(0.02)
    assert not answers.asked


async def test_the_state_is_a_metric() -> None:
    registry = make_registry()
    health = make_health(Answers(one=False, two=True), *ONE, *TWO)
    RelayMetrics(registry).watch_hosts(health)
    for _ in range(2):
        await health.look()
    values = [
        registry.get_sample_value("poolhouse_relay_hosts", {"state": s}) for s in ("up", "down")
    ]
    assert values == [1, 1]
