"""How late the event loop is: the best single figure about its health."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure_lag"]

_EVERY_S: Final = 0.5


async def measure_lag(observe: Callable[[float], None]) -> None:
    """Tell ``observe`` every half second how late this ran, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _EVERY_S
        await asyncio.sleep(_EVERY_S)
        observe(max(0.0, loop.time() - due))
