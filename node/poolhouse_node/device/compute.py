"""The compute thread of a device: the event loop never waits for a matrix (design, decision 9)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ComputeThread"]


class ComputeThread:
    """One thread that runs calls in the order they were given."""

    def __init__(self, name: str = "compute") -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run[T](self, call: Callable[[], T]) -> T:
        """Run ``call`` on the thread. A cancelled caller does not stop a call that has begun."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def close(self) -> None:
        """Take no more calls; the one that runs goes on to its end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
