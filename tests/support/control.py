"""A real control plane on free loopback ports, inside the running loop."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolhouse_control.main import Bound, serve
from poolhouse_control.ops.logs import make_logger
from poolhouse_control.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["RunningControl", "running_control"]


@dataclass(frozen=True, slots=True)
class RunningControl:
    """A control plane that answers now."""

    bound: Bound
    log: io.StringIO
    """Its log so far: one JSON object a line."""

    @property
    def signal_url(self) -> str:
        """``http://127.0.0.1:PORT/`` with the configured path."""
        return self.bound.signal_url

    @property
    def socket_url(self) -> str:
        """The WebSocket address, without its query."""
        return self.signal_url.replace("http:", "ws:") + "peerjs"

    @property
    def origin(self) -> str:
        """What a headless client sends as ``Origin`` (decision 16)."""
        return f"http://{self.bound.host}:{self.bound.port}"

    @property
    def admin_url(self) -> str:
        """``http://127.0.0.1:PORT/``."""
        return self.bound.admin_url


@asynccontextmanager
async def running_control(
    environ: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[RunningControl]:
    """Run a control plane while the context is open. Keywords are names of settings.

    Secrets go into ``environ``, as in production.
    """
    ports = {"host": "127.0.0.1", "port": 0, "admin_port": 0, "log_level": "debug"}
    chosen = Settings.load(environ or {}, **(ports | settings))
    log = io.StringIO()
    started: asyncio.Future[Bound] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(
            chosen, started=started.set_result, log=make_logger(level=chosen.log_level, stream=log)
        )
    )
    try:
        await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        yield RunningControl(started.result(), log)
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
