"""The PeerJS messages: text of a frame to a value and back (signaling, 3).

Payloads belong to the peers. They are checked to be JSON, kept as the bytes they came in and
never re-encoded.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

import msgspec

from poolhouse_control.errors import BadFrame, IgnoredFrame
from poolhouse_control.signaling.limits import MAX_PEER_ID_CHARS, MAX_TOKEN_CHARS
from poolhouse_control.signaling.tally import RelayKind

__all__ = [
    "ID_TAKEN_TEXT",
    "OPEN_TEXT",
    "Answer",
    "Candidate",
    "ConnectParams",
    "Heartbeat",
    "Inbound",
    "Leave",
    "Offer",
    "Relayable",
    "error_text",
    "expire_text",
    "is_peer_id",
    "is_token",
    "parse_connect_params",
    "parse_frame",
    "relay_text",
    "wire_size",
]

_ABSENT: Final = msgspec.Raw(b"")
_PEER_ID: Final = re.compile(r"[A-Za-z0-9]+(?:[ _-][A-Za-z0-9]+)*")
_MAX_QUERY_FIELDS: Final = 32

OPEN_TEXT: Final = '{"type":"OPEN"}'
ID_TAKEN_TEXT: Final = '{"type":"ID-TAKEN","payload":{"msg":"ID is taken"}}'


class Heartbeat(msgspec.Struct, tag="HEARTBEAT", tag_field="type", frozen=True):
    """A sign of life. Never answered."""


class _Addressed(msgspec.Struct, tag_field="type", frozen=True):
    dst: str | None = None
    payload: msgspec.Raw = _ABSENT


class Offer(_Addressed, tag="OFFER", frozen=True):
    """First message of a link."""

    kind = RelayKind.OFFER


class Answer(_Addressed, tag="ANSWER", frozen=True):
    """Reply to an offer."""

    kind = RelayKind.ANSWER


class Candidate(_Addressed, tag="CANDIDATE", frozen=True):
    """One path a peer may be reached on."""

    kind = RelayKind.CANDIDATE


class Leave(_Addressed, tag="LEAVE", frozen=True):
    """With ``dst``: tells one peer goodbye. Without: the sender signs off (signaling, 4.2)."""

    kind = RelayKind.LEAVE


type Relayable = Offer | Answer | Candidate | Leave
type Inbound = Heartbeat | Relayable

# OPEN, ERROR, ID-TAKEN and EXPIRE are a server's to say: from a client they are unknown types.
_decoder: Final[msgspec.json.Decoder[Inbound]] = msgspec.json.Decoder(
    Heartbeat | Offer | Answer | Candidate | Leave
)
_encoder: Final = msgspec.json.Encoder()


class _Relayed(msgspec.Struct, frozen=True, omit_defaults=True):
    # The order of the members is that of the reference server (signaling, 3.3).
    type: str
    src: str
    dst: str
    payload: msgspec.Raw = _ABSENT


class ConnectParams(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says of itself when it opens its socket. Nothing in it is checked yet."""

    key: str = ""
    peer_id: str = ""
    token: str = ""
    origin: str | None = None
    """The ``Origin`` header; programs that are not browsers send none."""

    def __repr__(self) -> str:
        """Tell the id, never the token."""
        return f"ConnectParams(peer_id={self.peer_id[:8]!r}, origin={self.origin!r})"


def parse_frame(data: str | bytes) -> Inbound:
    """Read one frame of a client, text or binary.

    Raises:
        BadFrame: it is not a JSON object.
        IgnoredFrame: it is an object of no type, or with members, that we act on.
    """
    try:
        # A payload is passed on unread, so that broken UTF-8 in it would only show at the peer.
        text = data if isinstance(data, str) else data.decode()
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        if text.lstrip(" \t\r\n").startswith("{"):
            raise IgnoredFrame(str(error)) from None
        raise BadFrame("the frame is not a JSON object") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadFrame(f"the frame is not JSON: {type(error).__name__}") from None


def relay_text(message: Relayable, *, src: str, dst: str) -> str:
    """Write ``message`` for its receiver: true ``src``, untouched payload, nothing else."""
    relayed = _Relayed(message.kind, src, dst, message.payload)
    return _encoder.encode(relayed).decode()


def expire_text(*, src: str, dst: str) -> str:
    """Tell ``dst`` that ``src`` was never there (the names look swapped: signaling, 3.2)."""
    return _encoder.encode(_Relayed("EXPIRE", src, dst)).decode()


def error_text(sentence: str) -> str:
    """Refuse a socket. Clients read ``payload.msg`` without a check (signaling, 3.2)."""
    return _encoder.encode({"type": "ERROR", "payload": {"msg": sentence}}).decode()


def wire_size(data: str | bytes) -> int:
    """Bytes a frame takes on the wire, without its header."""
    return len(data) if isinstance(data, bytes) or data.isascii() else len(data.encode())


def is_peer_id(text: str) -> bool:
    """Follow the clients' own rule (signaling, 1.3) and a length that stores can bear."""
    return len(text) <= MAX_PEER_ID_CHARS and _PEER_ID.fullmatch(text) is not None


def is_token(text: str) -> bool:
    """Tokens are opaque; only their length is ours."""
    return 0 < len(text) <= MAX_TOKEN_CHARS


def parse_connect_params(query: bytes, *, origin: str | None = None) -> ConnectParams:
    """Read the query of a socket's address. The last one of a repeated parameter counts."""
    try:
        pairs = dict(
            parse_qsl(query.decode("latin-1"), max_num_fields=_MAX_QUERY_FIELDS, errors="replace")
        )
    except ValueError:  # too many fields: treated as if none were given
        pairs = {}
    return ConnectParams(
        key=pairs.get("key", ""),
        peer_id=pairs.get("id", ""),
        token=pairs.get("token", ""),
        origin=origin,
    )
