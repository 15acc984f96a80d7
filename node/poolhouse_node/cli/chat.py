"""Questions typed at a terminal, one line each."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from poolhouse_node.cli.view import TerminalView

__all__ = ["questions"]

PROMPT = "> "


async def questions(view: TerminalView) -> AsyncIterator[str]:
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
        view.prompt(PROMPT if sys.stdin.isatty() else None)
        asked.release()
        line = await lines.get()
        view.prompt(None)
        if line is None:
            return
        if line.strip():
            yield line.strip()
