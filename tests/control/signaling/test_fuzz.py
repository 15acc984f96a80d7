"""Noise by the hundred thousand: only our own errors, no id that sticks, nothing that grows."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from poolhouse_control.errors import FrameError
from poolhouse_control.signaling import messages
from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.messages import parse_connect_params, parse_frame
from tests.support.exchange import Exchange
from tests.support.noise import noisy_frame, noisy_query

LONG = [pytest.mark.long, pytest.mark.timeout(600)]
COUNTS = [4_000, pytest.param(300_000, marks=LONG)]


@pytest.mark.parametrize("count", COUNTS)
def test_the_parser_raises_its_own_errors_only(count: int) -> None:
    rng = random.Random(count)
    acted_on = 0
    for _ in range(count):
        try:
            message = parse_frame(noisy_frame(rng))
        except FrameError:
            continue
        acted_on += 1
        if not isinstance(message, messages.Heartbeat) and message.dst:
            relayed = json.loads(messages.relay_text(message, src="A", dst=message.dst))
            assert relayed["src"] == "A"
            assert relayed["dst"] == message.dst
    assert 0.1 * count < acted_on < 0.9 * count, "both sides of the parser were looked at"


@pytest.mark.parametrize("count", COUNTS)
def test_queries_never_raise_and_open_nothing_odd(count: int) -> None:
    rng = random.Random(count)
    x = Exchange()
    for _ in range(count):
        params = parse_connect_params(noisy_query(rng))
        socket = x.connect(params.peer_id, params.token, key=params.key)
        assert socket in x.codes or messages.is_peer_id(params.peer_id)
        x.heard(socket)
        x.texts.clear()
        x.hang_up(socket)
    assert x.hub.peer_count == 0


@pytest.mark.parametrize("count", COUNTS)
def test_the_hub_keeps_its_books_under_noise(count: int) -> None:
    rng = random.Random(count)
    x = Exchange(Limits(alive_timeout_s=60))
    sockets = {name: x.connect(name) for name in "ABCD"}
    grown = Growth()
    for number in range(count):
        name = rng.choice("ABCD")
        x.say(sockets[name], noisy_frame(rng))
        if number % 50 == 0:
            x.advance(rng.random())
        if sockets[name] in x.codes:  # too much noise, or a goodbye: its id must be free
            assert name not in x.hub.peer_ids()
            sockets[name] = x.connect(name, f"another-{number}")
            assert name in x.hub.peer_ids()
        if number % 1000 == 0:
            x.inbox.clear()
            x.texts.clear()
            x.codes.clear()
            grown.look()
    x.advance(5)
    x.advance(60)
    assert x.hub.peer_count == x.hub.waiting_count == x.presence.queued == 0
    assert not x.hub._waits._due
    grown.check()


class Growth:
    """Memory that Python holds, after a first part of a run and at its end."""

    def __init__(self) -> None:
        self._seen: list[int] = []
        tracemalloc.start()

    def look(self) -> None:
        self._seen.append(tracemalloc.get_traced_memory()[0])

    def check(self) -> None:
        tracemalloc.stop()
        quarter = max(1, len(self._seen) // 4)
        early, late = max(self._seen[:quarter]), max(self._seen[-quarter:])
        assert late - early < 512 * 1024, (early, late)
