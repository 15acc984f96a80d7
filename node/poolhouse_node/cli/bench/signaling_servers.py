"""The servers that a signaling load is put on: our own, npm's ``peer``, or one that runs."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import re
import resource
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from poolhouse_node.cli.bench.procfs import cpu_s, pid_listening_on, resident_kb
from poolhouse_node.cli.bench.signaling_crowd import Address
from poolhouse_node.cli.children import Children
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.up import CONTROL_START_S, control_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Server", "address_of", "allow_sockets", "npm_peer", "own_control", "running_server"]

NPM_START_S = 20.0
NPM_END_S = 5.0
NPM_PROGRAM = Path("node_modules/peer/dist/bin/peerjs.js")
SPARE_FILES = 256
LEAVE_WITH_PARENT = "data:text/javascript,process.stdin.resume().on('end',()=>process.exit())"
"""Read by node before the program: it ends with its stdin, however this process ends."""


@dataclass(frozen=True, slots=True)
class Server:
    """What is measured: one process, or several that act as one."""

    name: str
    addresses: tuple[Address, ...]
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        """CPU time of all its processes."""
        return sum(cpu_s(pid) for pid in self.pids)

    def resident_kb(self) -> int:
        """Memory of all its processes, in units of 1024 bytes."""
        return sum(resident_kb(pid) for pid in self.pids)


def allow_sockets(count: int) -> None:
    """Let this process and its children open so many. Raises :class:`CommandFailed`."""
    wanted = count + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise CommandFailed(
            f"{count} sockets need {wanted} open files and this user may have {hard}: "
            "choose fewer --sockets, or raise `ulimit -Hn`."
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def address_of(url: str) -> Address:
    """Where a URL points. Raises :class:`CommandFailed` for anything but plain loopback."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in {"http", "ws"} or port is None:
        raise CommandFailed(f"{url!r} is no address of a server: write http://127.0.0.1:PORT/PATH.")
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    if not _is_loopback(host):
        raise CommandFailed(
            f"bench signaling puts load on this machine only, and {parts.hostname} is not a "
            "loopback address."
        )
    return Address(host, port, f"/{parts.path.strip('/')}/".replace("//", "/"))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.asynccontextmanager
async def own_control() -> AsyncIterator[Server]:
    """Our control plane as a child, with its default settings."""
    async with Children() as children:
        control = await children.start("control", control_arguments())
        url = json.loads(await control.first_line(CONTROL_START_S))["signal_url"]
        yield Server("poolhouse control", (address_of(url),), (control.process.pid,))


@contextlib.asynccontextmanager
async def running_server(url: str, pid: int | None) -> AsyncIterator[Server]:
    """A server that somebody else started here."""
    address = address_of(url)
    pid = pid or pid_listening_on(address.port)
    if pid is None:
        raise CommandFailed(
            f"No process of yours listens on port {address.port}: start the server, or name it "
            "with --against-pid."
        )
    yield Server(url, (address,), (pid,))


@contextlib.asynccontextmanager
async def npm_peer() -> AsyncIterator[Server]:
    """PeerServer as npm installs it, as a child, with its default settings."""
    program = _find_npm_peer()
    node = shutil.which("node")
    if node is None:
        raise CommandFailed("PeerServer needs Node.js (Debian: apt-get install nodejs).")
    port = _free_port()
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            node,
            *(f"--import={LEAVE_WITH_PARENT}", str(program)),
            *("--host", "127.0.0.1", "--port", str(port)),
            stdin=asyncio.subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            await _until_it_listens(port, process)
            name = f"npm peer {_version_of(program)}"
            yield Server(name, (Address("127.0.0.1", port, "/"),), (process.pid,))
        finally:
            await _end(process)


def _find_npm_peer() -> Path:
    """Beside the working folder or above it, or among the browser tests of a check-out."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        for place in (folder, folder / "tests" / "interop"):
            if (place / NPM_PROGRAM).is_file():
                return place / NPM_PROGRAM
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


async def _until_it_listens(port: int, process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(NPM_START_S):
            while process.returncode is None:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise CommandFailed(f"PeerServer did not start in {NPM_START_S:.0f} s.") from None
    raise CommandFailed(f"PeerServer ended with status {process.returncode}.")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), NPM_END_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def needs_linux() -> None:
    """Raise :class:`CommandFailed` where processes cannot be looked at."""
    if not sys.platform.startswith("linux"):
        raise CommandFailed("bench signaling reads /proc and runs on Linux only.")
