"""A signaling server that lies: it swaps fingerprints, calls in the names of others, and replays.

It speaks PeerJS to real programs and keeps everything it sees. Where it stands between two devices
it ends both associations itself, with real WebRTC, and carries the messages of one to the other
as its ``attack`` likes. It runs on a loop of its own, in a thread, so that a test may wait for
programs meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from poolhouse_node.rtc.connection import Connection
from poolhouse_node.rtc.peer import IceSettings, RtcError, make_peer
from poolhouse_node.wire.binarypack import pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from websockets.asyncio.server import ServerConnection

__all__ = ["Introduction", "Seen", "SignalingBetween", "Speaker", "passes_on", "signaling_between"]

PATIENCE_S = 60.0

type Message = Mapping[str, Any]
type Attack = Callable[[Seen], list[tuple[bool, Message]]]
"""From a message that came to what is sent: to its receiver (True) or back to its sender."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who wants to talk to whom; ``label`` is ``stripe`` for an extra connection."""

    src: str
    dst: str
    label: str
    connection_id: str
    sdp: str


@dataclass(frozen=True, slots=True)
class Seen:
    """Something that passed by: a frame of signaling, or what a link carried."""

    where: str
    """``signaling``, ``main`` or ``wire``."""
    src: str
    dst: str
    raw: bytes
    message: Message = field(default_factory=dict)

    @property
    def type(self) -> str:
        """Of a message on a main channel."""
        return str(self.message.get("t", ""))


def passes_on(seen: Seen) -> list[tuple[bool, Message]]:
    """Changes nothing."""
    return [(True, seen.message)]


class Speaker:
    """This server's own end of one link. Methods may be called from the test's thread."""

    def __init__(self, between: SignalingBetween, connection: Connection, me: str) -> None:
        self.me, self.other = me, connection.peer_id
        self.connection = connection
        self.heard: list[Message] = []
        self.closed: str | None = None
        self.on_message: Callable[[Speaker, Message], None] = lambda speaker, message: None
        self.on_slice: Callable[[bytes], None] = lambda data: None
        self.on_closed: Callable[[], None] = lambda: None
        self._between = between
        connection.wire.on_message = self._slice

    def start(self) -> None:
        """Begin to listen."""
        self.connection.listen(_Ear(self))

    def say(self, *messages: Message) -> None:
        """Send messages."""
        for message in messages:
            self._between.soon(self._say, message)

    def until(self, *types: str) -> Message:
        """Wait for the first message of one of these types."""
        self._between.until(lambda: self.said(*types))
        return self.said(*types)[0]

    def until_closed(self) -> None:
        """Wait until the other end closed the link."""
        self._between.until(lambda: self.closed is not None)

    def said(self, *types: str) -> list[Message]:
        """What came of these types."""
        return [message for message in self.heard if message["t"] in types]

    @property
    def binding(self) -> str:
        """As this end sees it."""
        return self.connection.binding()

    def close(self) -> None:
        """Close the link."""
        self._between.soon(self.connection.close)

    def _say(self, message: Message) -> None:
        with contextlib.suppress(RtcError):  # the other end may have closed it
            self.connection.send(message)

    def _slice(self, data: bytes) -> None:
        self._between.note(Seen("wire", self.other, self.me, bytes(data)))
        self.on_slice(data)


