"""What passes between a PeerJS client and its server (signaling, section 3)."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

__all__ = [
    "MAX_MESSAGE_BYTES",
    "MAX_SDP_CHARS",
    "Answer",
    "Candidate",
    "IceCandidate",
    "Inbound",
    "Kind",
    "Offer",
    "SessionDescription",
    "decode_payload",
    "encode_message",
]

MAX_MESSAGE_BYTES: Final = 256 * 1024
MAX_SDP_CHARS: Final = 64 * 1024

type Kind = Literal["OFFER", "ANSWER", "CANDIDATE"]


class SessionDescription(msgspec.Struct, frozen=True):
    """A description as a browser makes it."""

    type: str
    sdp: str


class Offer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The payload of ``OFFER``. ``metadata`` is not used (wire, section 1)."""

    sdp: SessionDescription
    type: str
    connection_id: str
    serialization: str
    label: str | None = None
    reliable: bool | None = None


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """The payload of ``ANSWER``."""

    sdp: SessionDescription
    type: str
    connection_id: str


class IceCandidate(msgspec.Struct, frozen=True, rename="camel"):
    """One candidate. An empty text is the end of them."""

    candidate: str = ""
    sdp_mid: str | None = None


class Candidate(msgspec.Struct, frozen=True, rename="camel"):
    """The payload of ``CANDIDATE``."""

    candidate: IceCandidate
    type: str
    connection_id: str


class Inbound(msgspec.Struct, frozen=True):
    """Any message of the server; its payload is read by those who know its type."""

    type: str
    src: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"null")


def decode_payload[T: msgspec.Struct](message: Inbound, form: type[T]) -> T | None:
    """The payload in its form, or None when a peer sent something else."""
    try:
        return msgspec.json.decode(message.payload, type=form)
    except msgspec.MsgspecError:
        return None


def encode_message(kind: str, dst: str | None = None, payload: Any = None) -> str:
    """A message to the server as text."""
    message: dict[str, Any] = {"type": kind}
    if dst is not None:
        message |= {"payload": payload, "dst": dst}
    return msgspec.json.encode(message).decode()
