"""The servers that a signaling load is put on: our own, npm's ``peer``, or one that runs."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import resource
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from poolhouse_node.cli.bench.procfs import cpu_s, pid_listening_on, resident_kb
from poolhouse_node.cli.bench.programs import npm_peer_server, redis_server
from poolhouse_node.cli.bench.signaling_crowd import Address
from poolhouse_node.cli.children import Children
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.up import CONTROL_START_S, control_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = [
    "Server",
    "address_of",
    "allow_sockets",
    "needs_linux",
    "npm_peer",
    "own_control",
    "running_server",
]

SPARE_FILES = 256
READY_POLL_S = 0.05
UNHURRIED = {
    "POOLHOUSE_MAX_CONNECTS_PER_S": "100000",
    "POOLHOUSE_DRAIN_DELAY_S": "0",
    "POOLHOUSE_DRAIN_SPREAD_S": "0",
}
"""What is not default: sockets may open as fast as they can, and the end need not be gentle."""


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
async def own_control(replicas: int = 1) -> AsyncIterator[Server]:
    """Our control plane, each replica a child; several share a Redis, another child."""
    async with contextlib.AsyncExitStack() as stack:
        environ, pids = dict(UNHURRIED), []
        if replicas > 1:
            port, redis_pid = await stack.enter_async_context(redis_server())
            shared = {"REPLICAS": str(replicas), "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
            environ |= {f"POOLHOUSE_{name}": value for name, value in shared.items()}
            pids.append(redis_pid)
        children = await stack.enter_async_context(Children())
        addresses = []
        for number in range(replicas):
            name = f"control-{number + 1}"
            control = await children.start(name, control_arguments(), environ)
            said = json.loads(await control.first_line(CONTROL_START_S))
            await _until_ready(address_of(said["admin_url"]))
            addresses.append(address_of(said["signal_url"]))
            pids.append(control.process.pid)
        name = "poolhouse control" if replicas == 1 else f"{replicas} replicas and Redis"
        yield Server(name, tuple(addresses), tuple(pids))


async def _until_ready(admin: Address) -> None:
    """Wait until a control plane has found its store."""
    request = f"GET {admin.path}readyz HTTP/1.0\r\nHost: {admin.host}\r\n\r\n".encode()
    try:
        async with asyncio.timeout(CONTROL_START_S):
            while True:
                reader, writer = await asyncio.open_connection(admin.host, admin.port)
                writer.write(request)
                status = await reader.readline()
                writer.close()
                if b" 200 " in status:
                    return
                await asyncio.sleep(READY_POLL_S)
    except TimeoutError:
        raise CommandFailed("The control plane never became ready.") from None


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
    async with npm_peer_server() as (version, port, pid):
        yield Server(f"npm peer {version}", (Address("127.0.0.1", port, "/"),), (pid,))


def needs_linux() -> None:
    """Raise :class:`CommandFailed` where processes cannot be looked at."""
    if not sys.platform.startswith("linux"):
        raise CommandFailed("bench signaling reads /proc and runs on Linux only.")
