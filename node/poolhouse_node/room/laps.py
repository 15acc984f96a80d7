"""How long a lap may take (liveness, section 4; decision 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["LapKind", "LapStatistics"]

type LapKind = Literal["token", "verify", "prefill"]

UNMEASURED_S: dict[LapKind, float] = {"token": 30.0, "verify": 90.0, "prefill": 90.0}
FLOOR_S = 25.0
LAPS_TO_TRUST = 4


@dataclass(slots=True)
class LapStatistics:
    """Decode laps of the current deal, in seconds. A fresh deal starts a fresh object."""

    count: int = 0
    average_s: float = 0.0
    slowest_s: float = 0.0
    """Decays by 2 % a lap: that is what "the slowest recent lap" means."""

    def add(self, lap_s: float) -> None:
        """Count a decode or verify lap; prefill rounds are not counted."""
        first = self.count == 0
        self.average_s = lap_s if first else 0.7 * self.average_s + 0.3 * lap_s
        self.slowest_s = max(lap_s, 0.98 * self.slowest_s)
        self.count += 1

    def timeout_s(self, kind: LapKind, rtt_s: float | None) -> float:
        """Seconds to wait for a lap; ``rtt_s`` is the chain's slowest round trip."""
        ceiling = UNMEASURED_S[kind]
        slowest = max(self.slowest_s, self.average_s)
        if kind == "prefill" or self.count < LAPS_TO_TRUST or self.slowest_s <= 0:
            return ceiling
        rtt = max(rtt_s or 0.0, 0.0)
        return min(ceiling, round(max(FLOOR_S, 6 * slowest + 2 * rtt + 2), 3))
