"""What a host tells workers when a seat is taken: layers, and links (liveness, section 7)."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.device.next_link import HOST
from poolhouse_node.wire.messages.loading import Next

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.dealing import Start
    from poolhouse_node.room.seats import Seat, Seats
    from poolhouse_node.wire.messages import Message

__all__ = ["Orders"]

RELINK_WAIT_S = 15.0
"""A device that does not say whether it linked is believed to have (section 7)."""
REMIND_S = 30.0
"""A worker that could not link is told again: the path may be back long after its own tries."""
RETRY_S = 3.0
"""Before a device that could not link or load is told to try again."""


@dataclass(slots=True)
class Orders:
    """``ai-load`` and ``ai-next`` for seats of the current deal, now or in a while."""

    seats: Callable[[], Seats]
    deal: Callable[[], Start | None]
    tell: Callable[[str, Message], None]
    changed: Callable[[], None]
    """A seat counts as linked without its device having said so."""
    _ordered_at: float = -math.inf

    def load(self, seat: Seat) -> None:
        """Tell a device its layers, and where its results go now."""
        start = self.deal()
        if seat.is_here and not seat.is_ready and start is not None:
            after = self.seats().after(seat)
            self.tell(seat.peer_id, start.load_of(seat.name, after.peer_id if after else HOST))

    def relink(self, seat: Seat) -> None:
        """Tell the worker before ``seat`` to open a fresh link to who sits there now."""
        before = self.seats().before(seat)
        if before is None or not before.is_here or not seat.is_here or before.is_linked:
            return
        self._ordered_at = asyncio.get_running_loop().time()
        self.tell(before.peer_id, Next(next=seat.peer_id, relink=1))
        before.link_news += 1
        news = before.link_news

        def unless_it_answered(before: Seat, seat: Seat) -> None:
            if before.link_news == news and before.is_here and seat.is_here:
                before.is_linked = True
                self.changed()

        self._later(RELINK_WAIT_S, unless_it_answered, before, seat)

    def remind(self) -> None:
        """Some links are still missing after a while: order them once more."""
        if asyncio.get_running_loop().time() - self._ordered_at >= REMIND_S:
            self._ordered_at = asyncio.get_running_loop().time()
            for seat in self.seats():
                self.relink(seat)

    def load_later(self, seat: Seat) -> None:
        """It could not load: once more in a while."""
        self._later(RETRY_S, self.load, seat)

    def relink_later(self, seat: Seat) -> None:
        """The one before it could not link: once more in a while."""
        self._later(RETRY_S, self.relink, seat)

    def _later(self, delay_s: float, call: Callable[..., None], *seats: Seat) -> None:
        """Call later, unless another device sits there by then."""
        who = [seat.peer_id for seat in seats]

        def if_still_so() -> None:
            current = [seat.peer_id for seat in seats if self.seats().named(seat.name) is seat]
            if current == who:
                call(*seats)

        asyncio.get_running_loop().call_later(delay_s, if_still_so)
