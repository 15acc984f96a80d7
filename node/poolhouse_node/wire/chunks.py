"""Long messages in pieces, as PeerJS cuts them (wire, section 3, "Chunks")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poolhouse_node.wire.binarypack import pack
from poolhouse_node.wire.errors import WireError

__all__ = [
    "CHUNK_BYTES",
    "MAX_ASSEMBLING",
    "MAX_MESSAGE_BYTES",
    "MAX_PIECES",
    "Assembler",
    "Chunker",
    "is_chunk",
    "is_close_request",
]

CHUNK_BYTES = 16300
"""A packed message above this size travels in pieces of it."""

MAX_PIECES = 256
MAX_ASSEMBLING = 8
"""Messages of one connection that may be in pieces at once."""

MAX_MESSAGE_BYTES = MAX_PIECES * CHUNK_BYTES
"""About 4 MiB: peers drop anything longer."""

_MARK = "__peerData"


def is_chunk(message: object) -> bool:
    """Is this decoded message a piece (or a close request), and so never one for the room?"""
    return isinstance(message, Mapping) and _MARK in message


def is_close_request(message: object) -> bool:
    """Does this decoded message ask the receiver to close the connection?"""
    if not isinstance(message, Mapping):
        return False
    mark = message.get(_MARK)
    return isinstance(mark, Mapping) and mark.get("type") == "close"


@dataclass(slots=True)
class Chunker:
    """Cuts packed messages of one connection, in one direction."""

    next_number: int = 1
    """Counts the messages that were cut; whole ones take no number."""

    def split(self, packed: bytes) -> list[bytes]:
        """The data-channel messages that carry ``packed``, in the order to send them.

        Raises :class:`WireError` above :data:`MAX_MESSAGE_BYTES`.
        """
        if len(packed) <= CHUNK_BYTES:
            return [packed]
        if len(packed) > MAX_MESSAGE_BYTES:
            raise WireError(f"a message of {len(packed)} bytes is longer than peers take")
        number = self.next_number
        self.next_number += 1
        total = -(-len(packed) // CHUNK_BYTES)
        view = memoryview(packed)
        return [
            pack({_MARK: number, "n": n, "data": view[at : at + CHUNK_BYTES], "total": total})
            for n, at in enumerate(range(0, len(packed), CHUNK_BYTES))
        ]


@dataclass(slots=True)
class _Parts:
    total: int
    pieces: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Assembler:
    """Joins the pieces that one connection brings.

    Holds at most 8 messages of 256 pieces of 16300 bytes (33 MB). Whatever breaks a guard is
    dropped and counted: a ninth message, a piece out of range, longer than a piece can be or at
    odds with the pieces before it, a second copy. Drop the assembler with its connection.
    """

    dropped: int = 0
    _messages: dict[int, _Parts] = field(default_factory=dict)

    @property
    def assembling(self) -> int:
        """Messages of which some pieces have come."""
        return len(self._messages)

    @property
    def held_bytes(self) -> int:
        """Bytes of the pieces that wait for the rest of their message."""
        parts = self._messages.values()
        return sum(len(piece) for part in parts for piece in part.pieces.values())

    def feed(self, message: Mapping[str, Any]) -> bytes | None:
        """Take a message for which :func:`is_chunk` holds.

        Returns the packed message when its last piece came, for :func:`unpack`; a piece inside it
        must be ignored, not fed again.
        """
        number = message.get(_MARK)
        index, total, data = message.get("n"), message.get("total"), message.get("data")
        if not _piece_is_valid(number, index, total, data):
            self.dropped += 1
            return None
        return self._store(number, index, total, data)  # type: ignore[arg-type]  # checked above

    def _store(self, number: int, index: int, total: int, data: bytes) -> bytes | None:
        parts = self._messages.get(number)
        if parts is None and len(self._messages) < MAX_ASSEMBLING:
            parts = self._messages[number] = _Parts(total)
        if parts is None or parts.total != total or index in parts.pieces:
            self.dropped += 1
            return None
        parts.pieces[index] = data
        if len(parts.pieces) < total:
            return None
        del self._messages[number]
        return b"".join(parts.pieces[n] for n in range(total))


def _piece_is_valid(number: object, index: object, total: object, data: object) -> bool:
    return (
        isinstance(number, int)
        and isinstance(total, int)
        and isinstance(index, int)
        and 1 <= total <= MAX_PIECES
        and 0 <= index < total
        and isinstance(data, bytes)
        and len(data) <= CHUNK_BYTES
    )
