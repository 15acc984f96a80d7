"""Frames as they come over a real socket, in any pieces and mixtures, relayed on the short path."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.frames import Close, Frame, Opcode

from poolhouse_control.signaling.presence_memory import MemoryPresence
from tests.support.control import running_control
from tests.support.peerjs_socket import peer_socket, raw_upgrade

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from tests.support.peerjs_socket import PeerSocket

pytestmark = pytest.mark.slow

DEADLINE_S = 10.0


def frame(payload: bytes, opcode: Opcode = Opcode.TEXT, *, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin=fin).serialize(mask=True)


def offer(number: int, dst: str = "W") -> bytes:
    return json.dumps({"type": "OFFER", "dst": dst, "payload": number}).encode()


class RawPeer:
    """Writes bytes as they are; reads the frames it is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def hear(self) -> tuple[int, bytes]:
        async with asyncio.timeout(DEADLINE_S):
            first, size = await self.reader.readexactly(2)
            return first & 0xF, await self.reader.readexactly(size)

    async def close_code(self) -> int:
        while True:
            opcode, payload = await self.hear()
            if opcode == Opcode.CLOSE:
                return Close.parse(payload).code

    async def ended(self) -> bool:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read() == b""


@contextlib.asynccontextmanager
async def a_raw_peer_and_a_witness(**settings: Any) -> AsyncIterator[tuple[RawPeer, PeerSocket]]:
    async with running_control(**settings) as control:
        async with peer_socket(control.socket_url, "W") as witness:
            assert await witness.hear() == {"type": "OPEN"}
            raw = RawPeer(*await raw_upgrade(control.signal_url, "R"))
            assert await raw.hear() == (Opcode.TEXT, b'{"type":"OPEN"}')
            yield raw, witness
            raw.writer.close()
        assert "request.failed" not in control.log.getvalue()


async def payloads(witness: PeerSocket, count: int) -> list[int]:
    return [(await witness.hear())["payload"] for _ in range(count)]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shapes=st.lists(st.sampled_from(["text", "binary", "parts", "ping inside"]), max_size=12),
    cuts=st.lists(st.integers(1, 90), min_size=1, max_size=30),
)
async def test_any_frames_in_any_pieces_arrive_in_order(shapes: list[str], cuts: list[int]) -> None:
    stream = b""
    for number, shape in enumerate(shapes):
        data = offer(number)
        match shape:
            case "text":
                stream += frame(data)
            case "binary":
                stream += frame(data, Opcode.BINARY)
            case _:
                stream += frame(data[:7], fin=False)
                stream += frame(b"?", Opcode.PING) if shape == "ping inside" else b""
                stream += frame(data[7:], Opcode.CONT)
    async with a_raw_peer_and_a_witness() as (raw, witness):
        for cut in cuts:
            raw.writer.write(stream[:cut])
            stream = stream[cut:]
            await raw.writer.drain()
            await asyncio.sleep(0)  # so that the pieces are pieces
        raw.writer.write(stream)
        assert await payloads(witness, len(shapes)) == list(range(len(shapes)))
        for _ in range(shapes.count("ping inside")):
            assert await raw.hear() == (Opcode.PONG, b"?")


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (Frame(Opcode.TEXT, b"{}").serialize(mask=False), 1002),
        (b"\xc1\x82\0\0\0\0{}", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (frame(b"{", fin=False) + frame(b"{}"), 1002),
        (frame(b"}", Opcode.CONT), 1002),
        (frame(b"\xff\xfe"), 1007),
        (frame(b"{\xff", fin=False) + frame(b"}", Opcode.CONT), 1007),
        (b"\x81\xff" + (2**40).to_bytes(8) + b"\0\0\0\0", 1009),
    ],
    ids=[
        "no mask",
        "reserved bit",
        "unknown opcode",
        "text inside a message",
        "continuation of nothing",
        "broken text",
        "broken text in parts",
        "a terabyte",
    ],
)
async def test_what_breaks_the_rules_is_closed_behind_what_was_right(bad: bytes, code: int) -> None:
    async with a_raw_peer_and_a_witness() as (raw, witness):
        raw.writer.write(frame(offer(1)) + bad + frame(offer(2)))
        assert await raw.close_code() == code
        await witness.say({"type": "OFFER", "dst": "W", "payload": 3})
        assert await payloads(witness, 2) == [1, 3]
        raw.writer.write(frame(Close(code, "").serialize(), Opcode.CLOSE))
        assert await raw.ended()


async def test_the_last_words_before_a_close_count() -> None:
    async with a_raw_peer_and_a_witness() as (raw, witness):
        goodbye = frame(Close(1000, "").serialize(), Opcode.CLOSE)
        raw.writer.write(frame(offer(1)) + frame(offer(2)) + goodbye + frame(offer(3)))
        assert await payloads(witness, 2) == [1, 2]
        assert await raw.close_code() == 1000
        assert await raw.ended()


class SlowStore:
    """Makes the memory store take its time, as one across the network does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
        self.asked = asyncio.Semaphore(0)
        self.may_answer = asyncio.Event()
        for name in methods:
            monkeypatch.setattr(MemoryPresence, name, self._slow(getattr(MemoryPresence, name)))

    def _slow(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def slow(*args: Any, **kwargs: Any) -> Any:
            self.asked.release()
            await self.may_answer.wait()
            return await method(*args, **kwargs)

        return slow

    async def was_asked(self) -> None:
        await asyncio.wait_for(self.asked.acquire(), DEADLINE_S)


async def test_frames_that_come_before_the_id_is_registered_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients send as soon as the socket is open, before OPEN (signaling, 2)."""
    async with (
        running_control() as control,
        peer_socket(control.socket_url, "W") as witness,
    ):
        await witness.hear()
        store = SlowStore(monkeypatch, "claim")
        raw = RawPeer(*await raw_upgrade(control.signal_url, "R"))
        await store.was_asked()
        stream = b"".join(frame(offer(number)) for number in range(5))
        raw.writer.write(stream[:70])
        await raw.writer.drain()
        raw.writer.write(stream[70:])
        await witness.say({"type": "OFFER", "dst": "W", "payload": "meanwhile"})
        assert await payloads(witness, 1) == ["meanwhile"]
        store.may_answer.set()
        assert await raw.hear() == (Opcode.TEXT, b'{"type":"OPEN"}')
        assert await payloads(witness, 5) == list(range(5))
        raw.writer.close()


async def test_nothing_overtakes_a_message_that_the_store_is_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_raw_peer_and_a_witness() as (raw, witness):
        store = SlowStore(monkeypatch, "route")
        raw.writer.write(frame(offer(0, "absent")) + frame(offer(1)) + frame(offer(2, "absent")))
        await store.was_asked()
        raw.writer.write(frame(offer(3)))
        await witness.say({"type": "OFFER", "dst": "W", "payload": "meanwhile"})
        assert await payloads(witness, 1) == ["meanwhile"], "only its own sender waits"
        store.may_answer.set()
        assert await payloads(witness, 2) == [1, 3]
        await store.was_asked()


async def test_what_waits_for_the_store_is_done_though_its_sender_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_raw_peer_and_a_witness() as (raw, witness):
        store = SlowStore(monkeypatch, "route")
        goodbye = frame(Close(1000, "").serialize(), Opcode.CLOSE)
        raw.writer.write(
            frame(offer(0, "absent"))
            + frame(offer(1))
            + frame(offer(2, "absent"))
            + frame(offer(3))
            + goodbye
        )
        await store.was_asked()
        assert await raw.close_code() == 1000
        store.may_answer.set()
        assert await payloads(witness, 2) == [1, 3]
