"""How another terminal speaks to a running host: JSON lines over a socket of its owner's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from poolhouse_node.cli.state import RoomState

__all__ = ["call_host", "serve_commands"]

REQUEST_BYTES_MAX = 4096
ANSWER_S = 5.0
type Answer = dict[str, Any]


@contextlib.asynccontextmanager
async def serve_commands(
    room: RoomState, handle: Callable[[Mapping[str, Any]], Answer]
) -> AsyncIterator[None]:
    """Answer commands while open. One that fails is answered with ``{"error": sentence}``."""
    room.make_folder()
    _remove_stale(room)

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

    server = await asyncio.start_unix_server(serve, room.socket, limit=REQUEST_BYTES_MAX)
    room.socket.chmod(0o600)
    try:
        async with server:
            yield
    finally:
        room.socket.unlink(missing_ok=True)


def _remove_stale(room: RoomState) -> None:
    """A socket that nobody answers on was left by a host that was killed."""
    if not room.socket.exists():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(room.socket)) == 0:
            raise CommandFailed(f"A host of the room {room.code} runs on this machine already.")
    room.socket.unlink()


async def call_host(room: RoomState, request: Mapping[str, Any]) -> Answer:
    """Ask the running host. Raises :class:`CommandFailed` when it cannot be reached or refuses."""
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(room.socket, limit=1 << 20)
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
