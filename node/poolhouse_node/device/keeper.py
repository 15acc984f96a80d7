"""Keeping the chain whole: who sits where, who is missing, when to deal again (liveness, 5, 7)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from poolhouse_node.device.dealing import Start, StartError, make_deal
from poolhouse_node.device.events import Notice, RoomDegraded, RoomMended
from poolhouse_node.device.guard import ChainGuard
from poolhouse_node.device.laps import WorkerChain
from poolhouse_node.device.orders import Orders
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.room.returning import KNOCK_S
from poolhouse_node.room.roster import clean_name
from poolhouse_node.room.seats import Seat, Seats
from poolhouse_node.wire.messages import loading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.events import Share
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.device.ports import Link, ShardLoader
    from poolhouse_node.device.room_port import Room
    from poolhouse_node.generate.ports import Compute, LapFailure
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
        self._split, self.redeal_after_s = split, redeal_after_s
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
        self._needs_deal = False
        """The last deal failed: seats that fill again do not help."""
        self._wants_deal = False
        self._broken_at: float | None = None
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
        self._wants_deal = True
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
        return self._is_online and not self._is_dealing and self._broken_at is None

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
        now = asyncio.get_running_loop().time()
        if self._broken_at is None:
            silent = self.guard.silent(now)
            names = " and ".join(name for name, _ in silent)
            longest_s = max((silent_s for _, silent_s in silent), default=0.0)
            return (f"waiting for a sign of {names}", longest_s, None) if silent else None
        since_s, rest_s = now - self._broken_at, self._rest_s()
        what = "waiting for a deal that works" if self._needs_deal else self.seats.awaited()
        deal_in_s = None if rest_s is None else max(0.0, rest_s)
        return what or "dealing the layers again", since_s, deal_in_s

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
        self._is_dealing, self._needs_deal = True, True
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
        self._wants_deal = False
        self._needs_deal, self._is_online, self.degraded = False, True, None
        self._was_dealt = True
        self._broken_at = None
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
        seat = None if self._is_dealing or self._needs_deal else self.seats.sit(name, peer_id)
        if seat is None:
            # After a deal that failed somebody else may do; during one it shows whether it fails.
            self._wants_deal |= self._needs_deal and self._is_online and self._may_hold(name)
            self._changed.set()
            return False
        if self._broken_at is None:
            self._break(f"{seat.name} came back")
        log.info("seat.taken: %s", seat.words)
        self._orders.relink(seat)
        self._orders.load(seat)
        return True

    def pledges_changed(self) -> None:
        """A device lends more or less: where the last deal failed, another one may work.

        During a deal this counts only if that one fails.
        """
        self._wants_deal |= self._needs_deal and self._is_online
        self._changed.set()

    def gone(self, peer_id: str, verb: str) -> None:
        """A device is gone, for as far as is known: its seat waits for it."""
        what = self._left(peer_id, verb)
        if what is None or not self._is_online or self._is_over:
            return
        again = self._when_again()
        self.degraded = f"{what}; the room cannot answer without it. {again}"
        self._room.broadcast(loading.Degraded(why=self.degraded))
        self._room.notify(RoomDegraded(self.degraded))

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

    def _when_again(self) -> str:
        if self._wants_deal:
            return "The layers are dealt again now."
        if self.redeal_after_s is None:
            return "It waits until the device is back; automatic re-deal is off."
        return f"Unless it is back in {self.redeal_after_s:.0f} s, the layers are dealt again."

    # ---- what workers say ----------------------------------------------------------------------

    def take(self, peer_id: str, message: Message) -> bool:
        """A message about loading and links; False when it is about something else."""
        if self._is_over:
            return False
        match message:
            case loading.Progress(pct=percent):
                if self._start is not None:
                    self._start.progress(peer_id, percent)
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

    def _ready(self, peer_id: str) -> None:
        if self._is_dealing and self._start is not None:
            self._start.ready(peer_id)
        seat = self.seats.at(peer_id)
        if seat is not None:
            seat.is_ready = True
            self._mend_if_whole()

    def _linked(self, peer_id: str, linked_to: str, *, ok: bool) -> None:
        seat = self.seats.at(peer_id)
        after = self.seats.after(seat) if seat is not None else None
        if seat is None or after is None or after.peer_id != linked_to:
            return
        seat.is_linked = ok
        seat.link_news += 1
        if ok:
            self._mend_if_whole()
        else:
            self._orders.relink_later(after)

    def _link_changed(self, peer_id: str, name: str, *, is_up: bool) -> None:
        """A worker lost its link to the next device, or has it again."""
        seat = self.seats.at(peer_id)
        after = self.seats.after(seat) if seat is not None else None
        if seat is None or after is None or after.name != name:
            return
        if is_up:
            if after.is_here:
                seat.is_linked = True
                self._mend_if_whole()
            return
        seat.is_linked = False
        seat.link_news += 1
        what = f"{name} stopped responding"
        if not self.guard.is_stalled(name):
            what += f" to {seat.name}"
        if not self._fail_deal(f"{what} while the model was loading.") and self.is_whole:
            self._room.notify(Notice(f"{what}; waiting until the link is back."))
        self._break(what)

    def _failed(self, peer_id: str, message: loading.ErrorReport) -> None:
        seat = self.seats.at(peer_id)
        if seat is None:
            return
        if message.load:
            self._could_not_load(seat, message.message)
        kind: LapFailure = "not-a-number" if "NaN" in message.message else "device-error"
        sentence = f"{seat.name} reported an error: {message.message}"
        self.chain.report(LapFailed(kind, sentence))

    def _could_not_load(self, seat: Seat, why: str) -> None:
        sentence = f"{seat.name} couldn't load its layers ({why})"
        if self._fail_deal(sentence):
            return
        seat.is_ready = False
        self._break(sentence)
        self._orders.load_later(seat)

    # ---- broken and whole ----------------------------------------------------------------------

    async def work(self) -> None:
        """Deal again when the chain stays broken, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._broken_at is not None:
                if self._must_deal():
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

    def _must_deal(self) -> bool:
        """Now is the time: somebody wants it, or whoever is missing did not come in time."""
        if self._wants_deal:
            return True
        rest_s = self._rest_s()
        return rest_s is not None and rest_s <= 0

    def _rest_s(self) -> float | None:
        if self.redeal_after_s is None or self._broken_at is None:
            return None
        return self._broken_at + self.redeal_after_s - asyncio.get_running_loop().time()

    async def _until_change(self) -> None:
        rest_s = self._rest_s()
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
        host, broken_at = self._room.candidates(())[0], self._broken_at
        self._is_dealing, self._wants_deal = True, False
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
        self._broken_at = asyncio.get_running_loop().time()
        self._needs_deal = True
        self.degraded = f"{why} The room waits for devices."
        self._room.broadcast(loading.Degraded(why=self.degraded))
        self._room.notify(RoomDegraded(self.degraded))

    def _break(self, what: str) -> None:
        """Laps in flight fail; what the caches hold is unknown until the chain is whole again."""
        why = f"{what}, so the answer could not go on."
        self.chain.break_off(LapFailed("left", why))
        self._room.forget_caches(why)
        if self._is_online and self._broken_at is None:
            self._broken_at = asyncio.get_running_loop().time()
        self._changed.set()

    def _mend_if_whole(self) -> None:
        idle = self._is_dealing or self._needs_deal or self._wants_deal
        if self._broken_at is None or idle or not self.seats.is_whole:
            return
        broken_at, self._broken_at, self.degraded = self._broken_at, None, None
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
