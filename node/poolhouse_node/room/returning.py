"""When a device that lost a link tries again, and when it gives up (liveness, sections 5, 10)."""

from __future__ import annotations

from typing import Final

__all__ = [
    "DEAD_LINK_WAIT_S",
    "KNOCKING_S",
    "KNOCK_S",
    "LINK_STALE_S",
    "REDIAL_S",
    "next_knock_s",
    "redial_delay_s",
]

DEAD_LINK_WAIT_S: Final = 45.0
"""The side that did not dial waits this long for a link that died."""
LINK_STALE_S: Final = 12.0
"""A link quiet for longer is not good enough when one is asked for (section 2)."""
REDIAL_S: Final = 20.0
"""Patience with one dial of a dead link."""
KNOCK_S: Final = 3.0
KNOCKING_S: Final = 60.0
_REDIALS = 8
_REDIAL_STEP_S = 2.0
_REDIAL_STEPS = 4


def redial_delay_s(tries: int) -> float | None:
    """Wait before a dead link is dialed again after ``tries`` failures; ``None`` to give up."""
    if tries >= _REDIALS:
        return None
    return _REDIAL_STEP_S * min(tries, _REDIAL_STEPS)


def next_knock_s(lost_at: float, last_knock: float | None, now: float) -> float | None:
    """Wait before the next knock at the host's door; ``None`` once a minute has passed."""
    at = now if last_knock is None else max(now, last_knock + KNOCK_S)
    return at - now if at - lost_at <= KNOCKING_S else None
