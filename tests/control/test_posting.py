"""Messages that are posted to another replica: none overtakes the one before, whatever its end."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

import pytest
from websockets.frames import Close, Frame, Opcode

from poolhouse_control.signaling.presence import Away, Forwarded
from poolhouse_control.signaling.presence_memory import MemoryPresence
from tests.support.control import running_control
from tests.support.peerjs_socket import PeerSocket, peer_socket, raw_upgrade

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_control.signaling.presence import Parcel, RouteResult

OPEN = {"type": "OPEN"}
TOTAL = 80


def frame(payload: bytes, opcode: Opcode = Opcode.TEXT) -> bytes:
    return Frame(opcode, payload).serialize(mask=True)


def offer(number: int, dst: str) -> bytes:
    return frame(json.dumps({"type": "OFFER", "dst": dst, "payload": number}).encode())


def number_in(parcel: Parcel) -> int:
    return int(json.loads(parcel.text)["payload"])


class Post:
    """Takes parcels for ``far``, and says later what became of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.posted: list[int] = []
        self.refused: list[int] = []
        self.asked: list[int] = []
        self.under_way = 0
        self._rng = rng
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._tasks: set[asyncio.Task[None]] = set()
        route = MemoryPresence.route

        async def asked(
            presence: MemoryPresence, parcel: Parcel, now: float, *, may_wait: bool, hop: int = 0
        ) -> RouteResult:
            self.asked.append(number_in(parcel))
            assert self.posted[-1] == self.asked[-1], "a later one was posted before"
            return await route(presence, parcel, now, may_wait=may_wait, hop=hop)

        def post(
            _: MemoryPresence, parcel: Parcel, answered: Callable[[RouteResult | None], None]
        ) -> bool:
            self.take(parcel, answered)
            return True

        monkeypatch.setattr(MemoryPresence, "route", asked)
        monkeypatch.setattr(MemoryPresence, "post", post)

    def take(self, parcel: Parcel, answered: Callable[[RouteResult | None], None]) -> None:
        assert not self.under_way, "the one before was not answered"
        self.under_way += 1
        self.posted.append(number_in(parcel))
        task = asyncio.create_task(self._answer(self.posted[-1], answered))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, answered: Callable[[RouteResult | None], None]) -> None:
        await self.may_answer.wait()
        for _ in range(self._rng.randrange(4)):
            await asyncio.sleep(0)
        self.under_way -= 1
        result = self._rng.choice((Forwarded(), Forwarded(), Away(), None))
        if result is None:
            self.refused.append(number)
        answered(result)


async def flushed(writer: asyncio.StreamWriter) -> None:
    while writer.transport.get_write_buffer_size():
        await asyncio.sleep(0.01)


async def payloads(witness: PeerSocket, count: int) -> list[int]:
    return [(await witness.hear())["payload"] for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves at once"])
async def test_order_holds_whatever_becomes_of_each(
    monkeypatch: pytest.MonkeyPatch, seed: int, *, leaves: bool
) -> None:
    rng = random.Random(seed)
    async with running_control() as control, peer_socket(control.socket_url, "W") as witness:
        assert await witness.hear() == OPEN
        post = Post(monkeypatch, rng)
        _, writer = await raw_upgrade(control.signal_url, "R")
        to = [rng.choice(("far", "W")) for _ in range(TOTAL)]
        stream = b"".join(offer(number, dst) for number, dst in enumerate(to))
        if leaves:
            stream += frame(Close(1000, "").serialize(), Opcode.CLOSE)
        while stream:
            size = rng.randrange(1, 400)
            writer.write(stream[:size])
            stream = stream[size:]
            await asyncio.sleep(0)
        near = [number for number, dst in enumerate(to) if dst == "W"]
        assert await payloads(witness, len(near)) == near
        far = [number for number, dst in enumerate(to) if dst == "far"]
        async with asyncio.timeout(5):
            while post.posted != far or post.under_way or post.asked != post.refused:
                await asyncio.sleep(0.005)
        writer.close()
    assert "request.failed" not in control.log.getvalue()


async def test_only_its_own_sender_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_control() as control, peer_socket(control.socket_url, "W") as witness:
        assert await witness.hear() == OPEN
        post = Post(monkeypatch, random.Random(1))
        post.may_answer.clear()
        _, writer = await raw_upgrade(control.signal_url, "R")
        writer.write(offer(0, "far") + offer(1, "W"))
        async with asyncio.timeout(5):
            while not post.posted:
                await asyncio.sleep(0.005)
        await witness.say({"type": "OFFER", "dst": "W", "payload": "meanwhile"})
        assert (await witness.hear())["payload"] == "meanwhile"
        post.may_answer.set()
        assert await payloads(witness, 1) == [1]
        writer.close()


async def test_a_sender_that_writes_on_is_not_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits behind a posted message is bounded by what one read brings."""
    async with running_control() as control, peer_socket(control.socket_url, "W") as witness:
        assert await witness.hear() == OPEN
        post = Post(monkeypatch, random.Random(2))
        post.may_answer.clear()
        _, writer = await raw_upgrade(control.signal_url, "R")
        writer.write(offer(0, "far"))
        big = frame(b'{"type":"OFFER","dst":"W","payload":"' + b"x" * 60_000 + b'"}')
        for _ in range(400):
            writer.write(big)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flushed(writer), 1)
        writer.transport.abort()
        post.may_answer.set()
