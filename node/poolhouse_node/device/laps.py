"""The chain as the host uses it: frames out to the first worker, laps back from the last one."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import LapReturned, LapTimedOut
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.room.laps import LapKind, LapStatistics
from poolhouse_node.wire.slices import Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.ports import Link

__all__ = ["WorkerChain"]

REPORT_LATE_S = 20.0
"""A message that is on its way for longer came over a link that is dead (liveness, section 5)."""
_SENT_AS = {Kind.HIDDENRET: Kind.HIDDEN, Kind.HIDDENRET_B: Kind.HIDDEN_B}


@dataclass(slots=True)
class _OpenLap:
    columns: int
    returned: asyncio.Future[bytes]
    sent_at: float
    kind: LapKind
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class WorkerChain:
    """Workers in layer order and the laps in flight through them (liveness, section 4)."""

    link_to: Callable[[str], Link | None]
    rtt_s: Callable[[str], float | None]
    name_of: Callable[[str], str]
    notify: Notify = lambda event: None
    workers: list[str] = field(default_factory=list)
    """Peer ids in layer order."""
    statistics: LapStatistics = field(default_factory=LapStatistics)
    _open: dict[tuple[Kind, int], _OpenLap] = field(default_factory=dict)
    _broken: LapFailed | None = None
    _barrier: tuple[Kind, int] | None = None
    """The lap behind which every frame of failed laps has left the chain."""
    _barrier_back_at: float = -math.inf
    _reported: LapFailed | None = None
    """What a worker said of a frame that may have been one of a failed lap."""
    _doubted: set[tuple[Kind, int]] = field(default_factory=set)
    """Laps that were in flight then: when all come back, it was not about them."""
    _doubt: asyncio.TimerHandle | None = None

    @property
    def is_empty(self) -> bool:
        return not self.workers

    def deal(self, workers: list[str]) -> None:
        """Take new workers; laps of the old deal fail, their statistics are forgotten."""
        self.fail(LapFailed("re-deal", "The layers were dealt again while the answer ran."))
        self.workers, self._broken = workers, None
        self.statistics = LapStatistics()

    def mend(self, workers: list[str]) -> None:
        """The same seats are filled again, perhaps under other peer ids."""
        self.workers, self._broken = workers, None

    def lap(
        self, frame: Frame, kind: LapKind, *, is_barrier: bool = False
    ) -> asyncio.Future[bytes]:
        """Send a frame to the first worker; see :class:`Chain
        <poolhouse_node.generate.ports.Chain>`.
        """
        loop = asyncio.get_running_loop()
        returned: asyncio.Future[bytes] = loop.create_future()
        returned.add_done_callback(_heard)
        link = self.link_to(self.workers[0]) if self.workers else None
        if self._broken is not None or link is None:
            returned.set_exception(self._broken or self._unreachable())
            return returned
        key = (frame.kind, frame.position)
        timeout_s = self.statistics.timeout_s(kind, self._slowest_rtt_s())
        timer = loop.call_later(timeout_s, self._time_out, key, timeout_s)
        self._open[key] = _OpenLap(frame.columns, returned, loop.time(), kind, timer)
        if is_barrier:
            self._barrier = key
            self._forget_report()
        link.send_frame(frame)
        return returned

    def take(self, peer_id: str, frame: Frame) -> bool:
        """A frame came back; False when it is not from the last worker or nobody waits for it."""
        sent_kind = _SENT_AS.get(frame.kind)
        if not self.workers or peer_id != self.workers[-1] or sent_kind is None:
            return False
        if self._doubt is not None:
            self._doubt_on()  # one of a failed lap, or the first that is well: the chain moves
        key = (sent_kind, frame.position)
        lap = self._open.get(key)
        if lap is None or lap.columns != frame.columns:
            return False  # of an answer that failed
        del self._open[key]
        if key == self._barrier:
            self._barrier, self._barrier_back_at = None, asyncio.get_running_loop().time()
        self._doubted.discard(key)
        if not self._doubted:
            self._forget_report()
        lap.timer.cancel()
        lap_s = asyncio.get_running_loop().time() - lap.sent_at
        if lap.kind != "prefill":
            self.statistics.add(lap_s)
        self.notify(LapReturned(lap.kind, lap_s))
        if not lap.returned.done():
            lap.returned.set_result(frame.payload)
        return True

    def fail(self, error: LapFailed) -> None:
        """Fail every lap in flight with ``error``."""
        laps, self._open = list(self._open.values()), {}
        self._barrier = None
        self._forget_report()
        for lap in laps:
            lap.timer.cancel()
            if not lap.returned.done():
                lap.returned.set_exception(error)

    def report(self, error: LapFailed) -> None:
        """A worker could not run a frame.

        While a barrier is under way that may have been a frame of a failed lap, which a device
        that lost its state cannot run; and for a moment after it, as messages and frames do not
        wait for each other. It is believed when nothing comes back for a while after it.
        """
        now = asyncio.get_running_loop().time()
        if self._barrier is None and now - self._barrier_back_at > REPORT_LATE_S:
            self.fail(error)
        else:
            self._reported, self._doubted = error, set(self._open)
            if self._open:
                self._doubt_on()

    def break_off(self, error: LapFailed) -> None:
        """The chain is not whole any more: laps fail with ``error`` until the next deal."""
        self._broken = error
        self.fail(error)

    @property
    def is_in_doubt(self) -> bool:
        """A worker reported an error, and it is not known yet whether of a lap in flight."""
        return self._doubt is not None

    @property
    def in_flight(self) -> int:
        """Laps that have not come back."""
        return len(self._open)

    def _time_out(self, key: tuple[Kind, int], timeout_s: float) -> None:
        if key in self._open:
            self.notify(LapTimedOut(self._open[key].kind))
        if key in self._doubted and self._reported is not None:
            self.fail(self._reported)
        elif key in self._open:
            names = ", ".join(self.name_of(worker) for worker in self.workers)
            sentence = f"No answer came back through the chain ({names}) within {timeout_s:.0f} s."
            self.fail(LapFailed("timeout", sentence))

    def _doubt_on(self) -> None:
        self._doubt_no_more()
        loop = asyncio.get_running_loop()
        self._doubt = loop.call_later(REPORT_LATE_S, self._believe)

    def _doubt_no_more(self) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None

    def _believe(self) -> None:
        if self._reported is not None:
            self.fail(self._reported)

    def _forget_report(self) -> None:
        self._reported, self._doubted = None, set()
        self._doubt_no_more()

    def _unreachable(self) -> LapFailed:
        if not self.workers:
            return LapFailed("re-deal", "The layers were dealt again while the answer ran.")
        return LapFailed("left", f"The link to {self.name_of(self.workers[0])} is gone.")

    def _slowest_rtt_s(self) -> float | None:
        return max((self.rtt_s(worker) or 0.0 for worker in self.workers), default=None)


def _heard(future: asyncio.Future[bytes]) -> None:
    """A failed lap that nobody waits for any more is no unheard error."""
    if not future.cancelled():
        future.exception()
