"""A PeerJS signaling client: register, be introduced, stay registered (signaling; liveness, 12).

One task owns the socket: it opens it, reads it, and opens it again when it is lost. The id and
the token stay the same over reconnects, so that a server that has not noticed the loss lets the
client take its id over.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from poolhouse_node.room.links import reconnect_delay_s
from poolhouse_node.rtc.peer import RtcError
from poolhouse_node.rtc.signaling_messages import MAX_MESSAGE_BYTES, Inbound, encode_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from websockets.asyncio.client import ClientConnection

    from poolhouse_node.rtc.signaling_messages import Kind
    from poolhouse_node.wire.servers import SignalServer

__all__ = [
    "SignalingClient",
    "SignalingError",
    "SignalingFailure",
    "SignalingTimes",
    "is_loopback",
]

type SignalingFailure = Literal["network", "server-error", "id-taken", "invalid-id", "invalid-key"]

CLIENT_VERSION: Final = "1.5.5"
"""The PeerJS client this one behaves like."""

_KEY = "peerjs"
_ID = re.compile(r"[A-Za-z0-9]+(?:[ _-][A-Za-z0-9]+)*")
_MAX_ID_CHARS = 128
_MOVES_ON: frozenset[SignalingFailure] = frozenset({"network", "server-error"})

_log = logging.getLogger(__name__)


class SignalingError(RtcError):
    """The signaling server cannot be used. ``kind`` says why."""

    def __init__(self, kind: SignalingFailure, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: SignalingFailure = kind


@dataclass(frozen=True, slots=True)
class SignalingTimes:
    """Deadlines and periods, in seconds."""

    opening_s: float = 8.0
    opening_last_s: float = 20.0
    """For the last server of the list."""
    heartbeat_s: float = 5.0
    sending_s: float = 5.0
    closing_s: float = 2.0
    reconnect_s: Callable[[int], float] = reconnect_delay_s


def is_loopback(server: SignalServer) -> bool:
    """Does the server run on this machine?"""
    host = server.host.strip("[]")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SignalingClient:
    """One registration at one of several servers.

    ``on_message`` gets what the server relays (``OFFER``, ``ANSWER``, ``CANDIDATE``, ``LEAVE``,
    ``EXPIRE``), ``on_state`` each loss and return of the server after :meth:`open`. Set both
    before the first await after it.
    """

    def __init__(
        self,
        servers: Sequence[SignalServer],
        peer_id: str | None = None,
        *,
        times: SignalingTimes | None = None,
    ) -> None:
        if not servers:
            raise SignalingError("network", "No signaling server is configured.")
        self.peer_id = peer_id or ""
        self.server = servers[0]
        self.on_message: Callable[[Inbound], None] = _ignore
        self.on_state: Callable[[bool], None] = _ignore
        self._servers = tuple(servers)
        self._times = times or SignalingTimes()
        self._token = secrets.token_hex(8)
        self._socket: ClientConnection | None = None
        self._hurried = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def token(self) -> str:
        """Proves the registration to its server, and to nobody else."""
        return self._token

    @property
    def connected(self) -> bool:
        """New links can be made."""
        return self._socket is not None

    async def open(self) -> str:
        """Register at the first server of the list that works; the id there.

        Raises :class:`SignalingError`: of kind ``network`` or ``server-error`` when none
        worked, another at once.
        """
        if self.peer_id and not _is_id(self.peer_id):
            raise SignalingError("invalid-id", f"{self.peer_id!r} cannot be the id of a device.")
        error: SignalingError | None = None
        for server in self._servers:
            last = server is self._servers[-1]
            limit_s = self._times.opening_last_s if last else self._times.opening_s
            try:
                socket = await self._register(server, limit_s)
            except SignalingError as failure:
                if failure.kind not in _MOVES_ON:
                    raise
                error = failure
                continue
            self.server = server
            self._socket = socket
            self._keeper = asyncio.create_task(self._keep(socket), name="signaling")
            return self.peer_id
        assert error is not None
        raise error

    def hurry(self) -> None:
        """A link is wanted: try to reach a lost server now, not when its turn comes."""
        if not self.connected:
            self._hurried.set()

    async def send(self, kind: Kind, dst: str, payload: Any) -> None:
        """Have the server relay a message. Raises :class:`RtcError` when it cannot be sent."""
        socket = self._socket
        if socket is None:
            raise RtcError("The signaling server is not connected: no new link can be made now.")
        try:
            async with asyncio.timeout(self._times.sending_s):
                await socket.send(encode_message(kind, dst, payload))
        except (ConnectionClosed, TimeoutError) as error:
            raise RtcError("The signaling server did not take a message.") from error

    async def close(self) -> None:
        """Leave the server; open links stay."""
        self.on_message = self.on_state = _ignore
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
        socket, self._socket = self._socket, None
        await _drop(socket)  # the task may not have come to hold it

    # Opening.

    async def _register(self, server: SignalServer, limit_s: float) -> ClientConnection:
        """Open a socket and wait for ``OPEN``."""
        socket: ClientConnection | None = None
        try:
            async with asyncio.timeout(limit_s):
                if not self.peer_id:
                    self.peer_id = await _ask_for_id(server)
                socket = await self._open_socket(server)
                _check_opened(server, self.peer_id, await socket.recv())
        except (TimeoutError, OSError, InvalidHandshake, InvalidURI, ConnectionClosed) as error:
            # No cause in the text: the URL in it would hold the token.
            await _drop(socket)
            raise SignalingError(
                "network", f"The signaling server {server.label} does not answer."
            ) from (None if isinstance(error, InvalidURI | InvalidHandshake) else error)
        except BaseException:
            await _drop(socket)
            raise
        return socket

    async def _open_socket(self, server: SignalServer) -> ClientConnection:
        return await connect(
            f"{'wss' if server.secure else 'ws'}://{server.host}:{server.port}{server.path}peerjs"
            f"?key={_KEY}&id={quote(self.peer_id, safe='')}&token={self._token}"
            f"&version={CLIENT_VERSION}",
            max_size=MAX_MESSAGE_BYTES,
            compression=None,
            open_timeout=None,  # the caller has a deadline over all of it
            close_timeout=self._times.closing_s,
            proxy=None if is_loopback(server) else True,
            logger=_quiet_log(),
        )

    # The task.

    async def _keep(self, socket: ClientConnection) -> None:
        while True:
            try:
                await self._serve(socket)
            finally:
                await _drop(socket)
            _log.info("signaling.lost: %s", self.server.label)
            self.on_state(False)
            socket = self._socket = await self._reconnect()
            _log.info("signaling.back: %s", self.server.label)
            self.on_state(True)

    async def _serve(self, socket: ClientConnection) -> None:
        """Read until the socket ends."""
        beat = asyncio.create_task(self._beat(socket), name="signaling-heartbeat")
        try:
            async for data in socket:
                self._take(data)
        except ConnectionClosed:
            pass
        finally:
            self._socket = None
            beat.cancel()

    async def _beat(self, socket: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(self._times.heartbeat_s)
                await socket.send(encode_message("HEARTBEAT"))

    async def _reconnect(self) -> ClientConnection:
        attempt = 0
        while True:
            self._hurried.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._times.reconnect_s(attempt)):
                    await self._hurried.wait()
            attempt += 1
            try:
                return await self._register(self.server, self._times.opening_s)
            except SignalingError as error:
                _log.info("signaling.retry: attempt %d: %s", attempt, error.kind)

    def _take(self, data: str | bytes) -> None:
        try:
            message = msgspec.json.decode(data, type=Inbound)
        except msgspec.MsgspecError:
            _log.debug("signaling.malformed: %d bytes", len(data))
            return
        self.on_message(message)


def _ignore(*_: Any) -> None:
    """The callback of those who set none."""


def _is_id(text: str) -> bool:
    return len(text) <= _MAX_ID_CHARS and _ID.fullmatch(text) is not None


def _quiet_log() -> logging.Logger:
    """websockets logs the URL of a handshake, which holds the token: only faults are let by."""
    log = logging.getLogger(f"{__name__}.socket")
    log.setLevel(logging.ERROR)
    return log


async def _ask_for_id(server: SignalServer) -> str:
    import httpx

    url = (
        f"{'https' if server.secure else 'http'}://{server.host}:{server.port}{server.path}"
        f"{_KEY}/id?version={CLIENT_VERSION}"
    )
    try:
        async with httpx.AsyncClient(trust_env=not is_loopback(server), timeout=None) as client:  # noqa: S113  the caller has a deadline over all of it
            answer = await client.get(url)
    except httpx.HTTPError as error:
        raise SignalingError(
            "network", f"The signaling server {server.label} does not answer."
        ) from error
    peer_id = answer.text.strip()
    if answer.status_code != httpx.codes.OK or not _is_id(peer_id):
        raise SignalingError(
            "server-error", f"The signaling server {server.label} gave no id to this device."
        )
    return peer_id


def _check_opened(server: SignalServer, peer_id: str, data: str | bytes) -> None:
    """The first message must be ``OPEN`` (signaling, section 2)."""
    try:
        message = msgspec.json.decode(data, type=Inbound)
    except msgspec.MsgspecError as error:
        raise SignalingError(
            "server-error", f"{server.label} is not a signaling server: it sends something else."
        ) from error
    match message.type:
        case "OPEN":
            return
        case "ID-TAKEN":
            raise SignalingError(
                "id-taken", f"The id {peer_id} is in use on the signaling server {server.label}."
            )
        case "INVALID-KEY":
            raise SignalingError(
                "invalid-key", f"The signaling server {server.label} wants another key."
            )
        case _:
            raise SignalingError(
                "server-error",
                f"The signaling server {server.label} refused this device: {_reason(message)}.",
            )


def _reason(message: Inbound) -> str:
    """The text of an ``ERROR``, fit to be shown."""
    with contextlib.suppress(msgspec.MsgspecError):
        text = msgspec.json.decode(message.payload, type=dict[str, str]).get("msg", "")
        shown = "".join(c for c in text[:200] if c.isprintable()).strip().rstrip(".")
        return shown or "no reason given"
    return "no reason given"


async def _drop(socket: ClientConnection | None) -> None:
    if socket is not None:
        await socket.close()
