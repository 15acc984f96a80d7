"""TURN over TCP and TLS for an engine that speaks it over UDP only (engines, section 5).

One local UDP port stands for one address of a relay. Each local socket that sends to it gets a
connection of its own to the relay: to a relay, one connection is one client. What the network
would lose, this may lose as well: messages that do not fit are dropped, and the engine and SCTP
above it send again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from poolhouse_node.rtc import turn_frames
from poolhouse_node.rtc.peer import RtcError, TurnServer
from poolhouse_node.rtc.tasks import TaskSet
from poolhouse_node.rtc.turn import parse_relay_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.rtc.turn import RelayUrl

__all__ = ["TurnShim", "TurnShims"]

_CONNECT_TIMEOUT_S: Final = 10.0
_SILENCE_LIMIT_S: Final = 660.0
"""Allocations live for ten minutes and are refreshed before: no relay that holds one is silent
for longer. It ends connections of sockets that are gone."""
_PAUSE_AFTER_FAILURE_S: Final = 2.0
_MAX_FLOWS: Final = 1024
"""A room has at most 256 links with up to eight associations; few of them use one relay."""
_MAX_WAITING: Final = 64
"""Messages of one socket while its connection is being made; the oldest goes first."""
_MAX_UNSENT_BYTES: Final = 262_144
_MAX_DATAGRAM_BYTES: Final = 4096
"""The engine reads no larger ones."""

_log = logging.getLogger(__name__)

type _LocalAddress = tuple[Any, ...]


class TurnShim(asyncio.DatagramProtocol):
    """A local UDP port that stands for a relay's TCP or TLS port."""

    def __init__(
        self,
        url: RelayUrl,
        *,
        bind: str | None = None,
        tls: ssl.SSLContext | None = None,
        silence_limit_s: float = _SILENCE_LIMIT_S,
    ) -> None:
        self.port = 0
        self.silence_limit_s = silence_limit_s
        self._url = url
        self._bind = bind
        self._tls = tls
        self._flows: dict[_LocalAddress, _Flow] = {}
        self._tasks = TaskSet()
        self._transport: asyncio.DatagramTransport | None = None
        self._silent_until = 0.0

    @classmethod
    async def open(cls, url: RelayUrl, **settings: Any) -> Self:
        """Listen on a free loopback port. Close it at the end. Raises :class:`RtcError`."""
        try:
            transport, shim = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: cls(url, **settings), local_addr=("127.0.0.1", 0)
            )
        except OSError as error:
            raise RtcError(f"No local port for a relay over TCP: {error.strerror}.") from error
        shim._transport = transport  # noqa: SLF001  our own
        shim.port = transport.get_extra_info("sockname")[1]
        return shim

    @property
    def flows(self) -> int:
        """Connections to the relay, those being made included."""
        return len(self._flows)

    def datagram_received(self, data: bytes, addr: _LocalAddress) -> None:
        """What an engine sends."""
        message = turn_frames.frame_for_stream(data)
        if message is None:
            return
        flow = self._flow(addr, message)
        if flow is not None:
            flow.send(message)

    def _flow(self, address: _LocalAddress, message: bytes) -> _Flow | None:
        flow = self._flows.get(address)
        if flow is not None and not flow.is_of_an_older_socket(message):
            return flow
        if flow is not None:
            flow.end()
        loop = asyncio.get_running_loop()
        if len(self._flows) >= _MAX_FLOWS or loop.time() < self._silent_until:
            return None
        flow = self._flows[address] = _Flow(self, lambda data: self._answer(data, address))
        flow.task = self._tasks.spawn(self._run(flow, address), "turn-shim")
        return flow

    async def _run(self, flow: _Flow, address: _LocalAddress) -> None:
        try:
            await flow.run()
        except (OSError, TimeoutError, UnicodeError, RtcError) as error:
            loop = asyncio.get_running_loop()
            self._silent_until = loop.time() + _PAUSE_AFTER_FAILURE_S
            _log.warning(
                "relay.unreachable: %s:%d: %s", self._url.host, self._url.port, _say(error)
            )
        finally:
            if self._flows.get(address) is flow:
                del self._flows[address]

    def _answer(self, message: bytes, address: _LocalAddress) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(message, address)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection to the relay. Its certificate must be good for the URL's host."""
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            return await asyncio.open_connection(
                self._url.host,
                self._url.port,
                ssl=self._tls if self._url.transport == "tls" else None,
                local_addr=(self._bind, 0) if self._bind is not None else None,
            )

    async def close(self) -> None:
        """Close the port and every connection."""
        if self._transport is not None:
            self._transport.close()
        await self._tasks.cancel()
        self._flows.clear()


