"""What links carried, in plain numbers, for whoever wants to know."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["LinkCounts"]


@dataclass(frozen=True, slots=True)
class LinkCounts:
    """Of one link, or of several: counts add up."""

    frames_sent: int = 0
    frames_received: int = 0
    sent_first_bytes: int = 0
    sent_second_bytes: int = 0
    """Small frames go twice (wire, section 6)."""
    received_first_bytes: int = 0
    received_second_bytes: int = 0
    frames_delayed: int = 0
    """Frames that were here before one that was sent earlier."""
    gaps_passed: int = 0
    """Frames given up because every channel had shown a newer one (wire, section 7)."""
    gaps_waited: int = 0
    """Frames given up because nothing came for as long as one waits."""
    keepalives: int = 0

    def __add__(self, other: LinkCounts) -> LinkCounts:
        names = (each.name for each in fields(self))
        return LinkCounts(*(getattr(self, name) + getattr(other, name) for name in names))
