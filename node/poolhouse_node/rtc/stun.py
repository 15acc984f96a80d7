"""STUN messages to bytes and back (RFC 8489), as far as a TURN client needs them. No I/O."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

__all__ = [
    "HEADER_BYTES",
    "Attribute",
    "Message",
    "MessageClass",
    "Method",
    "StunError",
    "decode",
    "encode",
    "error_of",
    "is_signed",
    "long_term_key",
    "message_bytes",
    "pack_address",
    "unpack_address",
]

HEADER_BYTES: Final = 20
TRANSACTION_BYTES: Final = 12

_COOKIE: Final = 0x2112A442
_HEADER: Final = struct.Struct("!HHI12s")
_ATTRIBUTE: Final = struct.Struct("!HH")
_FINGERPRINT_XOR: Final = 0x5354554E
_SIGNATURE_BYTES: Final = 20
_FAMILIES: Final = {1: 4, 2: 16}


class StunError(Exception):
    """Bytes that are no STUN message, or an attribute that is none."""


class Method(IntEnum):
    """What a message is about."""

    BINDING = 0x001
    ALLOCATE = 0x003
    REFRESH = 0x004
    SEND = 0x006
    DATA = 0x007
    CREATE_PERMISSION = 0x008
    CHANNEL_BIND = 0x009


class MessageClass(IntEnum):
    """Who says it; the bits as they stand in the type."""

    REQUEST = 0x000
    INDICATION = 0x010
    SUCCESS = 0x100
    ERROR = 0x110


class Attribute(IntEnum):
    """Types of attributes."""

    USERNAME = 0x0006
    MESSAGE_INTEGRITY = 0x0008
    ERROR_CODE = 0x0009
    CHANNEL_NUMBER = 0x000C
    LIFETIME = 0x000D
    XOR_PEER_ADDRESS = 0x0012
    DATA = 0x0013
    REALM = 0x0014
    NONCE = 0x0015
    XOR_RELAYED_ADDRESS = 0x0016
    REQUESTED_ADDRESS_FAMILY = 0x0017
    REQUESTED_TRANSPORT = 0x0019
    FINGERPRINT = 0x8028


type Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. ``attributes`` in the order of the wire."""

    method: int
    kind: MessageClass
    transaction: bytes
    attributes: tuple[tuple[int, bytes], ...] = ()

    def get(self, attribute: Attribute) -> bytes | None:
        """First value of an attribute."""
        return next((value for name, value in self.attributes if name == attribute), None)


def encode(message: Message, key: bytes | None = None) -> bytes:
    """Bytes of a message; with ``key`` signed. A fingerprint always ends it."""
    body = b"".join(_packed(name, value) for name, value in message.attributes)
    if key is not None:
        head = _head(message, len(body) + _ATTRIBUTE.size + _SIGNATURE_BYTES)
        signature = hmac.digest(key, head + body, hashlib.sha1)
        body += _packed(Attribute.MESSAGE_INTEGRITY, signature)
    head = _head(message, len(body) + _ATTRIBUTE.size + 4)
    checksum = zlib.crc32(head + body) ^ _FINGERPRINT_XOR
    return head + body + _packed(Attribute.FINGERPRINT, checksum.to_bytes(4, "big"))


def message_bytes(header: bytes) -> int:
    """Length of the whole message that ``header`` (20 bytes) begins.

    Raises:
        StunError: it begins none.
    """
    if len(header) < HEADER_BYTES:
        raise StunError("A STUN header is cut off.")
    kind, length, cookie, _ = _HEADER.unpack_from(header)
    if kind & 0xC000 or length % 4 or cookie != _COOKIE:
        raise StunError("These bytes begin no STUN message.")
    return HEADER_BYTES + int(length)


def decode(data: bytes) -> Message:
    """Read one whole message.

    Raises:
        StunError: it is none.
    """
    if message_bytes(data) != len(data):
        raise StunError("A STUN message has another length than it says.")
    kind, _, _, transaction = _HEADER.unpack_from(data)
    method = (kind & 0x000F) | (kind & 0x00E0) >> 1 | (kind & 0x3E00) >> 2
    attributes: list[tuple[int, bytes]] = []
    at = HEADER_BYTES
    while at < len(data):
        name, length = _ATTRIBUTE.unpack_from(data, at)
        value = data[at + 4 : at + 4 + length]
        if len(value) != length:
            raise StunError("A STUN attribute is cut off.")
        attributes.append((name, value))
        at += 4 + length + -length % 4
    return Message(method, MessageClass(kind & 0x0110), transaction, tuple(attributes))


def is_signed(data: bytes, key: bytes) -> bool:
    """Tell whether a message that ``decode`` takes is signed with ``key``."""
    at = HEADER_BYTES
    while at + _ATTRIBUTE.size <= len(data):
        name, length = _ATTRIBUTE.unpack_from(data, at)
        if name == Attribute.MESSAGE_INTEGRITY and length == _SIGNATURE_BYTES:
            covered = at + _ATTRIBUTE.size + _SIGNATURE_BYTES - HEADER_BYTES
            head = data[:2] + covered.to_bytes(2, "big") + data[4:at]
            return hmac.compare_digest(
                hmac.digest(key, head, hashlib.sha1), data[at + 4 : at + 4 + length]
            )
        at += _ATTRIBUTE.size + length + -length % 4
    return False


def long_term_key(username: str, realm: str, password: str) -> bytes:
    """Key of a user in a realm (RFC 8489, 9.2.2), which is fixed as MD5."""
    text = f"{username}:{realm}:{password}".encode()
    return hashlib.md5(text, usedforsecurity=False).digest()


def error_of(message: Message) -> tuple[int, str]:
    """Code and reason of an error answer; code 0 when it says none."""
    value = message.get(Attribute.ERROR_CODE)
    if value is None or len(value) < 4:
        return 0, "no reason given"
    reason = value[4:].decode("utf-8", "replace").strip("\0 ")
    return (value[2] & 7) * 100 + value[3], "".join(c for c in reason if c.isprintable())


def pack_address(address: Address, transaction: bytes) -> bytes:
    """Value of an XOR-...-ADDRESS. An IPv4 address written as IPv6 stays IPv6."""
    host, port = address
    packed = ipaddress.ip_address(host).packed
    family = 1 if len(packed) == 4 else 2
    return struct.pack("!BBH", 0, family, port ^ (_COOKIE >> 16)) + _mixed(packed, transaction)


def unpack_address(value: bytes | None, transaction: bytes) -> Address:
    """Address in the value of an XOR-...-ADDRESS.

    Raises:
        StunError: there is none.
    """
    if value is None or len(value) < 4 or len(value) - 4 != _FAMILIES.get(value[1]):
        raise StunError("An address is missing or malformed.")
    port = int.from_bytes(value[2:4], "big") ^ (_COOKIE >> 16)
    return str(ipaddress.ip_address(_mixed(value[4:], transaction))), port


def _mixed(packed: bytes, transaction: bytes) -> bytes:
    mask = _COOKIE.to_bytes(4, "big") + transaction
    return bytes(byte ^ other for byte, other in zip(packed, mask, strict=False))


def _head(message: Message, length: int) -> bytes:
    method = message.method
    kind = (method & 0x000F) | (method & 0x0070) << 1 | (method & 0x0F80) << 2 | message.kind
    return _HEADER.pack(kind, length, _COOKIE, message.transaction)


def _packed(name: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(name, len(value)) + value + bytes(-len(value) % 4)
