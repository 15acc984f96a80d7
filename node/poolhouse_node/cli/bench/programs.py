"""Programs of others that a benchmark starts on loopback: npm's PeerServer, a Redis."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from poolhouse_node.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["npm_peer_server", "redis_server"]

START_S = 20.0
END_S = 5.0
NPM_PEER = Path("node_modules/peer/dist/bin/peerjs.js")
LEAVE_WITH_PARENT = "data:text/javascript,process.stdin.resume().on('end',()=>process.exit())"
"""Read by node before the program: it ends with its stdin, however this process ends."""


@contextlib.asynccontextmanager
async def npm_peer_server() -> AsyncIterator[tuple[str, int, int]]:
    """PeerServer with its default settings: its version, port and process id."""
    program = _find_npm_peer()
    node = _find("node", "PeerServer needs Node.js (Debian: apt-get install nodejs).")
    port = _free_port()
    said = (f"--import={LEAVE_WITH_PARENT}", str(program), "--host", "127.0.0.1")
    async with _running("PeerServer", port, node, *said, "--port", str(port)) as pid:
        yield _version_of(program), port, pid


@contextlib.asynccontextmanager
async def redis_server() -> AsyncIterator[tuple[int, int]]:
    """An empty Redis that keeps nothing: its port and process id."""
    program = _find("redis-server", "Replicas need Redis (Debian: apt-get install redis-server).")
    port = _free_port()
    said = ("--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no")
    async with _running("Redis", port, program, *said) as pid:
        yield port, pid


@contextlib.asynccontextmanager
async def _running(name: str, port: int, *command: str) -> AsyncIterator[int]:
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
        try:
            await _until_it_listens(name, port, process)
            yield process.pid
        finally:
            await _end(process)


async def _until_it_listens(name: str, port: int, process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(START_S):
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise CommandFailed(f"{name} did not start in {START_S:.0f} s.") from None
    raise CommandFailed(f"{name} ended with status {process.returncode}.")


async def _end(process: asyncio.subprocess.Process) -> None:
    # A client that stays connected holds up a polite end; nobody needs one here.
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await asyncio.wait_for(process.wait(), END_S)


def _find(program: str, otherwise: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise CommandFailed(otherwise)
    return found


def _find_npm_peer() -> Path:
    """Beside the working folder or above it, or among the browser tests of a check-out."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        for place in (folder, folder / "tests" / "interop"):
            if (place / NPM_PEER).is_file():
                return place / NPM_PEER
    raise CommandFailed("PeerServer is not installed here: `npm install peer@1.0.2`.")


def _version_of(program: Path) -> str:
    package = program.parents[2] / "package.json"
    found = re.search(r'"version":\s*"([\w.-]+)"', package.read_text(encoding="utf-8"))
    return found[1] if found else "of an unknown version"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
