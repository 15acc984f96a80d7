"""The peers of a signaling load: many sockets in this process, every message counted."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from poolhouse_node.cli.bench.signaling_frames import (
    CLOSE,
    HEARTBEAT,
    PING,
    TEXT,
    MessageFrames,
    client_frame,
    read_server_frame,
    upgrade_request,
)
from poolhouse_node.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Address", "Crowd", "Peer", "open_crowd"]

OPENING_AT_A_TIME = 64
OPENING_S = 20.0
PONG = 0xA
HEAD_BYTES_MAX = 16_384


@dataclass(frozen=True, slots=True)
class Address:
    """Where a signaling server listens, on loopback, without TLS."""

    host: str
    port: int
    path: str


class Peer(asyncio.Protocol):
    """One socket. What it hears from its sender is told to its crowd."""

    def __init__(self, peer_id: str, crowd: Crowd) -> None:
        self.peer_id = peer_id
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent = 0
        self.received = 0
        self.damaged = 0
        """Messages that came changed, twice or out of order."""
        self._crowd = crowd
        self._rest = b""
        self._upgraded = False
        self._to: MessageFrames | None = None
        self._from: MessageFrames | None = None
        self._expected = 0

    def pair(self, to: MessageFrames, sender: MessageFrames) -> None:
        """Whom it speaks to and whom it hears."""
        self._to, self._from = to, sender

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(CommandFailed("The server closed a socket that was opening."))

    def ask(self, request: bytes) -> None:
        """Begin the handshake."""
        self._transport.write(request)

    def send(self) -> None:
        """One message, stamped with its number and the time."""
        assert self._to is not None
        self._transport.write(self._to.frame(self.sent, time.monotonic_ns()))
        self.sent += 1

    def beat(self) -> None:
        """A sign of life: PeerServer counts nothing else as one (signaling, 5.2)."""
        self._transport.write(HEARTBEAT)

    def close(self) -> None:
        """End, without waiting for the server's word."""
        self._transport.write(client_frame((1000).to_bytes(2), CLOSE))
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at = 0 if self._upgraded else self._read_head(data)
        while self._upgraded and (frame := read_server_frame(data, at)) is not None:
            opcode, start, at = frame
            self._take(opcode, data[start:at])
        self._rest = data[at:]

    def _read_head(self, data: bytes) -> int:
        end = data.find(b"\r\n\r\n")
        if end < 0 and len(data) < HEAD_BYTES_MAX:
            return 0
        if data[:13] != b"HTTP/1.1 101 ":
            said = data[:64].partition(b"\r\n")[0].decode(errors="replace")
            self._fail(f"The server refused a WebSocket: {said}")
            return len(data)
        self._upgraded = True
        return end + 4

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == TEXT:
            self._take_text(payload)
        elif opcode == PING:
            self._transport.write(client_frame(payload, PONG))
        elif opcode == CLOSE:
            self._transport.close()

    def _take_text(self, text: bytes) -> None:
        if not self.opened.done():
            if text == b'{"type":"OPEN"}':
                self.opened.set_result(None)
            else:
                self._fail(f"The server refused a peer: {text[:80].decode(errors='replace')}")
            return
        stamp = self._from.read(text) if self._from is not None else None
        if stamp is None or stamp.number != self._expected:
            self.damaged += 1
        if stamp is not None and stamp.number >= self._expected:
            self._expected = stamp.number + 1
            self.received += 1
            self._crowd.hear(time.monotonic_ns() - stamp.sent_at_ns)

    def _fail(self, sentence: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(CommandFailed(sentence))
        self._transport.abort()


@dataclass(slots=True)
class Crowd:
    """Open peers, each of which sends to one other and hears another one."""

    peers: list[Peer] = field(default_factory=list)
    hear: Callable[[int], None] = lambda latency_ns: None
    """Told the latency in nanoseconds of each message that arrives. A phase puts its own."""

    @property
    def sent(self) -> int:
        """Messages so far."""
        return sum(peer.sent for peer in self.peers)

    @property
    def received(self) -> int:
        """Messages that came to their receiver, so far."""
        return sum(peer.received for peer in self.peers)

    @property
    def damaged(self) -> int:
        """Messages that came changed, twice or out of order."""
        return sum(peer.damaged for peer in self.peers)

    def beat(self) -> None:
        """A heartbeat from every peer."""
        for peer in self.peers:
            peer.beat()

    def close(self) -> None:
        """End all sockets."""
        for peer in self.peers:
            peer.close()


async def open_crowd(
    addresses: Sequence[Address], count: int, message_bytes: int, name: str = "load"
) -> Crowd:
    """Open ``count`` sockets, spread over the addresses in equal runs.

    Peer *i* sends to peer *i + count / 2*: with two addresses every message goes from one to the
    other. Raises :class:`CommandFailed` when a socket is refused or does not open in time.
    """
    crowd = Crowd()
    crowd.peers += [Peer(f"{name}-{number:05}", crowd) for number in range(count)]
    _pair(crowd.peers, message_bytes)
    waiting = ((peer, addresses[i * len(addresses) // count]) for i, peer in enumerate(crowd.peers))
    try:
        async with asyncio.timeout(OPENING_S + count / 100), asyncio.TaskGroup() as tasks:
            for _ in range(OPENING_AT_A_TIME):
                tasks.create_task(_open_each(waiting))
    except* (CommandFailed, OSError) as errors:
        raise CommandFailed(f"The sockets did not open: {errors.exceptions[0]}") from None
    except* TimeoutError:
        raise CommandFailed(f"{count} sockets did not open in time.") from None
    return crowd


def _pair(peers: Sequence[Peer], message_bytes: int) -> None:
    half = len(peers) // 2
    ids = [peer.peer_id for peer in peers]
    frames = [
        MessageFrames.between(ids[i], ids[(i + half) % len(ids)], message_bytes)
        for i in range(len(ids))
    ]
    for i, peer in enumerate(peers):
        peer.pair(to=frames[i], sender=frames[i - half])


async def _open_each(waiting: Iterator[tuple[Peer, Address]]) -> None:
    loop = asyncio.get_running_loop()
    for peer, address in waiting:
        transport, _ = await loop.create_connection(
            partial(_same, peer), address.host, address.port
        )
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.ask(upgrade_request(f"{address.host}:{address.port}", address.path, peer.peer_id))
        await peer.opened


def _same(peer: Peer) -> Peer:
    return peer
