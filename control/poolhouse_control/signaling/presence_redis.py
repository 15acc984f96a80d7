"""Presence shared by replicas, in Redis or Valkey.

An owner record a peer (who owns it, by which token, by which claim), a lease a replica, a channel
a replica. Every decision is one script that touches one slot; docs/explanation/presence.md has
the picture, and the table of what can fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import random
import secrets
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from poolhouse_control.errors import StoreAway
from poolhouse_control.signaling.presence import (
    Away,
    Claimed,
    Parcel,
    RouteResult,
    Taken,
    token_digest,
)
from poolhouse_control.signaling.redis_entries import entry_name, unpack_entries
from poolhouse_control.signaling.redis_keeper import Keeper
from poolhouse_control.signaling.redis_keys import Keys
from poolhouse_control.signaling.redis_mail import Item, Kick, Mail, Sent
from poolhouse_control.signaling.redis_routing import Routing
from poolhouse_control.signaling.store_tally import StoreOp
from poolhouse_control.signaling.tally import TakeoverKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.signaling.limits import Limits
    from poolhouse_control.signaling.presence import Local, Owned
    from poolhouse_control.signaling.redis_store import RedisStore
    from poolhouse_control.signaling.store_times import StoreTimes

__all__ = ["RedisPresence"]

_RIGHTS: Final = {
    b"free": None,
    b"same_token": TakeoverKind.SAME_TOKEN,
    b"dead_owner": TakeoverKind.DEAD_OWNER,
}


@dataclass(frozen=True, slots=True)
class _Mine:
    """A claim of this replica."""

    digest: bytes
    epoch: int


class RedisPresence:
    """Owners and queues in Redis, and the way to other replicas."""

    def __init__(
        self,
        store: RedisStore,
        limits: Limits,
        log: FilteringBoundLogger,
        *,
        prefix: str,
        times: StoreTimes,
        replica: str = "",
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self.replica = replica or secrets.token_hex(8)
        self._store = store
        self._times = times
        self._keys = Keys(prefix)
        self._mine: dict[str, _Mine] = {}
        self._doubted: set[str] = set()
        self._unreleased: dict[str, int] = {}
        self._unanswered: set[tuple[str, bytes]] = set()
        self._asking: Counter[str] = Counter()
        self._paying = asyncio.Lock()
        self._local: Local | None = None
        rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        common: Any = {"replica": self.replica, "times": times, "rng": rng}
        self._mail = Mail(store, log, prefix=prefix, on_silence=self._doubt, **common)
        self._routing = Routing(
            self.replica, store, self._mail, self._keys, limits, _ms(times.queue_s), clock
        )
        self._keeper = Keeper(store, self._mail, self, log, keys=self._keys, clock=clock, **common)
        store.on_trip = self._doubt
        store.tally.is_up = False

    # Presence

    @property
    def is_open(self) -> bool:
        """Whether a claim would be decided now."""
        return self._keeper.is_open and self._store.is_answering

    @property
    def is_stale(self) -> bool:
        """Whether this process stood still so long that others may own its ids."""
        return self._keeper.is_stale

    async def confirm(self) -> None:
        """Learn which ids are still this replica's."""
        await self._keeper.confirm()

    async def opened(self) -> None:
        """Wait until claims can be decided for the first time."""
        await self._keeper.opened.wait()

    async def leave(self) -> None:
        """Tell others that this replica drains."""
        await self._keeper.say_draining()

    async def claim(self, peer_id: str, token: str) -> Claimed | Taken | Away:
        """Register an id. The same token takes it over; another token gets ``Taken``."""
        if not self.is_open:
            return Away()
        digest = token_digest(token)
        if peer_id in self._doubted and not self._is_mine(peer_id, digest):
            return Taken()  # ours, as far as we know: the store may have forgotten it
        self._asking[peer_id] += 1
        try:
            if self._paying.locked():  # an earlier claim of it may just be being undone
                async with self._paying:
                    pass
            return await self._claim(peer_id, digest)
        except StoreAway:
            self._unanswered.add((peer_id, digest))
            return Away()
        finally:
            self._asking[peer_id] -= 1
            if not self._asking[peer_id]:
                del self._asking[peer_id]

    async def _claim(self, peer_id: str, digest: bytes) -> Claimed | Taken:
        reply = await self._ask_for(peer_id, digest)
        if reply[0] == b"taken":
            _, owner, epoch = reply
            if await self._is_alive(owner.decode()):
                return Taken()
            reply = await self._ask_for(peer_id, digest, dead_epoch=epoch)
            if reply[0] == b"taken":  # somebody else was quicker
                return Taken()
        _, epoch, right, former, former_epoch, entries = reply
        mine = self._mine.get(peer_id)
        if mine is None or mine.epoch < int(epoch):  # answers may come in another order
            self._mine[peer_id] = _Mine(digest, int(epoch))
        self._unanswered.discard((peer_id, digest))
        self._unreleased.pop(peer_id, None)
        if former and former.decode() != self.replica:
            await self._kick(former.decode(), Kick(peer_id, int(former_epoch)))
        return Claimed(int(epoch), _RIGHTS[right], tuple(unpack_entries(entries)))

    async def _ask_for(self, peer_id: str, digest: bytes, dead_epoch: bytes = b"") -> Any:
        args = (self.replica, digest, dead_epoch, _ms(self._times.record_s))
        return await self._store.script(StoreOp.CLAIM, "claim", self._keys.of_id(peer_id), args)

    async def _is_alive(self, owner: str) -> bool:
        """An id that was handed over has no replica, and is kept for its token."""
        if owner in ("", self.replica):
            return True
        return bool(await self._store.run(StoreOp.LEASE, "EXISTS", self._keys.lease(owner)))

    async def _kick(self, replica: str, kick: Kick) -> None:
        """A kick that is lost is found out at the next touch."""
        with contextlib.suppress(StoreAway):
            await self._mail.send(replica, kick)

    async def release(self, peer_id: str, epoch: int, *, hand_over: bool = False) -> bool:
        """Free an id, if ``epoch`` is still that of its owner, or keep it for its token."""
        mine = self._mine.get(peer_id)
        if mine is not None and mine.epoch == epoch:
            self._forget(peer_id)
        try:
            return await self._release(peer_id, epoch, hand_over=hand_over)
        except StoreAway:
            self._unreleased[peer_id] = epoch
            return False

    async def _release(self, peer_id: str, epoch: int, *, hand_over: bool) -> bool:
        args = (epoch, _ms(self._times.hand_over_s) if hand_over else 0)
        keys = (self._keys.owner(peer_id),)
        return bool(await self._store.script(StoreOp.RELEASE, "release", keys, args))

    async def route(
        self, parcel: Parcel, now: float, *, may_wait: bool, hop: int = 0
    ) -> RouteResult:
        """Send a parcel to the replica of its receiver, or let it wait."""
        try:
            return await self._routing.route(parcel, may_wait=may_wait, hop=hop)
        except StoreAway:
            return Away()

    def post(self, parcel: Parcel, answered: Callable[[RouteResult | None], None]) -> bool:
        """Send a parcel to where its receiver was found last, if that is known."""
        return self._routing.post(parcel, answered)

    async def touch(self, owned: Iterable[Owned]) -> list[Owned]:
        """Confirm ids with their epochs; return those that are no longer this replica's."""
        pairs = list(owned)
        current = [pair[0] for pair in pairs if self._holds_claim(*pair)]
        with contextlib.suppress(StoreAway):
            await self.deliver(await self._touch(current))
        return [pair for pair in pairs if not self._holds_claim(*pair)]

    async def expire(self, peer_id: str, tickets: Iterable[int]) -> list[int]:
        """Take waiting parcels back; return the tickets of those that still waited."""
        names = {entry_name(self.replica, ticket): ticket for ticket in tickets}
        try:
            found = await self._store.script(
                StoreOp.EXPIRE, "expire", self._keys.queue(peer_id), tuple(names)
            )
        except StoreAway:
            return list(names.values())
        return [names[name] for name in found]

    async def holds(self, peer_id: str, token: str) -> bool:
        """Tell whether the id is registered now, with this token.

        Raises:
            StoreAway: nobody can tell.
        """
        digest = token_digest(token)
        if self._is_mine(peer_id, digest):
            return True
        found = await self._store.run(StoreOp.HOLDS, "HGET", self._keys.owner(peer_id), "t")
        return found is not None and hmac.compare_digest(found, digest)

    @asynccontextmanager
    async def running(self, local: Local) -> AsyncIterator[None]:
        """Listen to other replicas and keep the lease while open; then give both up in order."""
        self._local = local
        async with asyncio.TaskGroup() as tasks:
            receiver = tasks.create_task(self._mail.run_receiver(self._receive))
            others = [
                tasks.create_task(self._mail.run_sender()),
                tasks.create_task(self._mail.run_prober()),
                tasks.create_task(self._keeper.run()),
            ]
            try:
                yield
            finally:
                # Parcels that are on their way here are sent on before nobody listens.
                await self._mail.finish(receiver)
                others.pop().cancel()
                await self._keeper.retire()
                for task in others:
                    task.cancel()
        await self._store.close()

    # Holdings, for the keeper

    def begin_doubt(self) -> list[str]:
        """Trust no claim until it is asserted; return the ids."""
        self._doubted = set(self._mine)
        return list(self._mine)

    async def assert_ids(self, peer_ids: Sequence[str]) -> list[Parcel]:
        """Write claims again and give up those that are void; return what waited for the rest."""
        before = {peer_id: self._mine[peer_id] for peer_id in peer_ids if peer_id in self._mine}
        waiting = await self._touch(list(before))
        void = [(each, mine.epoch) for each, mine in before.items() if each not in self._mine]
        if void and self._local is not None:
            await self._local.lost(void)
        return waiting

    async def pay_debts(self) -> None:
        """Release what could not be released, and undo claims whose answer never came."""
        async with self._paying:
            for peer_id, epoch in list(self._unreleased.items()):
                await self._release(peer_id, epoch, hand_over=False)
                self._unreleased.pop(peer_id, None)
            for peer_id, digest in list(self._unanswered):
                if peer_id in self._asking:  # it may be about to succeed
                    continue
                if not self._is_mine(peer_id, digest):
                    keys = (self._keys.owner(peer_id),)
                    await self._store.script(
                        StoreOp.RELEASE, "disown", keys, (self.replica, digest)
                    )
                self._unanswered.discard((peer_id, digest))

    async def deliver(self, parcels: Sequence[Parcel]) -> None:
        """Hand over what waited although its receiver was here."""
        for parcel in parcels:
            if self._local is not None:
                await self._local.arrived(parcel, 0)

    async def _touch(self, peer_ids: Sequence[str]) -> list[Parcel]:
        """Write claims; forget those that are void. Returns what waited."""
        claims = [(each, self._mine[each]) for each in peer_ids]
        life_ms = _ms(self._times.record_s)
        calls = [
            (self._keys.of_id(each), (self.replica, mine.digest, mine.epoch, life_ms))
            for each, mine in claims
        ]
        replies = await self._store.scripts(StoreOp.TOUCH, "touch", calls)
        waiting: list[Parcel] = []
        for (peer_id, mine), reply in zip(claims, replies, strict=True):
            if not reply[0]:
                if self._mine.get(peer_id) == mine:
                    self._forget(peer_id)
                continue
            self._doubted.discard(peer_id)
            waiting += unpack_entries(reply[1])
            if peer_id not in self._mine:
                # Released while it was being written: else it would stand for ever.
                self._unreleased[peer_id] = mine.epoch
        return waiting

    # The rest

    async def _receive(self, item: Item) -> None:
        if self._local is None:
            return
        if isinstance(item, Sent):
            await self._local.arrived(item.parcel, item.hop)
        elif isinstance(item, Kick):
            mine = self._mine.get(item.peer_id)
            if mine is not None and mine.epoch <= item.epoch:
                self._forget(item.peer_id)
            await self._local.kicked(item.peer_id, item.epoch)

    def _doubt(self) -> None:
        self._keeper.doubt()

    def _forget(self, peer_id: str) -> None:
        del self._mine[peer_id]
        self._doubted.discard(peer_id)

    def _is_mine(self, peer_id: str, digest: bytes) -> bool:
        mine = self._mine.get(peer_id)
        return mine is not None and hmac.compare_digest(mine.digest, digest)

    def _holds_claim(self, peer_id: str, epoch: int) -> bool:
        mine = self._mine.get(peer_id)
        return mine is not None and mine.epoch == epoch


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
