"""Questions typed at a terminal, one line each."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["questions"]

PROMPT = "> "


async def questions() -> AsyncIterator[str]:
    """Lines from stdin until its end (Ctrl-D). A prompt is shown on a terminal."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    asked = threading.Semaphore(0)

    def read() -> None:
        # A daemon thread: a read that waits for a key must not keep the process.
        while asked.acquire():
            line = sys.stdin.readline()
            loop.call_soon_threadsafe(lines.put_nowait, line or None)
            if not line:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while True:
        if sys.stdin.isatty():
            sys.stderr.write(PROMPT)
            sys.stderr.flush()
        asked.release()
        line = await lines.get()
        if line is None:
            return
        if line.strip():
            yield line.strip()
