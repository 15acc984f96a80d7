"""Who is in a host's room: from the gate to a seat or a chair, and what each is told (joining, 7).

The gate has let a device in. Here it gets its name, perhaps its seat back, and everything that it
has missed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import DeviceJoined, Notice
from poolhouse_node.room.roster import Member, clean_name, device_label
from poolhouse_node.wire.messages import loading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from poolhouse_node.device.answering import Answering
    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.keeper import ChainKeeper
    from poolhouse_node.device.load_deaths import LoadDeaths
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.device.namesakes import Namesakes
    from poolhouse_node.room.roster import Roster
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.messages.joining import Hello

__all__ = ["Reception"]


@dataclass(slots=True)
class Reception:
    """Brings devices into the room and tells them where it stands.

    ``expected`` are devices that held layers before this host was started again and did not come
    yet.
    """

    roster: Roster
    peers: Mapping[str, Peer]
    keeper: ChainKeeper
    namesakes: Namesakes
    load_deaths: LoadDeaths
    model: RoomModel
    answering: Callable[[], Answering | None]
    """``None`` before the first deal."""
    admit: Callable[[Peer], None]
    send: Callable[[Peer, Message], None]
    broadcast: Callable[[Message], None]
    notify: Notify
    expected: set[str]
    _came_while_dealing: list[Peer] = field(default_factory=list)
    _missed_the_deal: bool = False
    """One of the expected devices came while the layers were dealt without it."""
    _arrivals: asyncio.Event = field(default_factory=asyncio.Event)

    # ---- who is here ---------------------------------------------------------------------------

    def candidates(self, seated: Sequence[str]) -> list[Member]:
        """Devices that may hold layers, the host first, those of ``seated`` names in order."""
        host, *others = self.roster.order_for_deal(seated)
        return [host, *(each for each in others if self._is_reachable(each.peer_id))]

    async def until_devices(self, count: int) -> None:
        """Wait until ``count`` other devices that can hold layers are here."""
        while len(self.candidates(())) - 1 < count:
            await self.until_changed()

    async def until_named(self, names: Iterable[str], *, timeout_s: float) -> bool:
        """Wait until devices of these names are here; False when some did not come in time."""
        missing = set(names)
        try:
            async with asyncio.timeout(timeout_s):
                while not missing <= {member.name for member in self.candidates(())}:
                    await self.until_changed()
        except TimeoutError:
            return False
        return True

    async def until_changed(self) -> None:
        """Wait until a device comes in, or changes what it lends; also since the last deal."""
        await self._arrivals.wait()
        self._arrivals.clear()

    @property
    def has_changed(self) -> bool:
        """:meth:`until_changed` would not wait."""
        return self._arrivals.is_set()

    def forget_arrivals(self) -> None:
        """Layers are dealt over who is here now: :meth:`until_changed` counts from here."""
        self._arrivals.clear()

    # ---- coming in -----------------------------------------------------------------------------

    def let_in(self, peer: Peer, hello: Hello) -> None:
        """The gate said yes, and ``admit`` is on its way."""
        name = clean_name(hello.name, peer.link.peer_id)
        self.namesakes.settle(
            peer.link.peer_id,
            name,
            is_back=bool(hello.back or hello.died),
            enter=lambda: self._enter(peer, hello, name),
        )

    def _enter(self, peer: Peer, hello: Hello, name: str) -> None:
        peer_id = peer.link.peer_id
        if self.peers.get(peer_id) is not peer:
            return  # it left while its name was looked into
        member = self.roster.add(Member(peer_id, name, peer.meta, proves_links=bool(hello.auth)))
        self.admit(peer)
        self.tell_roster()
        self.notify(DeviceJoined(member.name, device_label(member.meta)))
        limit = self.load_deaths.came(member, hello.died)
        has_its_seat = limit is None and self.keeper.came(peer_id, member.name)
        if limit is not None:
            self._share_lowered(peer, limit)
        self._maybe_expected(member, has_its_seat=has_its_seat)
        self._welcome(peer, member, is_back=bool(hello.back), is_seated=has_its_seat)
        self._arrivals.set()

    def _share_lowered(self, peer: Peer, limit: loading.ShareLimit) -> None:
        """Its layers were too much for it: it does not get the same seat back."""
        self.notify(Notice(limit.why))
        self.send(peer, limit)
        self.keeper.deal_soon()

    def _maybe_expected(self, member: Member, *, has_its_seat: bool) -> None:
        """A device of a resumed room that came too late for its deal gets another one."""
        was_expected = member.name in self.expected
        self.expected.discard(member.name)
        if not was_expected or has_its_seat or not member.holds_layers:
            return
        if self.keeper.is_dealing:
            self._missed_the_deal = True
        elif self.answering() is not None:
            self.keeper.deal_soon()

    def pledged(self, peer_id: str, gb: float) -> None:
        """A device changed what it lends; the next deal counts with it."""
        member = self.roster.members.get(peer_id)
        if member is not None:
            member.meta["contribGB"] = gb
            self.tell_roster()
            self.keeper.pledges_changed()
            self._arrivals.set()

    # ---- what devices are told -----------------------------------------------------------------

    def tell_roster(self) -> None:
        """Everyone hears who is here."""
        self.broadcast(self.roster.to_message())

    def ready_all(self) -> loading.ReadyAll:
        """The room is online."""
        return loading.ReadyAll(
            model=self.model.key,
            label=self.model.label,
            ctx=self.model.context_size,
            out=self._left_out() or None,
        )

    def deal_begins(self) -> None:
        """Layers go to their devices."""
        self.load_deaths.dealt(self.keeper.shares)

    def deal_ended(self) -> None:
        """Who came meanwhile may hold layers of an earlier deal; and who was waited for gets a
        deal after all.
        """
        came, self._came_while_dealing = self._came_while_dealing, []
        layers = self.keeper.layers_message()
        for peer in came:
            if layers is not None and self.peers.get(peer.link.peer_id) is peer:
                self.send(peer, layers)
        if self._missed_the_deal:
            self._missed_the_deal = False
            self.keeper.deal_soon()

    def _welcome(self, peer: Peer, member: Member, *, is_back: bool, is_seated: bool) -> None:
        answering, layers = self.answering(), self.keeper.layers_message()
        if answering is None or layers is None or self.keeper.is_dealing:
            self._came_while_dealing.append(peer)
            self.send(peer, loading.Wait())
        else:
            self._say_layers(peer, layers, member, is_seated=is_seated)
        if answering is None:
            return
        if not is_back:
            self.send(peer, answering.history())
        for message in [*answering.so_far(), *answering.places_of(member.peer_id)]:
            self.send(peer, message)

    def _say_layers(
        self, peer: Peer, layers: loading.Layers, member: Member, *, is_seated: bool
    ) -> None:
        if member.holds_layers and not is_seated:
            self.broadcast(loading.LeftOut(out=self._left_out()))
        self.send(peer, layers)
        if not is_seated:
            degraded = self.keeper.degraded
            self.send(peer, loading.Degraded(why=degraded) if degraded else self.ready_all())

    def _left_out(self) -> dict[str, str]:
        """Devices without layers and why; who came after the deal is late."""
        held = {share.name for share in self.keeper.shares}
        message = self.keeper.layers_message()
        reasons = dict(message.out or {}) if message else {}
        for member in self.roster.members.values():
            if member.holds_layers and member.name not in held:
                reasons.setdefault(member.name, "late")
        return reasons

    def _is_reachable(self, peer_id: str) -> bool:
        peer = self.peers.get(peer_id)
        return peer is not None and peer.admitted and peer.link.is_open
