"""How the presence store does, as plain numbers that the metrics endpoint reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from poolhouse_control.signaling.tally import Buckets

__all__ = ["COMMAND_BOUNDS_S", "StoreFault", "StoreOp", "StoreTally"]

COMMAND_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
"""0.5 s is the deadline of a command."""


class StoreOp(StrEnum):
    """What the store was asked."""

    CLAIM = "claim"
    RELEASE = "release"
    ROUTE = "route"
    TOUCH = "touch"
    EXPIRE = "expire"
    HOLDS = "holds"
    LEASE = "lease"
    PUBLISH = "publish"


class StoreFault(StrEnum):
    """Why it did not answer."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    """It answered with an error: out of memory, read-only, no permission."""


@dataclass(slots=True)
class StoreTally:
    """Counters since start, and the present state."""

    is_up: bool = True
    replicas: int = 1
    """Replicas with a lease, as last seen."""
    command_s: dict[StoreOp, Buckets] = field(
        default_factory=lambda: {op: Buckets(COMMAND_BOUNDS_S) for op in StoreOp}
    )
    errors: dict[tuple[StoreOp, StoreFault], int] = field(
        default_factory=lambda: {(op, fault): 0 for op in StoreOp for fault in StoreFault}
    )
    probes_lost: int = 0
    """Probes to ourselves that did not come back: the subscription was dead."""
