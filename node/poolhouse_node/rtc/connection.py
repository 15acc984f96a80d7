"""One PeerJS data connection: an association with its three channels (wire, sections 1 to 4).

The main channel is ordered and carries BinaryPack messages, long ones in pieces. The wire
channel (77) and the keep-alive channel (78) are made before the remote description is applied:
libdatachannel resets a stream on which a message arrives before its channel exists (decision 4).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from poolhouse_node.rtc.binding import binding_of, fingerprint_of
from poolhouse_node.rtc.outgoing import Outgoing
from poolhouse_node.rtc.peer import ChannelClosed, RtcError
from poolhouse_node.rtc.tasks import TaskSet
from poolhouse_node.wire.binarypack import unpack
from poolhouse_node.wire.chunks import Assembler, is_chunk, is_close_request
from poolhouse_node.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from poolhouse_node.rtc.peer import CandidatePair, Channel, Peer, PeerState

__all__ = [
    "STRIPE_LABEL",
    "Connection",
    "ConnectionListener",
    "ConnectionPort",
    "ConnectionState",
]

type ConnectionState = Literal["opening", "open", "closing", "closed"]

STRIPE_LABEL: Final = "stripe"

_WIRE_STREAM, _WIRE_LABEL = 77, "swarm-wire"
_KEEPALIVE_STREAM, _KEEPALIVE_LABEL = 78, "swarm-ka"
CLOSE_REQUEST: Final = {"__peerData": {"type": "close"}}
"""What PeerJS sends to close a connection after everything before it (wire, section 3)."""

_FLUSH_S = 3.0
_LINGER_S = 2.5
"""How long a closing side waits for the other to have read everything: aiortc sends a lost packet
again after 1 s at the earliest (engines, pitfall 12)."""
_MAX_EARLY_MESSAGES = 256
_MAX_CANDIDATES = 64
_MAX_SDP_CHARS = 64 * 1024

_log = logging.getLogger(__name__)


class ConnectionListener(Protocol):
    """The one who reads a connection."""

    def message(self, value: Any) -> None:
        """A decoded message, in order. Any value that BinaryPack can hold."""
        ...

    def heard(self) -> None:
        """Something came on the main channel, whatever it was: a sign of life."""
        ...

    def closed(self, reason: str) -> None:
        """The connection ended and this side did not close it. The reason is a sentence."""
        ...


class ConnectionPort(Protocol):
    """What a link needs of a connection. A simulation has its own."""

    peer_id: str
    label: str
    dialed: bool
    engine: str
    wire: Channel
    keepalive: Channel
    path_broke: bool
    """The network ended it: nothing came through any more."""

    @property
    def is_open(self) -> bool:
        """Messages can be sent and will arrive unless it closes."""
        ...

    def listen(self, listener: ConnectionListener) -> None:
        """Start reading; what came before is handed over first. Once."""
        ...

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message. Raises :class:`ChannelClosed`, or ``WireError`` for what cannot be
        packed."""
        ...

    async def drain(self) -> None:
        """Wait until little is queued, before more bulk is sent. Raises ``ChannelClosed``."""
        ...

    def binding(self) -> str:
        """The text that proofs on this association are bound to; may be empty."""
        ...

    def pair(self) -> CandidatePair | None:
        """The path in use, if known."""
        ...

    def close(self) -> None:
        """Begin to close: what was sent still goes out. The listener hears nothing more."""
        ...

    async def wait_closed(self) -> None:
        """Wait, for a few seconds at most, until it is closed."""
        ...


def _ignore(*_: Any) -> None:
    """The callback of those who set none."""


