"""Counts of what happened, as plain numbers that the metrics endpoint reads at scrape time.

The hub adds to them without locks or label look-ups, and stays free of any metrics library.
Every label value is a member of an enumeration here, so the set of series is closed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

__all__ = [
    "ConnectOutcome",
    "Direction",
    "DisconnectReason",
    "DroppedFrame",
    "RelayKind",
    "RelayRoute",
    "TakeoverKind",
    "Tally",
]


class ConnectOutcome(StrEnum):
    """How an attempt to register ended."""

    OPENED = "opened"
    ID_TAKEN = "id_taken"
    BAD_KEY = "bad_key"
    BAD_PARAMS = "bad_params"
    LIMIT = "limit"
    ORIGIN = "origin"


class DisconnectReason(StrEnum):
    """Why a registered socket ended."""

    PEER = "peer"
    """The client closed, or its connection was lost."""
    LEFT = "left"
    """The client signed off with ``LEAVE``."""
    REPLACED = "replaced"
    SILENT = "silent"
    BAD_FRAMES = "bad_frames"
    TOO_BIG = "too_big"
    SLOW_READER = "slow_reader"
    LOST_ID = "lost_id"
    """Presence says that somebody else owns the id now."""
    SHUTDOWN = "shutdown"


class RelayKind(StrEnum):
    """Messages that pass from peer to peer (signaling, 4.1)."""

    OFFER = "OFFER"
    ANSWER = "ANSWER"
    CANDIDATE = "CANDIDATE"
    LEAVE = "LEAVE"


class RelayRoute(StrEnum):
    """What became of a message."""

    LOCAL = "local"
    """Its receiver has a socket in this process."""
    QUEUED = "queued"
    DROPPED = "dropped"
    """Nobody to give it to and nothing to wait for, or no room to wait in."""


class DroppedFrame(StrEnum):
    """Why a frame was not acted on."""

    BAD = "bad"
    IGNORED = "ignored"


class Direction(StrEnum):
    """Seen from the server."""

    IN = "in"
    OUT = "out"


class TakeoverKind(StrEnum):
    """By what right a socket got an id that was in use."""

    SAME_TOKEN = "same_token"  # noqa: S105 - a label value, not a secret


def _zeros[Label: StrEnum](labels: type[Label]) -> dict[Label, int]:
    return dict.fromkeys(labels, 0)


@dataclass(slots=True)
class Tally:
    """Counters since start. Only the hub and the switchboard add to them."""

    connects: dict[ConnectOutcome, int] = field(default_factory=lambda: _zeros(ConnectOutcome))
    disconnects: dict[DisconnectReason, int] = field(
        default_factory=lambda: _zeros(DisconnectReason)
    )
    messages: dict[tuple[RelayKind, RelayRoute], int] = field(
        default_factory=lambda: {(kind, route): 0 for kind in RelayKind for route in RelayRoute}
    )
    message_bytes: dict[Direction, int] = field(default_factory=lambda: _zeros(Direction))
    takeovers: dict[TakeoverKind, int] = field(default_factory=lambda: _zeros(TakeoverKind))
    dropped_frames: dict[DroppedFrame, int] = field(default_factory=lambda: _zeros(DroppedFrame))
    heartbeats: int = 0
    expired: int = 0
    """``EXPIRE`` notices sent."""
    outbox_dropped: int = 0
    """Messages lost because their receiver read too slowly."""
