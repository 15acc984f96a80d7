"""A chain that is not whole: since when, what mends it, when it is dealt again (liveness, 7)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Outage"]


@dataclass(slots=True)
class Outage:
    """The time in which a room cannot answer. Every ``now`` is of one clock, in seconds.

    ``redeal_after_s`` is how long the seats are kept for who is missing; ``None``: for ever.
    """

    redeal_after_s: float | None
    since: float | None = None
    """``None``: nothing is known to be wrong."""
    needs_deal: bool = False
    """The last deal failed: seats that fill again do not help."""
    wants_deal: bool = False
    """Deal without waiting for anyone."""

    def begin(self, now: float) -> None:
        """Something broke; what breaks later belongs to the same outage."""
        if self.since is None:
            self.since = now

    def end(self) -> float | None:
        """The chain is whole again; since when it was not."""
        since, self.since = self.since, None
        return since

    def deal_failed(self, now: float) -> None:
        """The time for who may help starts afresh."""
        self.since, self.needs_deal = now, True

    def deal_worked(self) -> None:
        """Everyone holds its layers."""
        self.since, self.needs_deal, self.wants_deal = None, False, False

    @property
    def ends_by_seats(self) -> bool:
        """It is over as soon as every seat is taken, loaded and linked."""
        return self.since is not None and not (self.needs_deal or self.wants_deal)

    def rest_s(self, now: float) -> float | None:
        """Until the layers are dealt again; ``None``: not by themselves."""
        if self.redeal_after_s is None or self.since is None:
            return None
        return self.since + self.redeal_after_s - now

    def must_deal(self, now: float) -> bool:
        """Now is the time: somebody wants it, or whoever is missing did not come in time."""
        rest_s = self.rest_s(now)
        return self.wants_deal or (rest_s is not None and rest_s <= 0)

    def when_again(self) -> str:
        """A sentence for the room about the next deal."""
        if self.wants_deal:
            return "The layers are dealt again now."
        if self.redeal_after_s is None:
            return "It waits until the device is back; automatic re-deal is off."
        return f"Unless it is back in {self.redeal_after_s:.0f} s, the layers are dealt again."
