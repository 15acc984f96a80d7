"""One pledge for several rooms: what each took of it, and what is left for the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.room.pledge import GIB

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

__all__ = ["LEAST_OFFER_GB", "Lending", "Taken"]

LEAST_OFFER_GB = 1e-6
"""Said when nothing is left: no layer fits it, while 0 would count as not said (dealing, 3)."""
_ROUNDED_TO = 1000


@dataclass(frozen=True, slots=True)
class Taken:
    """What a room holds. Rooms with the same ``part`` share its weights."""

    part: Hashable
    weights_bytes: int
    state_bytes: int


@dataclass(slots=True)
class Lending:
    """The rooms of a device that lends ``pledge_bytes`` to all of them together."""

    pledge_bytes: int
    _taken: dict[str, Taken] = field(default_factory=dict)

    def take(self, room: str, taken: Taken) -> None:
        """``room`` holds this from now on, instead of what it held before."""
        self._taken[room] = taken

    def give_back(self, room: str) -> None:
        """``room`` holds nothing any more."""
        self._taken.pop(room, None)

    @property
    def left_bytes(self) -> int:
        """What nobody took."""
        return max(0, self.pledge_bytes - _total_bytes(self._taken.values()))

    def offer_gb(self, room: str) -> float:
        """What the host of ``room`` may deal: all but what other rooms took.

        Rounded down to a thousandth, so that a host is not told of every small change.
        """
        others = [taken for name, taken in self._taken.items() if name != room]
        left_bytes = self.pledge_bytes - _total_bytes(others)
        return max(LEAST_OFFER_GB, left_bytes * _ROUNDED_TO // GIB / _ROUNDED_TO)


def _total_bytes(all_taken: Collection[Taken]) -> int:
    weights = {taken.part: taken.weights_bytes for taken in all_taken}
    return sum(weights.values()) + sum(taken.state_bytes for taken in all_taken)
