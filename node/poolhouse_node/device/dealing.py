"""From Start to the room being online: deal, load, wait until everyone is ready (dealing)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import Dealt, LoadProgress, Share
from poolhouse_node.device.next_link import HOST
from poolhouse_node.room.deal import (
    Deal,
    DealError,
    SplitError,
    deal_by_memory,
    deal_exactly,
    does_it_fit,
)
from poolhouse_node.room.liveness import is_phone
from poolhouse_node.room.pledge import GIB
from poolhouse_node.room.versions import PROTOCOL
from poolhouse_node.shard import ShardError
from poolhouse_node.wire.messages.loading import HostProgress, Layers, Load

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.device.ports import ShardLoader
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.room.deal import Seat
    from poolhouse_node.room.roster import Member
    from poolhouse_node.shard import Shard
    from poolhouse_node.wire.messages import Message

__all__ = ["Start", "StartError", "make_deal", "shortage"]

HOST_PROGRESS_S = 0.6
LOAD_STALL_S = 300.0
"""A device that shows no progress for this long fails the start."""
KV_FORMAT = "f16"


class StartError(Exception):
    """The room could not be brought online; the text says why and what to do.

    ``is_final`` when no device that comes or goes can change it.
    """

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


def make_deal(
    model: RoomModel,
    members: Sequence[Member],
    split: Sequence[int] | None,
    *,
    is_again: bool = False,
) -> Deal:
    """Deal the layers to ``members``, the host first.

    The person's ``split`` does not count any more when one of the devices was killed by what it
    was dealt, nor when a room is dealt again over fewer devices than it names: then memory does.
    Raises :class:`StartError` with how many GB are missing, or what is wrong with the split.
    """
    was_lowered = any(member.most_gb is not None for member in members)
    if split and not was_lowered and not (is_again and len(split) > len(members)):
        try:
            return deal_exactly(model.needs, split, len(members))
        except DealError as error:
            raise StartError(str(error), is_final=isinstance(error, SplitError)) from error
    pledges = [member.pledge_gb * GIB for member in members]
    phones = [is_phone(member.meta) for member in members]
    try:
        return deal_by_memory(model.needs, pledges, phones)
    except DealError as error:
        raise StartError(shortage(model, members, pledges)) from error


def shortage(model: RoomModel, members: Sequence[Member], pledges_bytes: Sequence[float]) -> str:
    """How many GB are missing and which two devices could give them (dealing, section 11)."""
    fit = does_it_fit(model.needs, pledges_bytes)
    ranked = sorted(range(len(members)), key=lambda i: (fit.raise_bytes[i], i))
    helpers = [i for i in ranked if fit.raise_bytes[i] < float("inf")][:2]
    names = " or ".join(
        f"{members[i].name} ({_gb_up(fit.raise_bytes[i])} GB more)" for i in helpers
    )
    return (
        f"{model.label} does not fit what the devices lend: {_gb_up(fit.short_bytes)} GB are "
        f"missing. Raise the pledge of {names}, or add a device."
    )


def _gb_up(size_bytes: float) -> str:
    tenths = -(-int(size_bytes) * 10 // GIB)
    return f"{tenths / 10:.1f}"


@dataclass(slots=True)
class Start:
    """One attempt to bring the room online over the devices that are here."""

    model: RoomModel
    members: list[Member]
    """Candidates for layers, the host first, in chain order."""
    deal: Deal
    loader: ShardLoader
    compute: Compute
    tell: Callable[[str, Message], None]
    broadcast: Callable[[Message], None]
    notify: Notify
    shard: Shard | None = None
    """The host's own part: of the deal before, then of this one. The owner closes it."""
    _percent: dict[str, int] = field(default_factory=dict)
    _waiting_for: set[str] = field(default_factory=set)
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _failed: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    _moved_at: float = 0.0

    @property
    def workers(self) -> list[str]:
        """Peer ids of the chain, in layer order."""
        return [self.members[seat.device].peer_id for seat in self.deal.seats[1:]]

    def layers_message(self) -> Layers:
        """``ai-layers``: who holds what, who holds nothing and why."""
        shares = self.shares()
        return Layers(
            by={share.name: f"{share.lo}–{share.hi - 1}" for share in shares},
            held={share.name: round(share.held_gb, 3) for share in shares},
            out={self.members[i].name: why for i, why in self.deal.left_out.items()},
        )

    def shares(self) -> list[Share]:
        """The parts in layer order, the host's first."""
        return [
            Share(self.members[seat.device].name, seat.lo, seat.hi, seat.held_bytes / GIB)
            for seat in self.deal.seats
        ]

    async def run(self) -> None:
        """Send the loads, load the host's own part, wait for every worker.

        :attr:`shard` is the host's part then. Raises :class:`StartError`; the caller tells the
        room, and :attr:`shard` is what this device holds, if anything.
        """
        loop = asyncio.get_running_loop()
        self._moved_at = loop.time()
        self._send_loads()
        self.broadcast(self.layers_message())
        left_out = tuple((self.members[i].name, why) for i, why in self.deal.left_out.items())
        self.notify(Dealt(self.model.label, tuple(self.shares()), left_out))
        ticker = asyncio.ensure_future(self._tell_progress())
        own = asyncio.ensure_future(self._load_own())
        try:
            await self._until_ready(own)
        finally:
            for task in (own, ticker):
                task.cancel()
            await asyncio.gather(own, ticker, return_exceptions=True)
            if not self._failed.cancel():
                self._failed.exception()

    @property
    def loaded(self) -> Shard:
        """The host's part, once :meth:`run` has ended well."""
        if self.shard is None:
            raise StartError("This device holds no layers.")
        return self.shard

    def load_of(self, name: str, next_id: str) -> Load:
        """``ai-load`` for a worker of this deal, with the device that is next now."""
        share = next(share for share in self.shares() if share.name == name)
        return Load(
            v=PROTOCOL,
            model=self.model.key,
            range=(share.lo, share.hi),
            ctx=self.model.context_size,
            kv=KV_FORMAT,
            next=next_id,
            host=self.members[0].peer_id,
        )

    def progress(self, peer_id: str, percent: float) -> None:
        """A worker loaded some more."""
        if peer_id in self.workers:
            self._note(self._name(peer_id), int(percent))

    def ready(self, peer_id: str) -> None:
        """A worker holds its layers and its link to the next device."""
        if peer_id in self._waiting_for:
            self._waiting_for.discard(peer_id)
            self._note(self._name(peer_id), 100)
            if not self._waiting_for:
                self._ready.set()

    def fail(self, why: str) -> None:
        """Something happened that ends this start."""
        if not self._failed.done():
            self._failed.set_exception(StartError(why))

    # ---- inside --------------------------------------------------------------------------------

    def _send_loads(self) -> None:
        workers = self.workers
        self._waiting_for = set(workers)
        self._percent = {share.name: 0 for share in self.shares()}
        for worker, next_id in zip(workers, [*workers[1:], HOST], strict=False):
            self.tell(worker, self.load_of(self._name(worker), next_id))
        if not workers:
            self._ready.set()

    async def _load_own(self) -> None:
        seat, name = self.deal.seats[0], self.members[0].name
        if not await self._keep_own(seat):
            self.shard = await self.loader.load(
                self.model.key,
                (seat.lo, seat.hi),
                context_size=self.model.context_size,
                host=True,
                progress=lambda share: self._note(name, int(share * 100)),
            )
        self._note(name, 100)

    async def _keep_own(self, seat: Seat) -> bool:
        """The same layers as before stay, with nothing in them; others are freed first."""
        held = self.shard
        if held is None:
            return False
        if (held.lo, held.hi) == (seat.lo, seat.hi):
            await self.compute.run(held.reset)
            await self.compute.run(held.drop_all)
            return True
        self.shard = None
        await self.compute.run(held.close)
        return False

    async def _until_ready(self, own: asyncio.Future[None]) -> None:
        all_ready = asyncio.ensure_future(self._ready.wait())
        try:
            while not (own.done() and all_ready.done()):
                pending = {task for task in (own, all_ready, self._failed) if not task.done()}
                await asyncio.wait(
                    pending, timeout=LOAD_STALL_S / 10, return_when=asyncio.FIRST_COMPLETED
                )
                self._raise_if_failed()
                if own.done() and own.exception() is not None:
                    break
            own.result()
        except ShardError as error:
            raise StartError(f"This device could not load its layers: {error}") from error
        finally:
            all_ready.cancel()

    def _raise_if_failed(self) -> None:
        if self._failed.done():
            self._failed.result()
        stalled_s = asyncio.get_running_loop().time() - self._moved_at
        if stalled_s > LOAD_STALL_S:
            late = ", ".join(sorted(self._name(peer_id) for peer_id in self._waiting_for))
            raise StartError(
                f"No device made progress with loading for {LOAD_STALL_S:.0f} s"
                + (f"; still missing: {late}." if late else ".")
            )

    def _note(self, name: str, percent: int) -> None:
        if percent > self._percent.get(name, -1):
            self._percent[name] = percent
            self._moved_at = asyncio.get_running_loop().time()
            self.notify(LoadProgress(name, percent))

    async def _tell_progress(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HOST_PROGRESS_S)
            self.broadcast(HostProgress(all=dict(self._percent), at=loop.time() * 1000))

    def _name(self, peer_id: str) -> str:
        return next(member.name for member in self.members if member.peer_id == peer_id)
