"""When to stop asking something that does not answer. Time is passed in."""

from __future__ import annotations

__all__ = ["Breaker"]


class Breaker:
    """Opens after some failures in a row; each time it opens in vain, it stays open longer."""

    def __init__(self, *, failures: int = 5, first_s: float = 1.0, longest_s: float = 10.0) -> None:
        self._failures_to_open = failures
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0
        self._pause_s = first_s
        self._open_until: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether it tripped and no success has closed it since."""
        return self._open_until is not None

    def allows(self, now: float) -> bool:
        """Tell whether to ask."""
        return self._open_until is None or now >= self._open_until

    def try_again(self, now: float) -> None:
        """Allow a trial now."""
        if self._open_until is not None:
            self._open_until = now

    def succeeded(self) -> None:
        """Start afresh."""
        self._failures = 0
        self._pause_s = self._first_s
        self._open_until = None

    def failed(self, now: float) -> bool:
        """Count a failure. True when it opens by this one, having been closed."""
        self._failures += 1
        if self._open_until is not None:
            if now >= self._open_until:  # a trial: it failed too
                self._pause_s = min(self._longest_s, self._pause_s * 2)
                self._open_until = now + self._pause_s
            return False
        if self._failures < self._failures_to_open:
            return False
        self._open_until = now + self._pause_s
        return True
