"""Keeping the chain whole: who sits where, who is missing, when to deal again (liveness, 5, 7)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from poolhouse_node.device.dealing import Start, StartError, make_deal
from poolhouse_node.device.events import RoomDegraded, RoomMended
from poolhouse_node.device.guard import ChainGuard
from poolhouse_node.device.laps import WorkerChain
from poolhouse_node.device.orders import Orders
from poolhouse_node.device.reports import Reports
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.room.outage import Outage
from poolhouse_node.room.returning import KNOCK_S
from poolhouse_node.room.seats import Seat, Seats
from poolhouse_node.wire.messages import loading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.events import Share
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.device.ports import Link, ShardLoader
    from poolhouse_node.device.room_port import Room
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.room.roster import Member
    from poolhouse_node.shard import Shard
    from poolhouse_node.wire.messages import Message

__all__ = ["REDEAL_AFTER_S", "ChainKeeper"]

log = logging.getLogger(__name__)

REDEAL_AFTER_S = 60.0
WHOLE_POLL_S = 0.25
WHOLE_WAIT_S = 360.0
SETTLING_S = 0.5
"""Before a deal over new pledges (section 9)."""


class ChainKeeper:
    """Deals the layers and brings the chain together again when a device or a link is lost.

    The host tells it who came and went and hands it the messages of its workers. Run
    :meth:`work` as a task once the room is online.
    """

    def __init__(
        self,
        room: Room,
        *,
        model: RoomModel,
        loader: ShardLoader,
        compute: Compute,
        split: Sequence[int] | None,
        redeal_after_s: float | None,
        was_dealt: bool,
        is_answering: Callable[[], bool],
    ) -> None:
        self._room, self._model, self._loader, self._compute = room, model, loader, compute
        self._split = split
        self.chain = WorkerChain(self._link_to, self._rtt_s, room.name_of, room.notify)
        self.guard = ChainGuard(
            chain=self._peers,
            watches=lambda: is_answering() and not self.chain.is_empty and self.is_whole,
            ping=room.ping,
            name_of=room.name_of,
            notify=room.notify,
        )
        self.seats = Seats()
        self._orders = Orders(
            lambda: self.seats, lambda: self._start, room.tell, self._mend_if_whole
        )
        self._reports = Reports(
            lambda: self.seats,
            lambda: self._start,
            is_dealing=lambda: self._is_dealing,
            is_whole=lambda: self.is_whole,
            orders=self._orders,
            guard=self.guard,
            notify=room.notify,
            fail_deal=self._fail_deal,
            broke=self._break,
            fail_laps=self.chain.report,
            changed=self._mend_if_whole,
        )
        self.shard: Shard | None = None
        self.degraded: str | None = None
        """Why the room cannot take questions now; a sentence."""
        self._start: Start | None = None
        """The last deal, under way or done."""
        self._is_dealing = False
        self._is_online = False
        self._is_over = False
        self._was_dealt = was_dealt
        """Also by a host before this process: a split may name more devices than are left."""
        self._outage = Outage(redeal_after_s)
        self._changed = asyncio.Event()

    # ---- dealing -------------------------------------------------------------------------------

    async def start(self) -> None:
        """The first deal. Raises :class:`StartError`; nobody holds anything then."""
        try:
            await self._deal()
        except StartError:
            self._start, self.seats = None, Seats()
            self.chain.deal([])
            raise

    def deal_soon(self) -> None:
        """Deal again without waiting for anyone: a device was sent out, or a person says so.

        During a deal this counts only if that one fails.
        """
        if not self._is_online:
            return
        self._outage.wants_deal = True
        if not self._is_dealing:
            self._break("the layers are dealt again")

    def close(self) -> None:
        """The room is over for good: that its devices go, one after the other, is no news."""
        self._is_over = True

    @property
    def is_dealing(self) -> bool:
        """Layers are being loaded everywhere."""
        return self._is_dealing

    @property
    def is_whole(self) -> bool:
        """The model is loaded everywhere and frames go round."""
        return self._is_online and not self._is_dealing and self._outage.since is None

    @property
    def shares(self) -> list[Share]:
        """Who holds which layers, in the order of the deal; empty before it."""
        return self._start.shares() if self._start else []

    def layers_message(self) -> loading.Layers | None:
        """``ai-layers`` of the current deal."""
        return self._start.layers_message() if self._start else None

    def loads(self, peer_id: str) -> bool:
        """A device that may be busy loading: its silence is no sign of death."""
        seat = self.seats.at(peer_id)
        return self._is_dealing or (seat is not None and not seat.is_ready)

    def waits_for(self) -> tuple[str, float, float | None] | None:
        """What the chain waits for, for how many seconds, and seconds until it is dealt again."""
        now, outage = asyncio.get_running_loop().time(), self._outage
        if outage.since is None:
            silent = self.guard.silent(now)
            names = " and ".join(name for name, _ in silent)
            longest_s = max((silent_s for _, silent_s in silent), default=0.0)
            return (f"waiting for a sign of {names}", longest_s, None) if silent else None
        rest_s = outage.rest_s(now)
        what = "waiting for a deal that works" if outage.needs_deal else self.seats.awaited()
        deal_in_s = None if rest_s is None else max(0.0, rest_s)
        return what or "dealing the layers again", now - outage.since, deal_in_s

    def awaited(self) -> str:
        """What the chain waits for, in words; empty when it waits for nothing."""
        waits = self.waits_for()
        return waits[0] if waits else ""

    async def _deal(self) -> None:
        members = self._room.candidates([seat.name for seat in self.seats])
        start = self._start = self._new_start(members)
        self.seats = Seats(
            [
                Seat(share.name, (share.lo, share.hi), peer_id)
                for share, peer_id in zip(start.shares()[1:], start.workers, strict=True)
            ]
        )
        self.chain.deal(start.workers)
        self._is_dealing = self._outage.needs_deal = True
        self._room.dealing(now=True)
        try:
            await start.run()
        finally:
            self.shard = start.shard
            self._is_dealing = False
            self._room.dealing(now=False)
        lost = [seat for seat in self.seats if not (seat.is_here and seat.is_linked)]
        if lost:  # between the last one's word and now
            raise StartError(f"{lost[0].name} was lost while the model was loading.")
        self.chain.mend(start.workers)
        self._outage.deal_worked()
        self._is_online, self.degraded = True, None
        self._was_dealt = True
        for seat in self.seats:
            seat.is_ready = True
        self._room.dealt(start.loaded)

    def _new_start(self, members: list[Member]) -> Start:
        room = self._room
        return Start(
            self._model,
            members,
            make_deal(self._model, members, self._split, is_again=self._was_dealt),
            self._loader,
            self._compute,
            room.tell,
            room.broadcast,
            room.notify,
            shard=self.shard,
        )

    # ---- who comes and goes --------------------------------------------------------------------

    def came(self, peer_id: str, name: str) -> bool:
        """A device came in; True when it has its seat back and is told what to load."""
        outage = self._outage
        seat = None if self._is_dealing or outage.needs_deal else self.seats.sit(name, peer_id)
        if seat is None:
            # After a deal that failed somebody else may do; during one it shows whether it fails.
            outage.wants_deal |= outage.needs_deal and self._is_online and self._may_hold(name)
            self._changed.set()
            return False
        if outage.since is None:
            self._break(f"{seat.name} came back")
        log.info("seat.taken: %s", seat.words)
        self._orders.relink(seat)
        self._orders.load(seat)
        return True

    def pledges_changed(self) -> None:
        """A device lends more or less: where the last deal failed, another one may work.

        During a deal this counts only if that one fails.
        """
        self._outage.wants_deal |= self._outage.needs_deal and self._is_online
        self._changed.set()

    def gone(self, peer_id: str, verb: str) -> None:
        """A device is gone, for as far as is known: its seat waits for it."""
        what = self._left(peer_id, verb)
        if what is None or not self._is_online or self._is_over:
            return
        again = self._outage.when_again()
        self._say_degraded(f"{what}; the room cannot answer without it. {again}")

    def link_down(self, peer_id: str, verb: str) -> None:
        """The link to a device died, or a new one is being made: laps fail, the room waits."""
        self._left(peer_id, verb)

    def _left(self, peer_id: str, verb: str) -> str | None:
        """Note that a device is away; a sentence when it has a seat."""
        seat = self.seats.at(peer_id)
        if seat is None:
            known = next((each for each in self.seats if each.peer_id == peer_id), None)
            return self._sentence(known, verb) if known is not None else None
        what = self._sentence(seat, verb)
        self.seats.leave(peer_id)
        self._fail_deal(f"{what} while the model was loading.")
        self._break(what)
        return what

    def _fail_deal(self, why: str) -> bool:
        """End the deal that is under way, if one is."""
        if not self._is_dealing or self._start is None:
            return False
        self._start.fail(why)
        return True

    def _sentence(self, seat: Seat, verb: str) -> str:
        lo, hi = seat.layers
        return f"{seat.name} {verb} (it held layers {lo}–{hi - 1})"

    def give_up_waiting(self) -> None:
        """The person stops an answer: laps that a silent or failing device holds up end at once."""
        is_silent = bool(self.guard.silent(asyncio.get_running_loop().time()))
        if is_silent or self.chain.is_in_doubt:
            self.chain.fail(LapFailed("timeout", "The answer was stopped."))

    def take(self, peer_id: str, message: Message) -> bool:
        """A message about loading and links; False when it is about something else."""
        return not self._is_over and self._reports.take(peer_id, message)

    # ---- broken and whole ----------------------------------------------------------------------

    async def work(self) -> None:
        """Deal again when the chain stays broken, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._outage.since is not None:
                if self._outage.must_deal(asyncio.get_running_loop().time()):
                    await self._deal_again()
                else:
                    await self._until_change()

    async def until_whole(self, stopped: Callable[[], bool]) -> bool:
        """Wait for a whole chain; False when ``stopped`` says so or after six minutes."""
        loop = asyncio.get_running_loop()
        until = loop.time() + WHOLE_WAIT_S
        while not self.is_whole:
            if stopped() or loop.time() >= until:
                return False
            await asyncio.sleep(WHOLE_POLL_S)
        return True

    async def _until_change(self) -> None:
        rest_s = self._outage.rest_s(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(KNOCK_S if rest_s is None else min(rest_s, KNOCK_S)):
                await self._changed.wait()
        except TimeoutError:
            self._room.hurry()
            self._orders.remind()
        else:
            self._changed.clear()

    def _may_hold(self, name: str) -> bool:
        return any(member.name == name for member in self._room.candidates(()))

    async def _deal_again(self) -> None:
        self._break("the layers are dealt again")  # also when it was mended a moment ago
        host, broken_at = self._room.candidates(())[0], self._outage.since
        self._is_dealing, self._outage.wants_deal = True, False
        self._room.broadcast(loading.Redeal(by=host.name, model=self._model.key))
        try:
            await asyncio.sleep(SETTLING_S)
            await self._deal()
        except StartError as error:
            self._deal_failed(str(error))
        else:
            self._mended(broken_at)
        finally:
            self._is_dealing = False

    def _deal_failed(self, why: str) -> None:
        """Wait for other devices, or the same ones again; the conversation is not lost."""
        self._outage.deal_failed(asyncio.get_running_loop().time())
        self._say_degraded(f"{why} The room waits for devices.")

    def _say_degraded(self, why: str) -> None:
        self.degraded = why
        self._room.broadcast(loading.Degraded(why=self.degraded))
        self._room.notify(RoomDegraded(self.degraded))

    def _break(self, what: str) -> None:
        """Laps in flight fail; what the caches hold is unknown until the chain is whole again."""
        why = f"{what}, so the answer could not go on."
        self.chain.break_off(LapFailed("left", why))
        self._room.forget_caches(why)
        if self._is_online:
            self._outage.begin(asyncio.get_running_loop().time())
        self._changed.set()

    def _mend_if_whole(self) -> None:
        if self._is_dealing or not (self._outage.ends_by_seats and self.seats.is_whole):
            return
        broken_at, self.degraded = self._outage.end(), None
        self.chain.mend(self.seats.peer_ids)
        self._room.say_ready()
        self._mended(broken_at)

    def _mended(self, broken_at: float | None) -> None:
        self._changed.set()
        if not self.is_whole:  # it is dealt again at once
            return
        now = asyncio.get_running_loop().time()
        self._room.notify(RoomMended(now - (now if broken_at is None else broken_at)))

    # ---- links ---------------------------------------------------------------------------------

    def _link_to(self, peer_id: str) -> Link | None:
        peer = self._room.admitted_peer(peer_id)
        return peer.link if peer is not None else None

    def _rtt_s(self, peer_id: str) -> float | None:
        peer = self._room.admitted_peer(peer_id)
        return peer.rtt_s if peer is not None else None

    def _peers(self) -> list[Peer]:
        found = map(self._room.admitted_peer, self.chain.workers)
        return [peer for peer in found if peer is not None]
