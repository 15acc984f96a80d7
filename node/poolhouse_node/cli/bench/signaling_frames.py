"""The frames of a signaling load: made once, stamped per message. Bytes only, no sockets.

A client masks its frames. The key is fixed, so that only the stamp is masked per message, and it
is not zero: some servers skip the work for a zero key, which no browser sends.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = [
    "CLOSE",
    "HEARTBEAT",
    "PING",
    "TEXT",
    "MessageFrames",
    "ServerFrame",
    "Stamp",
    "client_frame",
    "read_server_frame",
    "upgrade_request",
]

TEXT: Final = 0x1
CLOSE: Final = 0x8
PING: Final = 0x9
_FIN: Final = 0x80
_MASKED: Final = 0x80
_SHORT_MAX: Final = 125
_LENGTH_16, _LENGTH_64 = 126, 127
_KEY: Final = b"\x5a\xc3\x17\x9e"
_STAMP_BYTES: Final = 24


def client_frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """One whole masked frame. Raises :class:`ValueError` from 64 KiB on."""
    return _head(len(payload), opcode) + _masked(payload)


def _head(size_bytes: int, opcode: int) -> bytes:
    if size_bytes <= _SHORT_MAX:
        return bytes((_FIN | opcode, _MASKED | size_bytes)) + _KEY
    if size_bytes >= 1 << 16:
        raise ValueError("a message of a signaling load is below 64 KiB")
    return bytes((_FIN | opcode, _MASKED | _LENGTH_16)) + size_bytes.to_bytes(2) + _KEY


def _masked(data: bytes, at: int = 0) -> bytes:
    """``data``, masked as the part of a payload that begins ``at``."""
    return (int.from_bytes(data) ^ _key_stream(len(data), at)).to_bytes(len(data))


def _key_stream(size_bytes: int, at: int) -> int:
    return int.from_bytes((_KEY * (size_bytes // 4 + 2))[at % 4 :][:size_bytes])


HEARTBEAT: Final = client_frame(b'{"type":"HEARTBEAT"}')


class ServerFrame(NamedTuple):
    """Where a frame lies in what was received."""

    opcode: int
    start: int
    """Of its payload."""
    end: int


def read_server_frame(data: bytes, at: int) -> ServerFrame | None:
    """The frame that begins ``at``; None while it is not whole. Servers do not mask."""
    left = len(data) - at
    if left < 2:
        return None
    size_bytes, start = data[at + 1], at + 2
    if size_bytes == _LENGTH_16:
        start += 2
    elif size_bytes == _LENGTH_64:
        start += 8
    if size_bytes >= _LENGTH_16:
        if len(data) < start:
            return None
        size_bytes = int.from_bytes(data[at + 2 : start])
    end = start + size_bytes
    return ServerFrame(data[at] & 0x0F, start, end) if end <= len(data) else None


class Stamp(NamedTuple):
    """What makes a message one of its kind."""

    number: int
    """Of the messages from this sender."""
    sent_at_ns: int


@dataclass(frozen=True, slots=True)
class MessageFrames:
    """Messages of a size from one peer to another, in the shape of a PeerJS offer."""

    _frame_head: bytes
    _frame_tail: bytes
    _stamp_key: int
    _heard_head: bytes
    _heard_tail: bytes

    @classmethod
    def between(cls, src: str, dst: str, size_bytes: int) -> MessageFrames:
        """Make them; ``size_bytes`` is what ``src`` sends. Too small a size is the smallest."""
        head = b'{"type":"OFFER","dst":"%s","payload":{"stamp":"' % dst.encode()
        heard = b'{"type":"OFFER","src":"%s","dst":"%s","payload":{"stamp":"'
        tail = _offer_tail(size_bytes - len(head) - _STAMP_BYTES)
        stamp_at = len(head)
        size_bytes = stamp_at + _STAMP_BYTES + len(tail)
        return cls(
            _head(size_bytes, TEXT) + _masked(head),
            _masked(tail, stamp_at + _STAMP_BYTES),
            _key_stream(_STAMP_BYTES, stamp_at),
            heard % (src.encode(), dst.encode()),
            tail,
        )

    def frame(self, number: int, sent_at_ns: int) -> bytes:
        """The frame of one message."""
        stamp = int.from_bytes(_digits(Stamp(number, sent_at_ns))) ^ self._stamp_key
        return self._frame_head + stamp.to_bytes(_STAMP_BYTES) + self._frame_tail

    def read(self, heard: bytes) -> Stamp | None:
        """The stamp of a relayed message; None unless every byte is as it has to be."""
        start = len(self._heard_head)
        if (
            len(heard) != start + _STAMP_BYTES + len(self._heard_tail)
            or not heard.startswith(self._heard_head)
            or not heard.endswith(self._heard_tail)
        ):
            return None
        digits = heard[start : start + _STAMP_BYTES]
        try:
            stamp = Stamp(int(digits[:8], 16), int(digits[8:], 16))
        except ValueError:
            return None
        return stamp if _digits(stamp) == digits else None  # int() reads more than we write


def _digits(stamp: Stamp) -> bytes:
    return b"%08x%016x" % stamp


def _offer_tail(size_bytes: int) -> bytes:
    """The rest of an offer, padded with lines of session description, escapes included."""
    line = "a=candidate:1 1 udp 2122260223 192.0.2.7 50000 typ host\r\n"
    rest = {"sdp": {"type": "offer", "sdp": ""}, "type": "data", "connectionId": "dc_load"}
    empty = json.dumps(rest, separators=(",", ":"))
    missing = max(0, size_bytes - len('",') - len(empty) + len("{") - len("}"))
    lines, left = divmod(missing, len(json.dumps(line)) - len('""'))
    rest["sdp"] = {"type": "offer", "sdp": line * lines + "=" * left}
    return b'",' + json.dumps(rest, separators=(",", ":")).encode()[1:] + b"}"


def upgrade_request(host: str, path: str, peer_id: str) -> bytes:
    """What the PeerJS client asks for (signaling, 1), with the id as its token."""
    return (
        f"GET {path}peerjs?key=peerjs&id={peer_id}&token={peer_id}&version=1.5.5 HTTP/1.1\r\n"
        f"Host: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cG9vbGhvdXNlLWJlbmNoIQ==\r\n\r\n"
    ).encode()
