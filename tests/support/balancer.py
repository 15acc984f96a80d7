"""A real TCP balancer, haproxy, on a free loopback port."""

from __future__ import annotations

import asyncio
import csv
import io
import shutil
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

__all__ = ["Balancer", "running_balancer"]

_DEADLINE_S = 15.0

# What an operator would write, but for the addresses and for how often it looks. No
# on-marked-down: a replica that drains must keep its sockets until it closes them itself.
_CONFIGURATION = """
global
    stats socket {socket} level user

defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout client-fin 10s
    timeout tunnel 1h
    retries 3
    option redispatch 1
    retry-on conn-failure empty-response 503

frontend signaling
    bind fd@{listener}
    default_backend replicas

backend replicas
    balance roundrobin
    option httpchk GET /readyz
    default-server check inter 100ms fall 1 rise 1
{servers}
"""


class Balancer:
    """A running haproxy. Made by :func:`running_balancer`."""

    def __init__(self, port: int, control: Path) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self._control = control

    async def until_up(self) -> None:
        """Wait until it sends clients to every server."""
        async with asyncio.timeout(_DEADLINE_S):
            while not all(status == "UP" for status in await self._statuses()):
                await asyncio.sleep(0.02)

    async def _statuses(self) -> list[str]:
        reader, writer = await asyncio.open_unix_connection(self._control)
        writer.write(b"show stat\n")
        text = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        rows = csv.DictReader(io.StringIO(text.removeprefix("# ")))
        return [
            # A server that was just seen once says "UP 1/3", one without checks "no check".
            row["status"]
            for row in rows
            if row["pxname"] == "replicas" and row["svname"] != "BACKEND"
        ]


@asynccontextmanager
async def running_balancer(
    folder: Path, servers: Sequence[tuple[int, int]]
) -> AsyncIterator[Balancer]:
    """Balance over (port, admin port) pairs on loopback while the context is open."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:  # a skipped interop test would look like one that passed
        pytest.fail("The tests need haproxy: `make test` installs it.", pytrace=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        path = folder / "haproxy.cfg"
        path.write_text(_configuration(folder, listener.fileno(), servers))
        with (folder / "haproxy.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                program, "-db", "-f", path,
                pass_fds=[listener.fileno()], stdout=log, stderr=log,
            )  # fmt: skip
    try:
        await _until_there(process, folder)
        yield Balancer(port, folder / "haproxy.sock")
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _until_there(process: asyncio.subprocess.Process, folder: Path) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not (folder / "haproxy.sock").exists():
            assert process.returncode is None, (folder / "haproxy.log").read_text()
            await asyncio.sleep(0.01)


def _configuration(folder: Path, listener: int, servers: Sequence[tuple[int, int]]) -> str:
    lines = [
        f"    server replica{number} 127.0.0.1:{port} check port {admin_port}"
        for number, (port, admin_port) in enumerate(servers)
    ]
    return _CONFIGURATION.format(
        socket=folder / "haproxy.sock", listener=listener, servers="\n".join(lines)
    )
