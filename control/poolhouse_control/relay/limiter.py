"""How many credentials an address gets: a fixed window that starts with its first request.

One protocol with one test suite: in this process, or in Redis for all replicas. Each call counts
and decides in one step, so requests at the same time cannot pass the limit together.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WINDOW_S", "Limiter", "MemoryLimiter"]

WINDOW_S: Final = 60.0
_MAX_SUBJECTS: Final = 100_000


class Limiter(Protocol):
    """Counts requests by subject."""

    async def admit(self, subject: str) -> float:
        """Count a request; return 0, or the seconds until its subject may ask again."""
        ...


class MemoryLimiter:
    """Windows in a dict. Beyond ``max_subjects`` the oldest is forgotten: nobody is locked out."""

    def __init__(
        self,
        rate: int,
        *,
        window_s: float = WINDOW_S,
        max_subjects: int = _MAX_SUBJECTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._window_s = window_s
        self._max_subjects = max_subjects
        self._clock = clock
        # In the order their windows began, so that the ended ones are in front.
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        """Windows that are kept."""
        return len(self._windows)

    async def admit(self, subject: str) -> float:
        """Count a request; return 0, or the seconds until its subject may ask again."""
        return self.admit_now(subject)

    def admit_now(self, subject: str) -> float:
        """The same, for those who cannot wait: nothing here does."""
        now = self._clock()
        self._forget_ended(now)
        began_at, count = self._windows.get(subject, (now, 0))
        if count >= self._rate:
            return min(began_at + self._window_s - now, self._window_s)
        if not count and len(self._windows) >= self._max_subjects:
            self._windows.popitem(last=False)
        self._windows[subject] = (began_at, count + 1)
        return 0.0

    def _forget_ended(self, now: float) -> None:
        while self._windows:
            began_at, _ = next(iter(self._windows.values()))
            if now - began_at < self._window_s:
                return
            self._windows.popitem(last=False)
