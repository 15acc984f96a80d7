"""Tasks with an owner."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["TaskSet"]

_log = logging.getLogger(__name__)


class TaskSet:
    """Tasks that live at most as long as their owner. A fault in one is logged, not lost."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run ``work`` beside the caller."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("task.failed: %s", task.get_name(), exc_info=error)

    async def finish(self, timeout_s: float) -> None:
        """Wait for all tasks, then cancel those that are late."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        await self.cancel()

    async def cancel(self) -> None:
        """Cancel all tasks and wait until they ended."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
