"""A real TCP balancer, haproxy, on a free loopback port."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import shutil
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

__all__ = ["Balancer", "running_balancer"]

_DEADLINE_S = 15.0

_PAGE = Path(__file__).parents[2] / "docs/how-to/scale-out.md"


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
    """The file that operators are shown, with addresses of the test; and it looks oftener."""
    [shown] = re.findall(r"^```haproxy\n(.*?)^```", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [
        f"    server replica{number} 127.0.0.1:{port} port {admin_port}\n"
        for number, (port, admin_port) in enumerate(servers)
    ]
    changes = [
        (r"^    bind .*$", f"    bind fd@{listener}"),
        (r"inter 1s", "inter 100ms"),
        (r"(?:^    server .*\n)+", "".join(lines)),
    ]
    for pattern, here in changes:
        shown, found = re.subn(pattern, here, shown, flags=re.MULTILINE)
        assert found == 1, f"{_PAGE.name} has changed: {pattern}"
    return f"global\n    stats socket {folder / 'haproxy.sock'} level user\n\n{shown}"
