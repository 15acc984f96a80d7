"""How many sockets are let in a second: a storm of reconnects must not stall those inside."""

from __future__ import annotations

__all__ = ["Turnstile"]


class Turnstile:
    """A token bucket. ``now`` is passed in."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._seen_at = 0.0

    def take(self, now: float) -> bool:
        """Let one in, if there is room."""
        passed_s = max(0.0, now - self._seen_at)
        self._left = min(self._burst, self._left + passed_s * self._per_s)
        self._seen_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
