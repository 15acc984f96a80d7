"""Ending without anybody noticing: send clients to other replicas first, a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.ops.health import Health
    from poolhouse_control.signaling.switchboard import Switchboard

__all__ = ["Drain", "DrainTimes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTimes:
    """Seconds."""

    delay_s: float
    """Until balancers have noticed that this replica takes nobody any more."""
    spread_s: float
    """Over which the closes are spread, so that the others are not stormed."""
    grace_s: float
    """For the last clients to answer their close."""
    notice_s: float
    """For what waits for absent peers: only this replica can tell its senders that nobody came."""


class Drain:
    """Asked for by a signal or at the admin port; carried out by whoever runs the servers."""

    def __init__(
        self,
        times: DrainTimes,
        health: Health,
        switchboard: Switchboard,
        log: FilteringBoundLogger,
        *,
        requested: asyncio.Event | None = None,
    ) -> None:
        self.requested = requested or asyncio.Event()
        self._times = times
        self._health = health
        self._switchboard = switchboard
        self._log = log

    def request(self) -> None:
        """Ask for it. Asking again changes nothing."""
        self.requested.set()

    async def run(self) -> None:
        """Take no new clients, wait, send those here away, and see them out.

        The order matters: a balancer that still sends clients here would send them into a refusal,
        and clients that are all closed at once would come back all at once.
        """
        board, times = self._switchboard, self._times
        self._health.ready = False
        board.is_draining = True
        self._log.info("drain.began", sockets=board.socket_count)
        await board.presence.leave()
        await asyncio.sleep(times.delay_s)
        await board.dismiss_all(times.spread_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(times.grace_s):
                await board.emptied()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(times.notice_s):
                await board.nothing_waits()
        self._log.info("drain.ended", sockets=board.socket_count)
