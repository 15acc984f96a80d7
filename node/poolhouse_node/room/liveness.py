"""Who has gone quiet (liveness, sections 1 to 3). Times are seconds on one monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "AFTER_AWAY_S",
    "API_MISSED_PINGS",
    "BUSY_PING_S",
    "BUSY_TICK_S",
    "PING_S",
    "AnswerWatch",
    "PingCount",
    "PingLoop",
    "Stalled",
    "is_phone",
    "silent_limit_s",
    "was_away",
]

PING_S = 2.5
BUSY_PING_S = 0.5
BUSY_TICK_S = 0.25
LATE_TICK_S = 5.0
STALL_S = 1.2
AWAY_S = 3.0
AFTER_AWAY_S = 8.0
"""A device that was away drops what it has not heard so long after it is back (section 2)."""

API_MISSED_PINGS = 6
"""An API client is dropped after more pings than these in a row (section 2)."""

COMPUTER_SILENT_S, PHONE_SILENT_S, HOST_SILENT_S = 15.0, 60.0, 30.0


def is_phone(meta: Mapping[str, object]) -> bool:
    """A phone by its own word or by its kind."""
    return bool(meta.get("phone")) or meta.get("ua") in ("iPhone", "Android")


def was_away(hidden_at: float | None, now: float) -> bool:
    """Was this device stopped for so long that others may have given it up?

    For a page since it was hidden, for a process since its last tick; ``None``: it was not.
    """
    return hidden_at is not None and _between(hidden_at, now) >= AWAY_S


def silent_limit_s(*, to_host: bool, phone: bool, loading: bool) -> float | None:
    """Quiet time after which a link is dropped; ``None``: never, layers are being loaded."""
    if loading:
        return None
    if to_host:
        return HOST_SILENT_S
    return PHONE_SILENT_S if phone else COMPUTER_SILENT_S


def _between(earlier: float, later: float) -> float:
    """Seconds between two times, to the microsecond: 5.9 - 2.4 is 3.5 here, not a bit more."""
    return round(later - earlier, 6)


@dataclass(slots=True)
class PingLoop:
    """The 2.5 s tick of every device: forgives silence when this device itself stalled."""

    last_tick: float | None = None
    forgiven_at: float = 0.0

    def tick(self, now: float) -> bool:
        """Note a tick; True when it came late, so that every link counts as heard now."""
        late = self.last_tick is not None and _between(self.last_tick, now) > LATE_TICK_S
        self.last_tick = now
        if late:
            self.forgiven_at = now
        return late

    def is_silent(self, heard_at: float, limit_s: float | None, now: float) -> bool:
        """True when a link has been quiet for longer than its limit."""
        quiet_s = _between(max(heard_at, self.forgiven_at), now)
        return limit_s is not None and quiet_s > limit_s


@dataclass(slots=True)
class PingCount:
    """Pings in a row that nothing answered; for API clients, whose time does not count.

    A host that stalls sends no pings meanwhile, and drops nobody for it.
    """

    unanswered: int = 0

    def tick(self) -> bool:
        """The next ping is due; True when too many went unanswered before it."""
        self.unanswered += 1
        return self.unanswered > API_MISSED_PINGS

    def answered(self) -> None:
        """A ping came back: the count begins anew."""
        self.unanswered = 0


@dataclass(frozen=True, slots=True)
class Stalled:
    """A chain device that stopped responding while an answer runs."""

    peer_id: str
    silent_s: float
    limit_s: float


def stall_limit_s(rtt_s: float | None) -> float:
    """3 s and three round trips, held to 3.5..5 s."""
    return min(5.0, max(3.5, round(3 + 3 * max(rtt_s or 0.0, 0.0), 3)))


@dataclass(slots=True)
class AnswerWatch:
    """Drop detection while an answer runs (section 3). The host ticks it every 250 ms."""

    armed_at: float | None = None
    last_tick: float | None = None
    last_ping: float = 0.0
    stalled_self_at: float = 0.0
    held: dict[str, float] = field(default_factory=dict)
    """Devices already reported and not back yet, with the time their silence began."""

    def arm(self, now: float) -> None:
        """An answer starts: silence before it does not count."""
        if self.armed_at is None:
            self.armed_at = self.last_tick = now
            self.held.clear()

    def disarm(self) -> None:
        """The answer ended."""
        self.armed_at = None
        self.held.clear()

    def ping_due(self, now: float) -> bool:
        """True every 500 ms while armed; the caller pings every chain device."""
        if self.armed_at is None or _between(self.last_ping, now) < BUSY_PING_S:
            return False
        self.last_ping = now
        return True

    def tick(
        self, now: float, heard_at: Mapping[str, float], rtt_s: Mapping[str, float | None]
    ) -> list[Stalled]:
        """Devices that are newly silent. A late tick blames nobody: this device stalled."""
        if self.armed_at is None:
            return []
        if self.last_tick is not None and _between(self.last_tick, now) > STALL_S:
            self.stalled_self_at = now
        self.last_tick = now
        found = list(self._silent(now, heard_at, rtt_s))
        self.held.update((stalled.peer_id, now - stalled.silent_s) for stalled in found)
        return found

    def _silent(
        self, now: float, heard_at: Mapping[str, float], rtt_s: Mapping[str, float | None]
    ) -> Iterable[Stalled]:
        armed_at = now if self.armed_at is None else self.armed_at
        since_all = max(armed_at, self.stalled_self_at)
        for peer_id, heard in heard_at.items():
            silent_s = _between(max(heard, since_all), now)
            limit_s = stall_limit_s(rtt_s.get(peer_id))
            if peer_id not in self.held and silent_s > limit_s:
                yield Stalled(peer_id, silent_s, limit_s)

    def answered(self, peer_id: str, ping_sent_at: float) -> bool:
        """A ping came back; True when that brings back a device that had been reported.

        Only a full round trip since its silence began does, not a late packet that drains.
        """
        if not is_back(ping_sent_at, self.held.get(peer_id)):
            return False
        del self.held[peer_id]
        return True


def is_back(ping_sent_at: float, silence_began: float | None) -> bool:
    """True when the answered ping went out after the silence began."""
    return silence_began is not None and ping_sent_at > silence_began