class Connection:
    """A connection over a :class:`Peer`. Satisfies :class:`ConnectionPort`.

    Whoever introduces the two ends calls :meth:`offer` and :meth:`accept`, or :meth:`answer`,
    and :meth:`add_candidate`, then :meth:`wait_open`.
    """

    def __init__(self, peer: Peer, *, peer_id: str, connection_id: str, label: str, dialed: bool):
        self.peer_id = peer_id
        self.connection_id = connection_id
        self.label = label
        self.dialed = dialed
        self.engine: str = peer.engine
        self.state: ConnectionState = "opening"
        self.answered = False
        self.path_broke = False
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_open: Callable[[], None] = _ignore
        self._peer = peer
        self._listener: ConnectionListener | None = None
        self._early: list[Any] = []
        self._ended_because: str | None = None
        self._ended = asyncio.Event()
        self._tasks = TaskSet()
        self._closing: asyncio.Task[None] | None = None
        self._candidates: list[tuple[str, str]] = []
        self._candidate_count = 0
        self._described = False
        self._remote_sdp: str | None = None
        self._outgoing = Outgoing(self._refused)
        self._assembler = Assembler()
        self._make_channels()

    def _make_channels(self) -> None:
        peer = self._peer
        self.wire = peer.channel(_WIRE_LABEL, stream_id=_WIRE_STREAM)
        self.keepalive = peer.channel(
            _KEEPALIVE_LABEL, stream_id=_KEEPALIVE_STREAM, ordered=False, max_retransmits=0
        )
        self.keepalive.on_close = self._ended.set
        peer.on_state = self._peer_changed
        peer.on_channel = self._announced
        self._main: Channel | None = None
        if self.dialed:
            self._take(peer.channel(self.label))

    def _announced(self, channel: Channel) -> None:
        """The acceptor's main channel is the first one announced; further ones are closed."""
        if self._main is None:
            self._take(channel)
        else:
            channel.close()

    def _take(self, channel: Channel) -> None:
        self._main = channel
        channel.on_message = self._received
        channel.on_close = lambda: self._end("The other device closed the connection.")
        channel.on_open = self._main_opened
        if channel.is_open:
            self._main_opened()

    def _main_opened(self) -> None:
        if self.state == "opening" and self._main is not None:
            self.state = "open"
            self._outgoing.start(self._main)
            if not self._opened.done():
                self._opened.set_result(None)
            self.on_open()

    # Introduction.

    async def offer(self) -> str:
        """Our whole description. Raises :class:`RtcError`."""
        return await self._peer.offer()

    async def answer(self, sdp: str) -> str:
        """Take the other end's offer; our whole description. Raises :class:`RtcError`."""
        _check_description(sdp)
        self._remote_sdp = sdp
        answer = await self._peer.answer(sdp)
        self.answered = True
        self._start_candidates()
        return answer

    async def accept(self, sdp: str) -> None:
        """Take the answer to our offer. A second one is ignored. Raises :class:`RtcError`."""
        if self.answered:
            return
        _check_description(sdp)
        self._remote_sdp = sdp
        self.answered = True
        await self._peer.accept(sdp)
        self._start_candidates()

    def add_candidate(self, candidate: str, mid: str) -> None:
        """Take a remote candidate; before the description it waits (engines, section 4)."""
        self._candidate_count += 1
        if not candidate or self._candidate_count > _MAX_CANDIDATES:
            return
        self._candidates.append((candidate, mid))
        if self._described and self.state == "opening":
            self._start_candidates()

    def _start_candidates(self) -> None:
        """Nobody waits for them: aiortc looks up a browser's ``.local`` names for up to 2 s."""
        self._described = True
        self._tasks.spawn(self._apply_candidates(), "connection-candidates")

    async def _apply_candidates(self) -> None:
        while self._candidates:
            candidate, mid = self._candidates.pop(0)
            try:
                await self._peer.add_candidate(candidate, mid)
            except RtcError as error:
                _log.debug("connection.candidate_refused: %s", error)

    async def wait_open(self, timeout_s: float | None = None) -> bool:
        """Wait until it is open; False when it still is not.

        Raises :class:`RtcError` when it ended, or what :meth:`fail` was given.
        """
        await asyncio.wait([self._opened], timeout=timeout_s)
        if not self._opened.done():
            return False
        self._opened.result()
        return True

    def fail(self, error: Exception) -> None:
        """Give up opening: whoever waits gets the error."""
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()  # seen: nobody may be waiting any more
        self._begin_closing()

    @property
    def ice_state(self) -> str:
        """State of the search for a path."""
        return self._peer.ice_state

    # The port.

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    def listen(self, listener: ConnectionListener) -> None:
        self._listener = listener
        early, self._early = self._early, []
        for value in early:
            listener.message(value)
        if self._ended_because is not None:
            listener.closed(self._ended_because)

    def send(self, message: Mapping[str, Any]) -> None:
        if self.state not in ("opening", "open"):
            raise ChannelClosed("The connection is closed.")
        self._outgoing.send(message)

    async def drain(self) -> None:
        await self._outgoing.drain()

    def binding(self) -> str:
        local, remote = self._peer.descriptions()
        # Engines show what they made of a description: of several fingerprints perhaps one.
        as_it_came = fingerprint_of(self._remote_sdp)
        return binding_of(local, remote) if as_it_came == fingerprint_of(remote) else ""

    def pair(self) -> CandidatePair | None:
        return self._peer.pair()

    def close(self) -> None:
        self._listener = None
        self._begin_closing()

    async def wait_closed(self) -> None:
        if self._closing is not None:
            await asyncio.wait([self._closing])

    # Receiving.

    def _received(self, data: bytes) -> None:
        if self._listener is not None:
            self._listener.heard()
        try:
            value = unpack(data)
            if is_chunk(value):
                value = self._joined(value)
        except WireError as error:
            _log.debug("connection.malformed: %s", error)
            return
        if value is not None:
            self._hand_over(value)

    def _joined(self, piece: Any) -> Any:
        """The message whose last piece this is, or None."""
        if is_close_request(piece):
            self._end("The other device closed the connection.")
            return None
        packed = self._assembler.feed(piece)
        value = unpack(packed) if packed is not None else None
        return None if is_chunk(value) else value

    def _hand_over(self, value: Any) -> None:
        if self._listener is not None:
            self._listener.message(value)
        elif self.state in ("closing", "closed"):
            return
        elif len(self._early) < _MAX_EARLY_MESSAGES:
            self._early.append(value)
        else:
            self._end("The other device sent too much before it was listened to.")

    # Ending.

    def _peer_changed(self, state: PeerState) -> None:
        if state == "failed":
            self.path_broke = True
            self._end("The path to the other device broke.")
        elif state == "closed":
            self._end("The other device closed the connection.")

    def _refused(self, reason: str) -> None:
        self._end(reason)

    def _end(self, reason: str) -> None:
        """The connection ended, not by this side's wish."""
        self._ended.set()
        if self._ended_because is not None or self.state in ("closing", "closed"):
            return
        self._ended_because = reason
        listener, self._listener = self._listener, None
        self._begin_closing()
        if listener is not None:
            listener.closed(reason)

    def _begin_closing(self) -> None:
        if self.state in ("closing", "closed"):
            return
        was_open, self.state = self.state == "open", "closing"
        self._outgoing.stop()
        if not self._opened.done():
            self.fail(RtcError(self._ended_because or "The connection is closed."))
        self._closing = asyncio.get_running_loop().create_task(
            self._shut(linger=was_open), name="connection-closing"
        )

    async def _shut(self, *, linger: bool) -> None:
        try:
            if linger and not self._ended.is_set():
                await self._say_goodbye()
        finally:
            self.state = "closed"
            await self._tasks.cancel()
            await self._peer.close()

    async def _say_goodbye(self) -> None:
        """Destroying an association drops what is on its way. So a request to close goes out as
        the last message: the other end has read everything when it acts on it. Two ends that
        close at once take each other's request for the answer."""
        with contextlib.suppress(TimeoutError, RtcError):
            async with asyncio.timeout(_FLUSH_S):
                await self._outgoing.finish(CLOSE_REQUEST)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await self._ended.wait()


def _check_description(sdp: str) -> None:
    """Refuse what cannot be one; aiortc takes any text in silence (engines, section 4)."""
    needed = ("m=application", "a=ice-ufrag:", "a=fingerprint:")
    if len(sdp) > _MAX_SDP_CHARS or not all(part in sdp for part in needed):
        raise RtcError("The other device sent a description that is none.")
