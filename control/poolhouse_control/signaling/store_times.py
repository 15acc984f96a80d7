"""The times of a shared store. All follow from the life of a lease."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoreTimes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTimes:
    """Seconds."""

    lease_s: float = 15.0
    """After this long without a sign of life a replica counts as dead."""
    record_s: float = 600.0
    """Life of an owner record, unless it is touched. Long, so that epochs go on growing."""
    queue_s: float = 8.0
    """Life of a queue, if nobody takes its messages back in time."""
    hand_over_s: float = 10.0
    """How long an id that was handed over is kept for its token."""
    assert_per_s: float = 500.0
    """Ids that are written again in a second after the store was away."""

    @property
    def renew_every_s(self) -> float:
        """Two renewals may fail before the lease is gone."""
        return self.lease_s / 3

    @property
    def touch_every_s(self) -> float:
        """Two rounds of touches may fail before a record is gone."""
        return self.record_s * 0.3

    @property
    def probe_every_s(self) -> float:
        """How often the own channel is probed."""
        return self.lease_s * 2 / 3

    @property
    def probe_patience_s(self) -> float:
        """How long a probe may take. Together with the pause: one lease."""
        return self.lease_s / 3
