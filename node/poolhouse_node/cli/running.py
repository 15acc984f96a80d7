"""Running a command: the loop, signals, the tie to a parent process, the exit status."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn

from poolhouse_node.cli.failures import known_failures
from poolhouse_node.cli.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

__all__ = ["PARENT_FD", "ended_by", "run", "say"]

PARENT_FD = "POOLHOUSE_PARENT_FD"
"""Names a pipe whose other end the parent holds: its end means that the parent is gone."""
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

_signals: ContextVar[list[int]] = ContextVar("signals")
"""What ended the command whose tasks see this."""


def ended_by() -> signal.Signals | None:
    """The signal that cancels the running command, for its clean-up; ``None`` before one came.

    A parent process that is gone counts as SIGTERM.
    """
    came = _signals.get([])
    return signal.Signals(came[0]) if came else None


def say(text: str) -> None:
    """One line for the person, on stderr: stdout is for answers and JSON."""
    print(printable(text), file=sys.stderr, flush=True)


def run(main: Coroutine[Any, Any, int | None]) -> NoReturn:
    """Run a command to its end and leave the process with its exit status.

    The first SIGINT or SIGTERM cancels ``main``, which then says goodbye and cleans up; the second
    ends the process at once.
    """
    status = _run(main)
    sys.stdout.flush()
    sys.stderr.flush()
    # Native threads (WebRTC, torch) may still be winding down; all that matters is closed.
    os._exit(status)


def _run(main: Coroutine[Any, Any, int | None]) -> int:
    came: list[int] = []
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_with_signals(main, came)) or 0
    except asyncio.CancelledError:
        return EXIT_TERMINATED if signal.SIGTERM in came else EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if not isinstance(error, known_failures()):
            raise
        say(f"poolhouse: {error}")
        return 1


async def _with_signals(main: Coroutine[Any, Any, int | None], came: list[int]) -> int | None:
    loop = asyncio.get_running_loop()
    _signals.set(came)
    task = asyncio.ensure_future(main)

    def end(number: int) -> None:
        if came:
            os._exit(EXIT_INTERRUPTED)
        came.append(number)
        if number == signal.SIGINT and sys.stderr.isatty():
            say("")  # the terminal wrote ^C into the line
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    parent_fd = os.environ.pop(PARENT_FD, None)
    if parent_fd is not None:
        loop.add_reader(int(parent_fd), _parent_gone, loop, int(parent_fd), end)
    return await task


def _parent_gone(
    loop: asyncio.AbstractEventLoop, descriptor: int, end: Callable[[int], None]
) -> None:
    loop.remove_reader(descriptor)
    end(signal.SIGTERM)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
