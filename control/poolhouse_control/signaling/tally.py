"""Counts of what happened, as plain numbers that the metrics endpoint reads at scrape time.

The hub adds to them without locks or label look-ups, and stays free of any metrics library.
Every label value is a member of an enumeration here, so the set of series is closed.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

__all__ = [
    "DELIVER_BOUNDS_S",
    "Buckets",
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
    STORE_DOWN = "store_down"
    DRAINING = "draining"
    BUSY = "busy"
    """More sockets came in a second than are let in."""
    REPLACED = "replaced"
    """The id was taken over before its socket could be opened."""


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
    """Messages that pass from peer to peer (signaling, 4.1), and one that crosses replicas."""

    OFFER = "OFFER"
    ANSWER = "ANSWER"
    CANDIDATE = "CANDIDATE"
    LEAVE = "LEAVE"
    EXPIRE = "EXPIRE"
    """Our own notice, to a sender whose socket is at another replica."""


class RelayRoute(StrEnum):
    """What became of a message."""

    LOCAL = "local"
    """Its receiver has a socket in this process."""
    REMOTE = "remote"
    """Its receiver has one at another replica."""
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
    DEAD_OWNER = "dead_owner"
    """The replica of the owner had stopped renewing its lease."""


DELIVER_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""5 s is the life of a waiting message."""


class Buckets:
    """A histogram in plain numbers: one search and two additions an observation."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value in the first bucket whose bound it does not pass."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


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
    deliver_s: Buckets = field(default_factory=lambda: Buckets(DELIVER_BOUNDS_S))
    """From a message's arrival to its receiver's outbox, its replica, or a queue."""
    rerouted: int = 0
    """Parcels that came here although their receiver had moved on."""
    outbox_dropped: int = 0
    """Messages lost because their receiver read too slowly."""
