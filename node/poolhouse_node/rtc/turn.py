"""A small TURN client over UDP, TCP and TLS (RFC 8656): to look at relays, not to play through.

WebRTC engines bring clients of their own. This one exists because it can be told to ask for what a
good relay refuses, and reports the refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from poolhouse_node.rtc import stun
from poolhouse_node.rtc.peer import RtcError
from poolhouse_node.rtc.stun import Attribute, Message, MessageClass, Method

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from poolhouse_node.rtc.stun import Address

__all__ = ["Allocation", "RelayUrl", "TurnRefused", "allocated", "parse_relay_url"]

_RESEND_EVERY_S: Final = 0.5
_ANSWER_TIMEOUT_S: Final = 5.0
_LIFETIME_S: Final = 60
_UDP_PROTOCOL: Final = 17
_IPV6_FAMILY: Final = b"\x02\0\0\0"
_UNAUTHORIZED, _STALE_NONCE = 401, 438
_MAX_WAITING: Final = 64
_MAX_MESSAGE_BYTES: Final = 4096
_URL: Final = re.compile(
    r"(turns?):([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?(?:\?transport=(udp|tcp))?",
    re.IGNORECASE,
)


class TurnRefused(RtcError):
    """The relay answered with an error."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code


@dataclass(frozen=True, slots=True)
class RelayUrl:
    """Where a relay listens, and how to talk to it."""

    host: str
    port: int
    transport: str
    """``udp``, ``tcp`` or ``tls``."""


def parse_relay_url(url: str) -> RelayUrl:
    """Read a ``turn:`` or ``turns:`` URL.

    Raises:
        RtcError: it is none, or asks for DTLS, which no browser uses.
    """
    parts = _URL.fullmatch(url)
    if parts is None or not 0 < int(parts[3] or 1) < 65536:
        raise RtcError(f"{url!r} is not the address of a relay.")
    secure = parts[1].lower() == "turns"
    transport = (parts[4] or ("tcp" if secure else "udp")).lower()
    if secure and transport == "udp":
        raise RtcError(f"{url}: TLS over UDP is not looked at.")
    port = int(parts[3] or (5349 if secure else 3478))
    return RelayUrl(parts[2].strip("[]"), port, "tls" if secure else transport)


class Allocation:
    """One relayed address and the connection that keeps it."""

    def __init__(self, connection: _Connection, relayed: Address) -> None:
        self._connection = connection
        self.relayed = relayed

    async def permit(self, peer: str) -> None:
        """Ask that a peer's address may send to us. Raises ``TurnRefused``."""
        await self._connection.request(Method.CREATE_PERMISSION, peer=(peer, 0), attributes={})

    async def bind(self, peer: Address, channel: int = 0x4000) -> None:
        """Ask for a channel to a peer. Raises ``TurnRefused``."""
        number = channel.to_bytes(2, "big") + b"\0\0"
        await self._connection.request(
            Method.CHANNEL_BIND, peer=peer, attributes={Attribute.CHANNEL_NUMBER: number}
        )

    async def send(self, peer: Address, data: bytes) -> None:
        """Send to a peer through the relay. What has no permission is dropped in silence."""
        await self._connection.indicate(peer, data)

    async def receive(self) -> tuple[Address, bytes]:
        """Wait for what a peer sends. The caller has the deadline."""
        return await self._connection.received.get()


