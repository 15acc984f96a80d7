"""The compute thread of a device: the event loop never waits for a matrix (design, decision 9)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ComputeThread"]


class _Call:
    """One call, and who waits for it on which loop."""

    __slots__ = ("_call", "_loop", "returned")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self.returned: asyncio.Future[Any] = self._loop.create_future()

    def run(self) -> None:
        """On the thread."""
        if self.returned.cancelled():
            return
        try:
            result = self._call()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            self._tell(self._fail, error)
        else:
            self._tell(self._succeed, result)

    def cancel(self) -> None:
        """On the thread: it will not be run."""
        self._tell(self.returned.cancel)

    def _tell(self, how: Callable[..., object], *given: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(how, *given)

    def _succeed(self, result: Any) -> None:
        if not self.returned.done():
            self.returned.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.returned.done():
            self.returned.set_exception(error)


class ComputeThread:
    """One thread that runs calls in the order they were given.

    An executor of the standard library does the same with two futures, three locks and two turns
    of the loop for each call, which a token of a GPU meets four times.
    """

    def __init__(self, name: str = "compute") -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._closed = False
        # A daemon: a call that never ends does not keep the process.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    async def run[T](self, call: Callable[[], T]) -> T:
        """Run ``call`` on the thread. A cancelled caller does not stop a call that has begun."""
        if self._closed:
            raise RuntimeError("The compute thread was closed.")
        if not self._thread.ident:
            self._thread.start()
        waiting = _Call(call)
        self._calls.put(waiting)
        result: T = await waiting.returned
        return result

    def close(self) -> None:
        """Take no more calls; the one that runs goes on to its end, others are cancelled."""
        self._closed = True
        self._calls.put(None)

    def _work(self) -> None:
        while (waiting := self._calls.get()) is not None:
            if self._closed:
                waiting.cancel()
            else:
                waiting.run()
            del waiting  # what it returned is not this thread's to keep
