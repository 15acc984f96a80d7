"""An event loop whose clock jumps to the next timer: hours of protocol in milliseconds.

The loop runs ordinary asyncio code; only its clock and its sleep are replaced. There is no I/O and
there are no threads: when nothing is ready and no timer is set, nothing can ever happen again, and
that is an error with the waiting tasks in its text.

Code that runs within a context in which :data:`PROCESS` is set belongs to that process, and so do
the tasks, timers and callbacks it makes. A process can be stopped: nothing of it runs until it
goes on, and then everything that became due meanwhile runs at once, as after SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import asyncio
import heapq
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["PROCESS", "Deadlock", "TooLong", "VirtualTimeLoop", "run_virtual"]

PROCESS: ContextVar[object | None] = ContextVar("process", default=None)
"""What the running code is a part of; ``None`` for the network and the test itself."""


class Deadlock(Exception):
    """Every task waits for something that no timer and no other task will bring."""


class TooLong(Exception):
    """Virtual time passed the limit of the run: something goes round for ever."""


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """Time starts at 0 and moves only when there is nothing to do at the present moment."""

    def __init__(self, longest_s: float = 24 * 3600.0) -> None:
        super().__init__()
        self._now = 0.0
        self._longest_s = longest_s
        self._stopped: dict[object, list[asyncio.Handle]] = {}
        """Processes that stand still, and what of them is due."""
        self._selector = self  # where the base class waits between two rounds

    def time(self) -> float:
        return self._now

    def stop_process(self, process: object) -> None:
        """Run nothing of it until :meth:`continue_process`."""
        self._stopped.setdefault(process, [])

    def continue_process(self, process: object) -> None:
        """Run what became due meanwhile, in the order in which it did."""
        for handle in self._stopped.pop(process, ()):
            self._ready.append(handle)

    def select(self, timeout: float | None) -> list[Any]:
        """Called between two rounds of callbacks: jump instead of waiting."""
        if timeout is None:
            raise Deadlock(f"nothing is scheduled at {self._now:.3f} s: {_waiting(self)}")
        if timeout > 0:
            self._now = max(self._now, self._scheduled[0].when())
            if self._now > self._longest_s:
                raise TooLong(f"still busy at {self._now:.3f} s: {_waiting(self)}")
        if self._stopped:
            self._hold_back()
        return []

    def _hold_back(self) -> None:
        """Take what belongs to stopped processes out of what runs in this round."""
        scheduled = self._scheduled
        while scheduled and scheduled[0].when() <= self._now:
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            self._ready.append(timer)
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            held = self._stopped.get(handle._context.get(PROCESS))
            (self._ready if held is None else held).append(handle)

    def _process_events(self, event_list: list[Any]) -> None:
        """There are no events of sockets."""

    def _write_to_self(self) -> None:
        """Waking up another thread is not needed: the loop never sleeps."""


def run_virtual[T](main: Coroutine[Any, Any, T], *, longest_s: float = 24 * 3600.0) -> T:
    """Run ``main`` to its end on a new virtual loop.

    Raises :class:`Deadlock`, :class:`TooLong`, or what ``main`` raises.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(longest_s)) as runner:
        return runner.run(main)


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    return ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(loop))) or "no task"
