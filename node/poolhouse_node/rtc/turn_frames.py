"""TURN messages out of datagrams and out of a stream (RFC 8656, sections 2.1 and 12.5). No I/O.

A datagram is one message. On a stream the length fields tell where one ends, and channel data is
padded to a multiple of four bytes there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "PREFIX_BYTES",
    "Framing",
    "allocate_transaction",
    "frame_for_stream",
    "framing_of",
    "granted_transaction",
    "is_message",
]

PREFIX_BYTES: Final = 4
"""Enough of a message to know its length."""

_STUN_HEADER_BYTES: Final = 20
_COOKIE: Final = b"\x21\x12\xa4\x42"
_ALLOCATE: Final = b"\x00\x03"
_ALLOCATE_SUCCESS: Final = b"\x01\x03"


@dataclass(frozen=True, slots=True)
class Framing:
    """How long a message is, in bytes."""

    message: int
    padding: int
    """After it, on a stream."""


def framing_of(prefix: bytes) -> Framing | None:
    """The length of the message that begins with ``prefix``; None when none does."""
    if len(prefix) < PREFIX_BYTES:
        return None
    length = int.from_bytes(prefix[2:4], "big")
    match prefix[0] >> 6:
        case 0 if length % 4 == 0:
            return Framing(_STUN_HEADER_BYTES + length, 0)
        case 1:
            return Framing(PREFIX_BYTES + length, -length % 4)
        case _:
            return None


def frame_for_stream(datagram: bytes) -> bytes | None:
    """A datagram as it goes onto a stream; None when it is no whole message."""
    framing = framing_of(datagram)
    if framing is None:
        return None
    padded = framing.message + framing.padding
    if not framing.message <= len(datagram) <= padded:  # a sender may pad datagrams as well
        return None
    if not is_message(datagram):
        return None
    return datagram[: framing.message] + bytes(framing.padding)


def is_message(message: bytes) -> bool:
    """Does a message of the right length have the cookie where one must be?"""
    return message[0] >> 6 != 0 or message[4:8] == _COOKIE


def allocate_transaction(message: bytes) -> bytes | None:
    """The transaction of a request for an allocation; None for other messages."""
    return message[8:20] if message[:2] == _ALLOCATE else None


def granted_transaction(message: bytes) -> bytes | None:
    """The transaction of an allocation that the relay gave; None for other messages."""
    return message[8:20] if message[:2] == _ALLOCATE_SUCCESS else None
