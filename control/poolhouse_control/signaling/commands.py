"""What the hub asks of its shell, as values.

``Send`` and ``Close`` go to sockets of this process. ``Claim``, ``Release``, ``Route`` and
``Expire`` are questions to the presence store; their answers go back into the hub.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NewType

import msgspec

from poolhouse_control.signaling.presence import Parcel
from poolhouse_control.signaling.tally import DisconnectReason

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Claim",
    "Close",
    "CloseCode",
    "Command",
    "Commands",
    "Expire",
    "Release",
    "Route",
    "Send",
    "SocketId",
]

SocketId = NewType("SocketId", int)
"""Names one socket of this process, for ever: numbers are not used again."""


class CloseCode(IntEnum):
    """Clients ignore close codes (signaling, 2.1); they are for people who read traces."""

    NORMAL = 1000
    POLICY = 1008
    RESTART = 1012
    """This process ends; another one takes clients."""
    FULL = 1013
    REPLACED = 4001
    """Another socket with the same token took the id over."""


class Send(msgspec.Struct, frozen=True):
    """Write a text frame."""

    socket: SocketId
    text: str


class Close(msgspec.Struct, frozen=True):
    """Write what is queued, then close. The hub has forgotten the socket already."""

    socket: SocketId
    code: CloseCode
    reason: DisconnectReason | None = None
    """None when the socket was refused and never registered."""
    hear_out: bool = False
    """Act on what the client sends until it has answered the close."""


class Claim(msgspec.Struct, frozen=True):
    """Register ``peer_id`` for the socket; answer with ``Hub.claimed``."""

    socket: SocketId
    peer_id: str
    token: str

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"Claim(socket={self.socket}, peer_id={self.peer_id!r})"


class Release(msgspec.Struct, frozen=True):
    """Give an id up. No answer."""

    peer_id: str
    epoch: int
    hand_over: bool = False
    """Its client is sent to another replica: the store may keep it for its token."""


class Route(msgspec.Struct, frozen=True):
    """Find the receiver of a parcel that has no socket here; answer with ``Hub.routed``."""

    parcel: Parcel
    may_wait: bool
    hop: int = 0
    """How often it was sent on already, counting this time; see ``Presence.route``."""


class Expire(msgspec.Struct, frozen=True):
    """Take waiting parcels back; answer with ``Hub.expired``."""

    peer_id: str
    senders: dict[int, str]
    """Ticket of each parcel and who sent it."""


type Command = Send | Close | Claim | Release | Route | Expire
type Commands = Sequence[Command]
