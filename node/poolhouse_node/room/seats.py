"""Places of the chain, kept by device name, and who sits in them (liveness, section 7)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Seat", "Seats"]


@dataclass(slots=True, eq=False)
class Seat:
    """One worker's place."""

    name: str
    layers: tuple[int, int]
    """Half-open."""
    peer_id: str
    """Who sits here, or sat here last."""
    is_here: bool = True
    is_ready: bool = False
    """Its layers are loaded."""
    is_linked: bool = True
    """Its link to the next device stands, as far as is known."""
    link_news: int = 0
    """Counts orders to link and answers to them: an older order's deadline is void."""

    @property
    def words(self) -> str:
        """The device and its layers, for a sentence."""
        return f"{self.name} (layers {self.layers[0]}–{self.layers[1] - 1})"


@dataclass(slots=True)
class Seats:
    """The workers in layer order. The host holds the first layers and has no seat here."""

    seats: list[Seat] = field(default_factory=list)

    def __iter__(self) -> Iterator[Seat]:
        return iter(self.seats)

    def named(self, name: str) -> Seat | None:
        """The seat of a device, here or gone."""
        return next((seat for seat in self.seats if seat.name == name), None)

    def at(self, peer_id: str) -> Seat | None:
        """The seat that this peer sits in."""
        return next((seat for seat in self.seats if seat.is_here and seat.peer_id == peer_id), None)

    def before(self, seat: Seat) -> Seat | None:
        """The worker that sends to this one; ``None`` when that is the host."""
        place = self.seats.index(seat)
        return self.seats[place - 1] if place else None

    def after(self, seat: Seat) -> Seat | None:
        """The worker that this one sends to; ``None`` when that is the host."""
        place = self.seats.index(seat)
        return self.seats[place + 1] if place + 1 < len(self.seats) else None

    def leave(self, peer_id: str) -> Seat | None:
        """A peer is gone; its seat, if it had one, is kept for its name."""
        seat = self.at(peer_id)
        if seat is not None:
            seat.is_here = seat.is_ready = False
        return seat

    def sit(self, name: str, peer_id: str) -> Seat | None:
        """A device came: its seat, when there is one of its name that is empty or was another's.

        The device has to load and link again. The one before it has to link to it, which is noted
        when that one is here; one that comes later links on its own when it loads.
        """
        seat = self.named(name)
        if seat is None or (seat.is_here and seat.peer_id == peer_id):
            return None
        seat.peer_id, seat.is_here, seat.is_ready, seat.is_linked = peer_id, True, False, True
        before = self.before(seat)
        if before is not None and before.is_here:
            before.is_linked = False
        return seat

    @property
    def is_whole(self) -> bool:
        """Everyone is here, loaded and linked: questions can be answered."""
        return all(seat.is_here and seat.is_ready and seat.is_linked for seat in self.seats)

    @property
    def missing(self) -> list[Seat]:
        """Seats whose device is gone."""
        return [seat for seat in self.seats if not seat.is_here]

    @property
    def peer_ids(self) -> list[str]:
        """Who sits where, in layer order."""
        return [seat.peer_id for seat in self.seats]

    def awaited(self) -> str:
        """What the chain waits for, in words; empty when it is whole."""
        if self.missing:
            return "waiting for " + " and ".join(seat.words for seat in self.missing) + " to return"
        loading = [seat.words for seat in self.seats if not seat.is_ready]
        if loading:
            return f"waiting until {' and '.join(loading)} holds its layers again"
        cut = [seat for seat in self.seats if not seat.is_linked]
        if cut:
            return "waiting for the link " + " and ".join(self._link(seat) for seat in cut)
        return ""

    def _link(self, seat: Seat) -> str:
        after = self.after(seat)
        return f"from {seat.name} to {after.name if after else 'the host'}"
