"""The control plane as a process of its own, that a test can stop, freeze and kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["ENVIRON", "ControlProcess", "control_process"]

ROOT = Path(__file__).parents[2]
ENVIRON = {
    **{name: value for name, value in os.environ.items() if "POOLHOUSE" not in name},
    "PYTHONPATH": str(ROOT / "control"),
    "PYTHONWARNINGS": "error",
    "POOLHOUSE_HOST": "127.0.0.1",
    "POOLHOUSE_PORT": "0",
    "POOLHOUSE_ADMIN_PORT": "0",
}
_DEADLINE_S = 15.0


class ControlProcess:
    """A process that has said where it listens. Its log is kept as it comes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._reader = asyncio.create_task(self._read())

    @property
    def signal_url(self) -> str:
        return str(self.lines[0]["signal_url"])

    @property
    def admin_url(self) -> str:
        return str(self.lines[0]["admin_url"])

    @property
    def socket_url(self) -> str:
        return self.signal_url.replace("http", "ws", 1) + "peerjs"

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == name]

    async def until(self, event: str) -> None:
        """Wait until it has logged an event."""
        async with asyncio.timeout(_DEADLINE_S):
            while not self.events(event):
                assert not self._reader.done(), f"it ended without {event}: {self.lines}"
                await asyncio.sleep(0.01)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def end(self, patience_s: float = _DEADLINE_S) -> int:
        """Wait for the end and for the last line."""
        async with asyncio.timeout(patience_s):
            await self._reader
            return await self.process.wait()

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(json.loads(line))


@asynccontextmanager
async def control_process(**environ: str) -> AsyncIterator[ControlProcess]:
    """A process while the context is open; afterwards it is gone."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "poolhouse_control",
        env=ENVIRON | environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    control = ControlProcess(process)
    try:
        await control.until("control.started")
        yield control
    finally:
        if process.returncode is None:
            process.kill()
        out, _ = await asyncio.gather(process.stdout.read(), process.wait())
        await asyncio.wait({control._reader})
    assert out == b"", "stdout is for nobody"
