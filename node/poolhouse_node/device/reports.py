"""What workers tell the host of their layers and links, noted at their seats (liveness, 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.device.events import Notice
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.room.roster import clean_name
from poolhouse_node.wire.messages import loading

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.dealing import Start
    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.guard import ChainGuard
    from poolhouse_node.device.orders import Orders
    from poolhouse_node.generate.ports import LapFailure
    from poolhouse_node.room.seats import Seat, Seats
    from poolhouse_node.wire.messages import Message

__all__ = ["Reports"]


@dataclass(slots=True)
class Reports:
    """The other way of :class:`Orders <poolhouse_node.device.orders.Orders>`.

    What a report means for the whole chain: ``fail_deal`` ends the deal under way (False: there is
    none), ``broke`` says why laps fail from now on, ``fail_laps`` fails those in flight, and with
    ``changed`` a seat is better off, so that the chain may be whole.
    """

    seats: Callable[[], Seats]
    deal: Callable[[], Start | None]
    """The last one, under way or done."""
    is_dealing: Callable[[], bool]
    is_whole: Callable[[], bool]
    orders: Orders
    guard: ChainGuard
    notify: Notify
    fail_deal: Callable[[str], bool]
    broke: Callable[[str], None]
    fail_laps: Callable[[LapFailed], None]
    changed: Callable[[], None]

    def take(self, peer_id: str, message: Message) -> bool:
        """A message about loading and links; False when it is about something else."""
        match message:
            case loading.Progress(pct=percent):
                self._progress(peer_id, percent)
            case loading.Ready():
                self._ready(peer_id)
            case loading.Linked(next=linked_to, ok=ok):
                self._linked(peer_id, linked_to, ok=bool(ok))
            case loading.LinkLost(name=name, up=up):
                self._link_changed(peer_id, clean_name(name, peer_id), is_up=bool(up))
            case loading.ErrorReport():
                self._failed(peer_id, message)
            case _:
                return False
        return True

    def _progress(self, peer_id: str, percent: float) -> None:
        start = self.deal()
        if start is not None:
            start.progress(peer_id, percent)

    def _ready(self, peer_id: str) -> None:
        start = self.deal()
        if self.is_dealing() and start is not None:
            start.ready(peer_id)
        seat = self.seats().at(peer_id)
        if seat is not None:
            seat.is_ready = True
            self.changed()

    def _linked(self, peer_id: str, linked_to: str, *, ok: bool) -> None:
        """A worker followed the order to link, or could not."""
        seat, after = self._with_next(peer_id)
        if seat is None or after is None or after.peer_id != linked_to:
            return
        seat.is_linked = ok
        seat.link_news += 1
        if ok:
            self.changed()
        else:
            self.orders.relink_later(after)

    def _link_changed(self, peer_id: str, name: str, *, is_up: bool) -> None:
        """A worker lost its link to the next device, or has it again."""
        seat, after = self._with_next(peer_id)
        if seat is None or after is None or after.name != name:
            return
        if is_up:
            if after.is_here:
                seat.is_linked = True
                self.changed()
            return
        seat.is_linked = False
        seat.link_news += 1
        what = f"{name} stopped responding"
        if not self.guard.is_stalled(name):
            what += f" to {seat.name}"
        if not self.fail_deal(f"{what} while the model was loading.") and self.is_whole():
            self.notify(Notice(f"{what}; waiting until the link is back."))
        self.broke(what)

    def _with_next(self, peer_id: str) -> tuple[Seat | None, Seat | None]:
        """The seat of a device, and the one that it sends to."""
        seat = self.seats().at(peer_id)
        return seat, self.seats().after(seat) if seat is not None else None

    def _failed(self, peer_id: str, message: loading.ErrorReport) -> None:
        seat = self.seats().at(peer_id)
        if seat is None:
            return
        if message.load:
            self._could_not_load(seat, message.message)
        kind: LapFailure = "not-a-number" if "NaN" in message.message else "device-error"
        self.fail_laps(LapFailed(kind, f"{seat.name} reported an error: {message.message}"))

    def _could_not_load(self, seat: Seat, why: str) -> None:
        sentence = f"{seat.name} couldn't load its layers ({why})"
        if self.fail_deal(sentence):
            return
        seat.is_ready = False
        self.broke(sentence)
        self.orders.load_later(seat)
