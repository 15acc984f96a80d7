"""Processes that ``poolhouse up`` starts. None of them outlives it, however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.options import PATH_VARIABLES
from poolhouse_node.cli.running import PARENT_FD
from poolhouse_node.cli.state import STATE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Child", "Children"]

GRACE_S = 8.0
"""What a device needs to say that it is leaving and to close its links."""
LAST_LINES = 3
STARTS_MAX = 6
"""A process that ends this often is left alone: something is wrong with it, not with its luck."""


@dataclass(slots=True)
class Child:
    """A started process and the file its words on stderr go to."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    arguments: Sequence[str]
    environ: Mapping[str, str]
    starts: int = 1

    async def first_line(self, timeout_s: float) -> str:
        """What it says on stdout when it is ready. Raises :class:`CommandFailed`."""
        stdout = self.process.stdout
        if stdout is None:  # it was started without
            raise CommandFailed(f"{self.name} has nothing to say.")
        try:
            line = await asyncio.wait_for(stdout.readline(), timeout_s)
        except TimeoutError:
            raise CommandFailed(f"{self.name} did not start in {timeout_s:.0f} s.") from None
        if not line:
            await self.process.wait()
            raise CommandFailed(self.how_it_ended())
        return line.decode()

    def how_it_ended(self) -> str:
        """A sentence with its last words, if it could say any."""
        if (self.process.returncode or 0) < 0:
            return f"{self.name} was killed (signal {-(self.process.returncode or 0)})"
        lines = self.log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
        words = " / ".join(line.removeprefix("poolhouse: ") for line in lines)
        return f"{self.name} ended with status {self.process.returncode}: {words or 'no reason'}"


class Children:
    """Started processes, ended together. Use as an async context manager."""

    def __init__(self) -> None:
        self.children: list[Child] = []

    async def __aenter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="poolhouse-up-")
        # Children hold the reading end and leave when the writing end, only ours, is gone.
        self._reading, self._writing = os.pipe()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(_end(child) for child in self.children))
        os.close(self._reading)
        os.close(self._writing)
        self._folder.cleanup()

    async def start(
        self, name: str, arguments: Sequence[str], environ: Mapping[str, str] | None = None
    ) -> Child:
        """Start ``poolhouse ARGUMENTS`` in a session of its own: Ctrl-C is ours to handle.

        Its state lives as long as we do. ``environ`` is added to this process's: it holds what
        must not be an argument.
        """
        log = Path(self._folder.name) / f"{name}.log"
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "poolhouse_node",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                pass_fds=(self._reading,),
                start_new_session=True,
                env={
                    **_own_environment(),
                    STATE: self._folder.name,
                    **(environ or {}),
                    PARENT_FD: str(self._reading),
                },
            )
        child = Child(name, process, log, arguments, environ or {})
        self.children.append(child)
        return child

    async def start_again(self, child: Child, arguments: Sequence[str] | None = None) -> bool:
        """Start a child that ended once more; False when that was tried often enough."""
        self.children.remove(child)
        if child.starts >= STARTS_MAX:
            return False
        again = await self.start(child.name, arguments or child.arguments, child.environ)
        again.starts = child.starts + 1
        return True

    async def until_one_ends(self) -> Child:
        """Wait until any child has ended, which none should while we run."""
        waits = {asyncio.ensure_future(c.process.wait()): c for c in self.children}
        if not waits:
            await asyncio.Event().wait()
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return waits[done.pop()]
        finally:
            for wait in waits:
                wait.cancel()


def _own_environment() -> dict[str, str]:
    """This process's, without what is said about paths between networks: there is one machine."""
    return {name: value for name, value in os.environ.items() if name not in PATH_VARIABLES}


async def _end(child: Child) -> None:
    process = child.process
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), GRACE_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
