"""Brings calls of native threads to the event loop."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Handover"]

_BATCH = 512
"""Calls run before other work of the loop gets its turn."""


class Handover:
    """Calls put by any thread, run on the loop in the order of :meth:`put`.

    One wake-up of the loop serves all calls that wait. A native thread holds a lock of its
    library while it calls: ``put`` appends and returns, it never waits (engines, pitfall 4).
    Past ``limit`` waiting calls, ``overflowed`` runs once and further calls are dropped.
    """

    __slots__ = ("_armed", "_limit", "_loop", "_overflowed", "_queue", "_stopped")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit: int, overflowed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._overflowed = overflowed
        self._queue: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._armed = False
        self._stopped = False

    def put(self, call: Callable[..., None], *args: Any) -> None:
        """Run ``call(*args)`` on the loop soon. Callable from any thread."""
        if len(self._queue) >= self._limit:
            if self._stopped:
                return
            self._stopped = True
            call, args = self._overflowed, ()
        self._queue.append((call, args))
        if not self._armed:
            self._armed = True
            try:
                self._loop.call_soon_threadsafe(self._run)
            except RuntimeError:  # the loop is closed: nobody is left to tell
                self._queue.clear()

    def _run(self) -> None:
        # Disarmed before the queue is read: a call appended from here on wakes the loop again.
        self._armed = False
        queue = self._queue
        try:
            for _ in range(min(len(queue), _BATCH)):
                call, args = queue.popleft()
                call(*args)
        finally:  # a fault of one call does not hold up the others
            if queue and not self._armed:
                self._armed = True
                self._loop.call_soon(self._run)
