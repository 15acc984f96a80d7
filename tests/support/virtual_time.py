"""An event loop whose clock jumps to the next timer: hours of protocol in milliseconds.

The loop runs ordinary asyncio code; only its clock and its sleep are replaced. There is no I/O and
there are no threads: when nothing is ready and no timer is set, nothing can ever happen again, and
that is an error with the waiting tasks in its text.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Deadlock", "TooLong", "VirtualTimeLoop", "run_virtual"]


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
        self._selector = self  # where the base class waits between two rounds

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Called between two rounds of callbacks: jump instead of waiting."""
        if timeout is None:
            raise Deadlock(f"nothing is scheduled at {self._now:.3f} s: {_waiting(self)}")
        if timeout > 0:
            self._now = max(self._now, self._scheduled[0].when())
            if self._now > self._longest_s:
                raise TooLong(f"still busy at {self._now:.3f} s: {_waiting(self)}")
        return []

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