class _Ear:
    """Reads the connection of a speaker."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker

    def message(self, value: Any) -> None:
        speaker = self._speaker
        if isinstance(value, dict) and isinstance(value.get("t"), str):
            speaker.heard.append(value)
            seen = Seen("main", speaker.other, speaker.me, pack(value), value)
            speaker._between.note(seen)
            speaker.on_message(speaker, value)

    def heard(self) -> None:
        """Signs of life are not kept."""

    def closed(self, reason: str) -> None:
        self._speaker.closed = reason
        self._speaker.on_closed()
        self._speaker._between.changed()


class SignalingBetween:
    """The server. Set what it does before programs meet on it."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[Seen] = []
        """Everything, in the order it came."""
        self.introductions: list[Introduction] = []
        self.middle: list[tuple[Speaker, Speaker]] = []
        """Links taken apart: the ends towards the caller and towards the called device."""
        self.swaps: Callable[[Introduction], bool] = lambda introduction: False
        """Which introductions end at this server instead."""
        self.attack: Attack = passes_on
        """What becomes of messages on links taken apart."""
        self.rewrites_sdp: Callable[[str], str] = lambda sdp: sdp
        """What becomes of descriptions that are carried."""
        self.impostors: dict[str, Callable[[Speaker], None]] = {}
        """Ids that this server answers for itself, and what it does on a link."""
        self._sockets: dict[str, ServerConnection] = {}
        self._mine: dict[str, Connection] = {}
        """Connections of this server's own, by id, that wait for an answer."""
        self._connections: list[Connection] = []
        self._loop = asyncio.new_event_loop()
        self._condition = threading.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()

    # For the test.

    def everything(self) -> bytes:
        """All bytes seen so far."""
        return b"\n".join(seen.raw for seen in list(self.seen))

    def said(self, message_type: str) -> list[Seen]:
        """Messages of one type on links that end here."""
        return [seen for seen in list(self.seen) if seen.type == message_type]

    def call(self, src: str, dst: str, label: str = "") -> Speaker:
        """An open link to a device, called in the name of ``src``, which need not exist."""
        return self.run(self._call(src, dst, label, secrets.token_hex(8)))

    def replay(self, introduction: Introduction) -> None:
        """Send an offer once more."""
        self.soon(self._offer, introduction)

    def until(self, holds: Callable[[], Any], timeout_s: float = PATIENCE_S) -> None:
        """Wait until something holds that hangs on what came."""
        with self._condition:
            assert self._condition.wait_for(holds, timeout_s), "it never came to that"

    def until_said(self, message_type: str) -> Seen:
        """Wait for a message on links that end here."""
        self.until(lambda: self.said(message_type))
        return self.said(message_type)[0]

    def run(self, coroutine: Any) -> Any:
        """Run something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def soon(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call something on the server's loop."""
        self._loop.call_soon_threadsafe(function, *arguments)

    # For its own parts.

    def note(self, seen: Seen) -> None:
        """Keep what passed by."""
        self.seen.append(seen)
        self.changed()

    def changed(self) -> None:
        """Wake who waits."""
        with self._condition:
            self._condition.notify_all()

    def serve_forever(self, started: threading.Event) -> None:
        """The thread."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve(started))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _serve(self, started: threading.Event) -> None:
        self._over = asyncio.Event()
        async with serve(
            self._socket, "127.0.0.1", 0, process_request=_give_id, compression=None
        ) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            started.set()
            await self._over.wait()
            for task in self._tasks:
                task.cancel()
            for connection in self._connections:
                connection.close()
            await asyncio.gather(*(each.wait_closed() for each in self._connections))

    def stop(self) -> None:
        """End it."""
        self.soon(self._over.set)

    # Signaling.

    async def _socket(self, socket: ServerConnection) -> None:
        query = parse_qs(urlsplit(socket.request.path).query)
        peer_id = query["id"][0]
        self._sockets[peer_id] = socket
        try:
            await socket.send('{"type":"OPEN"}')
            async for text in socket:
                self._said(peer_id, str(text))
        except ConnectionClosed:
            pass
        finally:
            if self._sockets.get(peer_id) is socket:
                del self._sockets[peer_id]

    def _said(self, src: str, text: str) -> None:
        message = json.loads(text)
        dst, payload = message.get("dst", ""), message.get("payload")
        self.note(Seen("signaling", src, dst, text.encode()))
        match message["type"]:
            case "OFFER":
                sdp, label = payload["sdp"]["sdp"], payload.get("label") or ""
                self._offered(Introduction(src, dst, label, payload["connectionId"], sdp))
            case "ANSWER" if payload["connectionId"] in self._mine:
                answered = self._mine.pop(payload["connectionId"])
                self._spawn(answered.accept(payload["sdp"]["sdp"]))
            case "ANSWER":
                payload["sdp"]["sdp"] = self.rewrites_sdp(payload["sdp"]["sdp"])
                self._relay("ANSWER", src, dst, payload)
            case "CANDIDATE":
                self._relay("CANDIDATE", src, dst, payload)

    def _offered(self, introduction: Introduction) -> None:
        self.introductions.append(introduction)
        if introduction.dst in self.impostors:
            self._spawn(self._impersonate(introduction))
        elif self.swaps(introduction):
            self._spawn(self._stand_between(introduction))
        else:
            self._offer(introduction)

    def _offer(self, introduction: Introduction) -> None:
        payload = {
            "sdp": {"type": "offer", "sdp": self.rewrites_sdp(introduction.sdp)},
            "type": "data",
            "connectionId": introduction.connection_id,
            "label": introduction.label,
            "reliable": True,
            "serialization": "binary",
        }
        self._relay("OFFER", introduction.src, introduction.dst, payload)

    def _relay(self, kind: str, src: str, dst: str, payload: Any) -> None:
        socket = self._sockets.get(dst)
        if socket is not None:
            text = json.dumps({"type": kind, "src": src, "dst": dst, "payload": payload})
            self._spawn(socket.send(text))
        else:
            self._spawn(self._sockets[src].send(json.dumps({"type": "EXPIRE", "src": dst})))

    # Links of its own.

    def _connection(self, peer_id: str, connection_id: str, label: str, dialed: bool) -> Connection:
        peer = make_peer("libdatachannel", IceSettings())
        connection = Connection(
            peer, peer_id=peer_id, connection_id=connection_id, label=label, dialed=dialed
        )
        self._connections.append(connection)
        return connection

    async def _call(self, src: str, dst: str, label: str, connection_id: str) -> Speaker:
        connection = self._connection(dst, connection_id, label or connection_id, dialed=True)
        speaker = Speaker(self, connection, src)
        self._mine[connection_id] = connection
        sdp = await connection.offer()
        self._offer(Introduction(src, dst, connection.label, connection_id, sdp))
        assert await connection.wait_open(PATIENCE_S)
        speaker.start()
        return speaker

    async def _take(self, introduction: Introduction) -> Speaker:
        """Answer a call in the name of the one who was called."""
        connection = self._connection(
            introduction.src, introduction.connection_id, introduction.label, dialed=False
        )
        speaker = Speaker(self, connection, introduction.dst)
        payload = {
            "sdp": {"type": "answer", "sdp": await connection.answer(introduction.sdp)},
            "type": "data",
            "connectionId": introduction.connection_id,
        }
        self._relay("ANSWER", introduction.dst, introduction.src, payload)
        return speaker

    async def _impersonate(self, introduction: Introduction) -> None:
        speaker = await self._take(introduction)
        assert await speaker.connection.wait_open(PATIENCE_S)
        self.impostors[introduction.dst](speaker)
        speaker.start()

    async def _stand_between(self, introduction: Introduction) -> None:
        near = await self._take(introduction)
        far = await self._call(
            introduction.src, introduction.dst, introduction.label, introduction.connection_id
        )
        self.middle.append((near, far))
        for one, other in ((near, far), (far, near)):
            one.on_message = self._carrier(one, other)
            one.on_slice = partial(_carry_slice, other.connection)
            one.on_closed = other.connection.close
            for message in list(one.heard):
                one.on_message(one, message)
        near.start()
        self.changed()

    def _carrier(self, one: Speaker, other: Speaker) -> Callable[[Speaker, Message], None]:
        def carry(speaker: Speaker, message: Message) -> None:
            seen = Seen("main", one.other, one.me, b"", message)
            for onward, what in self.attack(seen):
                (other if onward else one).say(what)

        return carry

    def _spawn(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # programs come and go: a link that fails is no fault of the test


def _carry_slice(connection: Connection, data: bytes) -> None:
    with contextlib.suppress(RtcError):
        connection.wire.send(data)


async def _give_id(socket: ServerConnection, request: Any) -> Any:
    if urlsplit(request.path).path.endswith("/id"):
        return socket.respond(HTTPStatus.OK, secrets.token_hex(8))
    return None


@contextmanager
def signaling_between() -> Iterator[SignalingBetween]:
    """Run a server while the context is open."""
    between, started = SignalingBetween(), threading.Event()
    thread = threading.Thread(target=between.serve_forever, args=(started,))
    thread.start()
    assert started.wait(PATIENCE_S)
    try:
        yield between
    finally:
        between.stop()
        thread.join(PATIENCE_S)
