"""Introductions: from a peer id to an open connection, both ways (signaling, section 3).

:class:`Dialer` is what a network needs; :class:`PeerJsDialer` does it with a signaling client and
a WebRTC engine.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from poolhouse_node.room.links import LinkFailed, join_step, no_path_sentence
from poolhouse_node.rtc.connection import Connection
from poolhouse_node.rtc.peer import CLOSING_TIMEOUT_S, OPENING_LONGEST_S, RtcError, make_peer
from poolhouse_node.rtc.signaling_messages import (
    Answer,
    Candidate,
    Inbound,
    Offer,
    SessionDescription,
    decode_payload,
)
from poolhouse_node.rtc.tasks import TaskSet
from poolhouse_node.rtc.udp import UdpCheck

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from poolhouse_node.rtc.connection import ConnectionPort
    from poolhouse_node.rtc.paths import PathKeeper
    from poolhouse_node.rtc.peer import Engine, IceSettings, Peer
    from poolhouse_node.rtc.signaling import SignalingClient

__all__ = ["DialTimes", "Dialer", "PeerJsDialer"]

_SERIALIZATION: Final = "binary"
_MAX_OPENING = 32
_MAX_OPENING_OF_ONE = 10
"""A device opens one main connection and seven stripes at most, and may be replacing one."""
_MAX_NAME_CHARS = 128

_log = logging.getLogger(__name__)


class Dialer(Protocol):
    """Makes connections and takes those of others. Callbacks run on the loop."""

    on_incoming: Callable[[ConnectionPort], None]
    on_signaling: Callable[[bool], None]

    @property
    def peer_id(self) -> str:
        """The id under which others dial."""
        ...

    async def connect(
        self, peer_id: str, *, label: str | None = None, timeout_s: float
    ) -> ConnectionPort:
        """An open connection. Raises :class:`~poolhouse_node.room.links.LinkFailed`."""
        ...

    def hurry(self) -> None:
        """Introductions are wanted: reach a lost signaling server as soon as it is back."""
        ...

    async def close(self) -> None:
        """Stop introductions; open connections stay."""
        ...


@dataclass(frozen=True, slots=True)
class DialTimes:
    """Deadlines of one introduction, in seconds."""

    scale: float = 1.0
    """Shortens the 5, 15 and 40 s of relay, section 6, for tests."""
    look_s: float = 1.0
    """How often the search for a path is looked at."""
    incoming_s: float = OPENING_LONGEST_S


def _ignore(*_: Any) -> None:
    """The callback of those who set none."""


class PeerJsDialer:
    """Introductions through a PeerJS server. Satisfies :class:`Dialer`.

    Takes an opened signaling client over: its callbacks, and its end in :meth:`close`; and
    what keeps ``ice`` fresh, if anything does.
    """

    def __init__(
        self,
        signaling: SignalingClient,
        engine: Engine,
        ice: IceSettings,
        *,
        paths: PathKeeper | None = None,
        times: DialTimes | None = None,
        peers: Callable[[Engine, IceSettings], Peer] = make_peer,
        ask_udp: Callable[[IceSettings], Awaitable[bool | None]] | None = None,
    ) -> None:
        self.on_incoming: Callable[[ConnectionPort], None] = _ignore
        self.on_signaling: Callable[[bool], None] = _ignore
        self.ice = ice
        """For associations made from now on; relays are refreshed by replacing it."""
        self._signaling = signaling
        self._engine: Engine = engine
        self._paths = paths
        self._times = times or DialTimes()
        self._make_peer = peers
        self._opening: dict[tuple[str, str], Connection] = {}
        self._tasks = TaskSet()
        self._abandoned = TaskSet()
        self._udp = UdpCheck(self._tasks, ask_udp)
        self._udp.look(ice)
        signaling.on_message = self._relayed
        signaling.on_state = self._signaling_changed
        if paths is not None:
            paths.keep_fresh(self._use)

    @property
    def peer_id(self) -> str:
        return self._signaling.peer_id

    async def connect(
        self, peer_id: str, *, label: str | None = None, timeout_s: float
    ) -> ConnectionPort:
        deadline = asyncio.get_running_loop().time() + timeout_s
        self._udp.look(self.ice)
        self.hurry()
        try:
            return await self._attempt(peer_id, label, deadline)
        except LinkFailed as failure:
            if failure.kind != "no-path" or asyncio.get_running_loop().time() >= deadline:
                raise
        # One set-up in a few hundred never comes up, and the next one does (engines, pitfall 8).
        _log.info("link.redial: no path at the first try")
        return await self._attempt(peer_id, label, deadline)

    def hurry(self) -> None:
        self._signaling.hurry()

    async def close(self) -> None:
        await self._tasks.cancel()
        for connection in list(self._opening.values()):
            self._abandon(connection)
        self._opening.clear()
        await self._abandoned.finish(CLOSING_TIMEOUT_S)
        await self._signaling.close()
        if self._paths is not None:
            await self._paths.close()

    def _use(self, ice: IceSettings) -> None:
        self.ice = ice

    # Dialing.

    async def _attempt(self, peer_id: str, label: str | None, deadline: float) -> Connection:
        connection_id = f"dc_{secrets.token_hex(8)}"
        try:
            connection = self._connection(peer_id, connection_id, label or connection_id, True)
        except RtcError as error:
            raise LinkFailed("no-path", str(error)) from error
        try:
            async with asyncio.timeout_at(deadline):
                await self._introduce(connection)
                await self._until_open(connection)
        except TimeoutError as error:
            raise self._late(connection) from error
        except RtcError as error:
            raise self._failed(connection, error) from error
        finally:
            self._forget(connection)
            if not connection.is_open:  # a late open must not pull this device in
                self._abandon(connection)
        return connection

    async def _introduce(self, connection: Connection) -> None:
        offer = Offer(
            sdp=SessionDescription("offer", await connection.offer()),
            type="data",
            connection_id=connection.connection_id,
            label=connection.label,
            reliable=True,
            serialization=_SERIALIZATION,
        )
        await self._signaling.send("OFFER", connection.peer_id, offer)

    async def _until_open(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        while not await connection.wait_open(self._times.look_s):
            elapsed_s = (loop.time() - started_at) / self._times.scale
            self._check_progress(connection, elapsed_s)

    def _check_progress(self, connection: Connection, elapsed_s: float) -> None:
        """Raise when the attempt has come to nothing (relay, section 6)."""
        ice, answered = connection.ice_state, connection.answered
        step = join_step(elapsed_s, ice, answered=answered)
        if step == "fail-no-path" or (answered and ice == "failed"):
            raise self._no_path()
        if step == "fail-no-room":
            raise _no_such_peer()

    def _no_path(self) -> LinkFailed:
        said = no_path_sentence(relay=bool(self.ice.turn), udp_blocked=self._udp.blocked)
        return LinkFailed("no-path", said)

    def _late(self, connection: Connection) -> LinkFailed:
        if connection.answered:
            return self._no_path()
        return LinkFailed("timeout", "The other device did not answer in time.")

    def _failed(self, connection: Connection, error: RtcError) -> LinkFailed:
        if not self._signaling.connected and not connection.answered:
            return LinkFailed("signaling", str(error))
        if connection.ice_state == "failed":
            return self._no_path()
        return LinkFailed("closed", str(error))

    # Being dialed.

    def _offered(self, src: str, offer: Offer) -> None:
        key = (src, offer.connection_id)
        if (older := self._opening.pop(key, None)) is not None:
            self._abandon(older)
        if not self._may_open(src, offer):
            _log.info("link.offer_refused: from %.8s", src)
            return
        label = offer.label or offer.connection_id
        try:
            connection = self._connection(src, offer.connection_id, label, False)
        except RtcError as error:
            _log.warning("link.offer_failed: %s", error)
            return
        connection.on_open = lambda: self._incoming_opened(connection)
        self._tasks.spawn(self._answer(connection, offer.sdp.sdp), "dialer-answer")

    def _may_open(self, src: str, offer: Offer) -> bool:
        of_one = sum(peer_id == src for peer_id, _ in self._opening)
        return (
            offer.type == "data"
            and offer.serialization == _SERIALIZATION
            and 0 < len(offer.connection_id) <= _MAX_NAME_CHARS
            and len(offer.label or "") <= _MAX_NAME_CHARS
            and 0 < len(src) <= _MAX_NAME_CHARS
            and of_one < _MAX_OPENING_OF_ONE
            and len(self._opening) < _MAX_OPENING
        )

    async def _answer(self, connection: Connection, sdp: str) -> None:
        try:
            async with asyncio.timeout(self._times.incoming_s):
                answer = Answer(
                    sdp=SessionDescription("answer", await connection.answer(sdp)),
                    type="data",
                    connection_id=connection.connection_id,
                )
                await self._signaling.send("ANSWER", connection.peer_id, answer)
                await connection.wait_open()
        except (TimeoutError, RtcError) as error:
            _log.info("link.incoming_failed: from %.8s: %s", connection.peer_id, error)
        finally:
            self._forget(connection)
            if not connection.is_open:
                self._abandon(connection)

    def _incoming_opened(self, connection: Connection) -> None:
        self._forget(connection)
        self.on_incoming(connection)

    # Both.

    def _connection(self, peer_id: str, connection_id: str, label: str, dialed: bool) -> Connection:
        peer = self._make_peer(self._engine, self.ice)
        connection = Connection(
            peer, peer_id=peer_id, connection_id=connection_id, label=label, dialed=dialed
        )
        self._opening[peer_id, connection_id] = connection
        return connection

    def _forget(self, connection: Connection) -> None:
        key = (connection.peer_id, connection.connection_id)
        if self._opening.get(key) is connection:
            del self._opening[key]

    def _abandon(self, connection: Connection) -> None:
        connection.close()
        self._abandoned.spawn(connection.wait_closed(), "dialer-closing")

    def _relayed(self, message: Inbound) -> None:
        match message.type:
            case "OFFER":
                if (offer := decode_payload(message, Offer)) is not None:
                    self._offered(message.src, offer)
            case "ANSWER":
                if (answer := decode_payload(message, Answer)) is not None:
                    self._answered(message.src, answer)
            case "CANDIDATE":
                if (candidate := decode_payload(message, Candidate)) is not None:
                    self._candidate(message.src, candidate)
            case "EXPIRE":
                self._expired(message.src)
            case _:  # LEAVE would close healthy links on a server's word: they have their own end
                return

    def _answered(self, src: str, answer: Answer) -> None:
        connection = self._opening.get((src, answer.connection_id))
        if connection is not None and connection.dialed:
            self._tasks.spawn(self._accept(connection, answer.sdp.sdp), "dialer-accept")

    async def _accept(self, connection: Connection, sdp: str) -> None:
        try:
            await connection.accept(sdp)
        except RtcError as error:
            _log.info("link.answer_refused: from %.8s: %s", connection.peer_id, error)
            connection.close()

    def _candidate(self, src: str, candidate: Candidate) -> None:
        connection = self._opening.get((src, candidate.connection_id))
        if connection is not None:
            sent = candidate.candidate
            connection.add_candidate(sent.candidate, sent.sdp_mid or "0")

    def _expired(self, peer_id: str) -> None:
        """The server could not deliver: no such peer, unless it has answered since."""
        for connection in list(self._opening.values()):
            if connection.peer_id == peer_id and connection.dialed and not connection.answered:
                connection.fail(_no_such_peer())

    def _signaling_changed(self, connected: bool) -> None:
        self.on_signaling(connected)


def _no_such_peer() -> LinkFailed:
    return LinkFailed("no-such-peer", "No device with that id is on the signaling server.")