@asynccontextmanager
async def allocated(
    url: RelayUrl,
    username: str,
    credential: str,
    *,
    ipv6: bool = False,
    tls: ssl.SSLContext | None = None,
    answer_timeout_s: float = _ANSWER_TIMEOUT_S,
) -> AsyncIterator[Allocation]:
    """Hold an allocation while open; it is given back at the end.

    Raises:
        TurnRefused: the relay answers with an error.
        RtcError: it does not answer, or not as a relay does.
    """
    async with _connected(url, tls) as connection:
        connection.authenticate(username, credential)
        connection.answer_timeout_s = answer_timeout_s
        attributes = {
            Attribute.REQUESTED_TRANSPORT: bytes([_UDP_PROTOCOL, 0, 0, 0]),
            Attribute.LIFETIME: _LIFETIME_S.to_bytes(4, "big"),
        }
        if ipv6:
            attributes[Attribute.REQUESTED_ADDRESS_FAMILY] = _IPV6_FAMILY
        answer = await connection.request(Method.ALLOCATE, attributes=attributes)
        value = answer.get(Attribute.XOR_RELAYED_ADDRESS)
        try:
            yield Allocation(connection, stun.unpack_address(value, answer.transaction))
        finally:
            # An abandoned allocation counts against quotas until its lifetime ends.
            with contextlib.suppress(RtcError):
                end = {Attribute.LIFETIME: bytes(4)}
                await connection.request(Method.REFRESH, attributes=end, answer_s=1.0)


class _Connection:
    """Requests and answers over one transport."""

    def __init__(self, *, is_datagram: bool) -> None:
        self.received: asyncio.Queue[tuple[Address, bytes]] = asyncio.Queue(_MAX_WAITING)
        self.answer_timeout_s = _ANSWER_TIMEOUT_S
        self._is_datagram = is_datagram
        self._answers: dict[bytes, asyncio.Future[tuple[Message, bytes]]] = {}
        self._user: tuple[str, str] | None = None
        self._challenge: tuple[bytes, bytes] | None = None
        self.write: Any = None

    def authenticate(self, username: str, credential: str) -> None:
        """Use these once the relay asks for them."""
        self._user = username, credential

    async def request(
        self,
        method: Method,
        *,
        attributes: dict[Attribute, bytes],
        peer: Address | None = None,
        answer_s: float | None = None,
    ) -> Message:
        """Ask, with credentials when the relay wants them, and return the success."""
        for _ in range(3):
            answer = await self._ask(method, attributes, peer, answer_s or self.answer_timeout_s)
            if answer.kind is MessageClass.SUCCESS:
                return answer
            code, reason = stun.error_of(answer)
            if not self._takes_challenge(answer, code):
                raise TurnRefused(code, reason)
        raise TurnRefused(_STALE_NONCE, "the relay does not take its own nonce")

    def _takes_challenge(self, answer: Message, code: int) -> bool:
        realm, nonce = answer.get(Attribute.REALM), answer.get(Attribute.NONCE)
        first = code == _UNAUTHORIZED and self._challenge is None
        if nonce is None or not (first or code == _STALE_NONCE):
            return False
        known = self._challenge[0] if self._challenge is not None else b""
        self._challenge = realm or known, nonce
        return True

    async def _ask(
        self,
        method: Method,
        attributes: dict[Attribute, bytes],
        peer: Address | None,
        answer_s: float,
    ) -> Message:
        transaction = os.urandom(stun.TRANSACTION_BYTES)
        values = list(attributes.items())
        if peer is not None:
            values.append((Attribute.XOR_PEER_ADDRESS, stun.pack_address(peer, transaction)))
        key = self._sign(values)
        message = Message(method, MessageClass.REQUEST, transaction, tuple(values))
        waiting = self._answers[transaction] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(answer_s):
                answer, data = await self._answer_to(stun.encode(message, key), waiting)
        except TimeoutError:
            raise RtcError("The relay does not answer.") from None
        finally:
            del self._answers[transaction]
        if (
            key is not None
            and answer.kind is MessageClass.SUCCESS
            and not stun.is_signed(data, key)
        ):
            raise RtcError("The relay's answer is not signed with the credential.")
        return answer

    def _sign(self, values: list[tuple[Attribute, bytes]]) -> bytes | None:
        if self._challenge is None or self._user is None:
            return None
        realm, nonce = self._challenge
        username, credential = self._user
        values += [
            (Attribute.USERNAME, username.encode()),
            (Attribute.REALM, realm),
            (Attribute.NONCE, nonce),
        ]
        return stun.long_term_key(username, realm.decode("utf-8", "replace"), credential)

    async def _answer_to(
        self, data: bytes, waiting: asyncio.Future[tuple[Message, bytes]]
    ) -> tuple[Message, bytes]:
        await self.write(data)
        while self._is_datagram:  # a datagram may get lost
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RESEND_EVERY_S):
                    return await asyncio.shield(waiting)
            await self.write(data)
        return await waiting

    async def indicate(self, peer: Address, data: bytes) -> None:
        """Send data to a peer; nobody answers."""
        transaction = os.urandom(stun.TRANSACTION_BYTES)
        values = (
            (Attribute.XOR_PEER_ADDRESS, stun.pack_address(peer, transaction)),
            (Attribute.DATA, data),
        )
        await self.write(
            stun.encode(Message(Method.SEND, MessageClass.INDICATION, transaction, values))
        )

    def hear(self, data: bytes) -> None:
        """Take one message of the relay; noise is dropped."""
        with contextlib.suppress(stun.StunError, asyncio.QueueFull):
            message = stun.decode(data)
            if message.method == Method.DATA and message.kind is MessageClass.INDICATION:
                value = message.get(Attribute.XOR_PEER_ADDRESS)
                peer = stun.unpack_address(value, message.transaction)
                self.received.put_nowait((peer, message.get(Attribute.DATA) or b""))
            waiting = self._answers.get(message.transaction)
            answers = (MessageClass.SUCCESS, MessageClass.ERROR)
            if waiting is not None and not waiting.done() and message.kind in answers:
                waiting.set_result((message, data))

    def lose(self, error: Exception | None) -> None:
        """The connection ended: nobody will answer."""
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(RtcError(f"The relay closed the connection ({error})."))


