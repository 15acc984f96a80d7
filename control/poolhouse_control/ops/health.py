"""How the process is, as far as a balancer or an alert must know."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from prometheus_client import Histogram

__all__ = ["Health", "watching_loop_lag"]

_TICK_S: Final = 0.5


class Health:
    """Readiness: whether new clients should be sent here."""

    def __init__(self) -> None:
        self.ready = False


@asynccontextmanager
async def watching_loop_lag(lag: Histogram) -> AsyncIterator[None]:
    """Observe, while open, how late the loop runs a timer."""
    watcher = asyncio.create_task(_watch(lag))
    try:
        yield
    finally:
        watcher.cancel()


async def _watch(lag: Histogram) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_at = loop.time() + _TICK_S
        await asyncio.sleep(_TICK_S)
        lag.observe(max(0.0, loop.time() - due_at))
