"""Coming back to a host whose link was lost: dial again, then knock (liveness, 5 and 10)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from poolhouse_node.room.links import LinkFailed
from poolhouse_node.room.returning import REDIAL_S, next_knock_s, redial_delay_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["come_back"]


async def come_back(
    dial: Callable[[float], Awaitable[object]],
    is_in: Callable[[], Awaitable[bool]],
    *,
    path_broke: bool,
) -> bool:
    """Try until this device is in the room again; False when it gave up.

    ``dial`` opens a link within the given seconds or raises :class:`LinkFailed
    <poolhouse_node.room.links.LinkFailed>`; ``is_in`` then waits at the gate.
    """
    async for _ in _attempts(path_broke=path_broke):
        try:
            await dial(REDIAL_S)
        except LinkFailed:
            continue
        if await is_in():
            return True
    return False


async def _attempts(*, path_broke: bool) -> AsyncIterator[None]:
    """Yields when it is time: the tries of a dead link first, then a minute of knocks."""
    tries = 0
    while path_broke and (delay_s := redial_delay_s(tries)) is not None:
        await asyncio.sleep(delay_s)
        tries += 1
        yield
    loop = asyncio.get_running_loop()
    lost_at, last = loop.time(), None
    while (wait_s := next_knock_s(lost_at, last, loop.time())) is not None:
        await asyncio.sleep(wait_s)
        last = loop.time()
        yield