class _Flow:
    """One socket of an engine and its connection to the relay."""

    def __init__(self, shim: TurnShim, answer: Callable[[bytes], None]) -> None:
        self.task: asyncio.Task[None] | None = None
        self._shim = shim
        self._answer = answer
        self._waiting: deque[bytes] = deque(maxlen=_MAX_WAITING)
        self._writer: asyncio.StreamWriter | None = None
        self._granted: bytes | None = None

    def is_of_an_older_socket(self, message: bytes) -> bool:
        """Does a new socket speak, that got the port of one that is gone?

        A relay gives one allocation to a connection: the second request for one means that
        somebody else begins.
        """
        asked = turn_frames.allocate_transaction(message)
        return asked is not None and self._granted not in (None, asked)

    def send(self, message: bytes) -> None:
        """Send a message to the relay, or drop it when too much waits."""
        if self._writer is None:
            if message not in self._waiting:  # sent again because nobody answered yet
                self._waiting.append(message)
        elif self._writer.transport.get_write_buffer_size() < _MAX_UNSENT_BYTES:
            self._writer.write(message)

    def end(self) -> None:
        """Drop the connection."""
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        """Connect, then pass back what the relay says until it has nothing more to say."""
        reader, self._writer = await self._shim.connect()
        try:
            while self._waiting:
                self._writer.write(self._waiting.popleft())
            await self._pass_back(reader)
        finally:
            self._writer.transport.abort()

    async def _pass_back(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                async with asyncio.timeout(self._shim.silence_limit_s):
                    message = await _read_message(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                return  # the relay ended it; what the engine sends next makes another
            except TimeoutError:
                return
            if self._granted is None:
                self._granted = turn_frames.granted_transaction(message)
            if len(message) <= _MAX_DATAGRAM_BYTES:
                self._answer(message)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    prefix = await reader.readexactly(turn_frames.PREFIX_BYTES)
    framing = turn_frames.framing_of(prefix)
    if framing is None:
        raise RtcError("it does not speak TURN")
    rest_bytes = framing.message + framing.padding - len(prefix)
    message = (prefix + await reader.readexactly(rest_bytes))[: framing.message]
    if not turn_frames.is_message(message):
        raise RtcError("it does not speak TURN")
    return message


def _say(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    return str(error) or type(error).__name__


class TurnShims:
    """The shims of one network, made when a relay needs one."""

    def __init__(self, *, bind: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._bind = bind
        self._tls = tls
        self._shims: dict[RelayUrl, TurnShim] = {}

    async def local(self, relay: TurnServer) -> TurnServer:
        """The relay as an engine can use it that speaks UDP only. Raises :class:`RtcError`."""
        url = parse_relay_url(relay.url)
        if url.transport == "udp":
            return relay
        if url not in self._shims:
            self._shims[url] = await TurnShim.open(url, bind=self._bind, tls=self._trust(url))
        local_url = f"turn:127.0.0.1:{self._shims[url].port}?transport=udp"
        return TurnServer(local_url, relay.username, relay.credential)

    def _trust(self, url: RelayUrl) -> ssl.SSLContext | None:
        if url.transport == "tls" and self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    async def close(self) -> None:
        """Close all of them."""
        for shim in self._shims.values():
            await shim.close()
        self._shims.clear()