@asynccontextmanager
async def _connected(url: RelayUrl, tls: ssl.SSLContext | None) -> AsyncIterator[_Connection]:
    try:
        if url.transport == "udp":
            async with _by_udp(url) as connection:
                yield connection
        else:
            context = (tls or ssl.create_default_context()) if url.transport == "tls" else None
            async with _by_stream(url, context) as connection:
                yield connection
    except ssl.SSLCertVerificationError as error:
        raise RtcError(f"its certificate is not trusted: {error.verify_message}") from error
    except (OSError, UnicodeError) as error:
        raise RtcError(str(error) or type(error).__name__) from error
    except stun.StunError as error:
        raise RtcError(f"The relay talks nonsense: {error}") from error


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def datagram_received(self, data: bytes, _address: Any) -> None:
        self._connection.hear(data)

    def error_received(self, error: Exception) -> None:
        self._connection.lose(error)


@asynccontextmanager
async def _by_udp(url: RelayUrl) -> AsyncIterator[_Connection]:
    connection = _Connection(is_datagram=True)
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Datagrams(connection), remote_addr=(url.host, url.port)
    )

    async def write(data: bytes) -> None:
        transport.sendto(data)

    connection.write = write
    try:
        yield connection
    finally:
        transport.close()


@asynccontextmanager
async def _by_stream(url: RelayUrl, tls: ssl.SSLContext | None) -> AsyncIterator[_Connection]:
    connection = _Connection(is_datagram=False)
    async with asyncio.timeout(_ANSWER_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(url.host, url.port, ssl=tls)

    async def write(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    connection.write = write
    listener = asyncio.create_task(_listen(reader, connection))
    try:
        yield connection
    finally:
        listener.cancel()
        await asyncio.wait({listener})
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()


async def _listen(reader: asyncio.StreamReader, connection: _Connection) -> None:
    error: Exception | None = None
    try:
        while True:
            connection.hear(await _read_message(reader))
    except (OSError, asyncio.IncompleteReadError, stun.StunError) as ended:
        error = ended
    finally:
        connection.lose(error)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    header = await reader.readexactly(stun.HEADER_BYTES)
    length = stun.message_bytes(header)
    if length > _MAX_MESSAGE_BYTES:
        raise stun.StunError("A message is larger than any a relay sends.")
    return header + await reader.readexactly(length - stun.HEADER_BYTES)
