"""How another terminal speaks to a running host: JSON lines over a socket of its owner's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from poolhouse_node.cli.state import RoomState

__all__ = ["call_host", "serve_commands"]

REQUEST_BYTES_MAX = 4096
ANSWER_S = 5.0
ADDRESS_BYTES_MAX = 103
"""Of a socket's address: 104 with the NUL on a Mac, 108 on Linux."""
OPEN_FOLDERS = Path("/proc/self/fd")
"""Where Linux shows a process the folders it has open."""
type Answer = dict[str, Any]


@contextlib.asynccontextmanager
async def serve_commands(
    room: RoomState, handle: Callable[[Mapping[str, Any]], Answer], say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Answer commands while open. One that fails is answered with ``{"error": sentence}``.

    Where no socket can be the room goes on without these commands, and ``say`` says so. Raises
    :class:`CommandFailed` when another host of the room answers.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            server = await _listen(room, handle)
        except OSError as error:
            say(f"Other terminals cannot reach this host (poolhouse room): {error}.")
        else:
            stack.callback(_remove, room.socket)
            await stack.enter_async_context(server)
        yield


async def _listen(
    room: RoomState, handle: Callable[[Mapping[str, Any]], Answer]
) -> asyncio.AbstractServer:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                request = json.loads(await reader.readline())
                answer = handle(request) if isinstance(request, dict) else {"error": "no command"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ValueError, TimeoutError, ConnectionError):
            pass  # whoever spoke so gets no answer
        finally:
            writer.close()

    room.make_folder()
    with _address(room.socket) as address:
        _remove_stale(room, address)
        server = await asyncio.start_unix_server(serve, address, limit=REQUEST_BYTES_MAX)
    room.socket.chmod(0o600)
    return server


def _remove_stale(room: RoomState, address: str) -> None:
    """A socket that nobody answers on was left by a host that was killed."""
    if not room.socket.exists():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(address) == 0:
            raise CommandFailed(f"A host of the room {room.code} runs on this machine already.")
    room.socket.unlink()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """What to bind or connect to: the path, or a short name for the same where it is too long."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX or not OPEN_FOLDERS.is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(OPEN_FOLDERS / str(folder) / path.name)
    finally:
        os.close(folder)


async def call_host(room: RoomState, request: Mapping[str, Any]) -> Answer:
    """Ask the running host. Raises :class:`CommandFailed` when it cannot be reached or refuses."""
    try:
        async with asyncio.timeout(ANSWER_S):
            with _address(room.socket) as address:
                reader, writer = await asyncio.open_unix_connection(address, limit=1 << 20)
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
            writer.close()
        answer = json.loads(line)
    except (OSError, TimeoutError, ValueError) as error:
        raise CommandFailed(f"No host of the room {room.code} answers on this machine.") from error
    if not isinstance(answer, dict) or "error" in answer:
        raise CommandFailed(str(answer.get("error") if isinstance(answer, dict) else answer))
    return answer
