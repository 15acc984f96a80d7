"""Keeps the lease of this replica, and decides when claims may be answered.

Three things can have happened while this replica was not in touch with the store, and each is
handled as the worst of them:

* the store forgot claims (it started empty, or another server took its place): every replica
  writes its ids again, and no claim is decided until all known replicas have, or until one that
  has not counts as dead;
* this replica was thought dead (it froze, or was cut off) and others took its ids: it asks for
  each before it speaks for it again;
* messages for it had to wait, because nobody listened: it fetches them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from poolhouse_control.errors import StoreAway
from poolhouse_control.signaling.store_tally import StoreOp

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.signaling.presence import Parcel
    from poolhouse_control.signaling.redis_keys import Keys
    from poolhouse_control.signaling.redis_mail import Mail
    from poolhouse_control.signaling.redis_store import RedisStore
    from poolhouse_control.signaling.store_times import StoreTimes

__all__ = ["Holdings", "Keeper"]

_LISTEN_DEADLINE_S: Final = 1.0
_ASSERTED_AT_ONCE: Final = 50


class Holdings(Protocol):
    """What a replica owns in the store."""

    def begin_doubt(self) -> list[str]:
        """Trust no claim until it is asserted; return the ids."""
        ...

    async def assert_ids(self, peer_ids: Sequence[str]) -> list[Parcel]:
        """Write claims again and give up those that are void; return what waited for the rest."""
        ...

    async def pay_debts(self) -> None:
        """Give up what could not be given up before."""
        ...

    async def deliver(self, parcels: Sequence[Parcel]) -> None:
        """Hand over what waited."""
        ...


@dataclass(frozen=True, slots=True)
class _Lease:
    lasted: bool
    """It had not run out before it was renewed."""
    memory_s: float
    """For how long the store has forgotten nothing."""
    replicas: frozenset[str]
    """Those whose ids are all in the store."""


class Keeper:
    """One lease. ``run`` in a task; ``confirm`` from anywhere."""

    def __init__(
        self,
        store: RedisStore,
        mail: Mail,
        holdings: Holdings,
        log: FilteringBoundLogger,
        *,
        keys: Keys,
        replica: str,
        times: StoreTimes,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.is_open = False
        """Whether claims may be answered."""
        self.opened = asyncio.Event()
        """Set once they could be, for the first time."""
        self.is_draining = False
        self._store = store
        self._mail = mail
        self._holdings = holdings
        self._log = log
        self._keys = keys
        self._replica = replica
        self._times = times
        self._clock = clock
        self._rng = rng
        self._started_at = round(time.time())
        self._wake = asyncio.Event()
        self._doubts = 0
        self._lease_until = 0.0
        self._known: frozenset[str] = frozenset()
        self._confirming: asyncio.Task[list[Parcel]] | None = None

    @property
    def is_stale(self) -> bool:
        """Whether this process stood still for so long that its lease may have run out.

        A store that is away makes nothing stale: then the keeper runs, and knows.
        """
        return self._confirming is not None or (self.is_open and self._clock() >= self._lease_until)

    def doubt(self) -> None:
        """Answer no claims until all is known again."""
        self._doubts += 1
        if self.is_open:
            self.is_open = False
            self._store.tally.is_up = False
            self._log.warning("store.away")
        self._wake.set()

    async def confirm(self) -> None:
        """Ask for every id, if the lease may have run out."""
        if self._confirming is None:
            if not self.is_stale:
                return
            self._confirming = asyncio.create_task(self._assert_all(), name="confirm ids")
        confirming = self._confirming
        waiting = await asyncio.shield(confirming)
        # Only one of those who waited delivers, and only now: delivering asks whether all is well.
        if self._confirming is confirming:
            self._confirming = None
            await self._holdings.deliver(waiting)

    async def run(self) -> None:
        """Keep the lease for ever."""
        while True:
            try:
                await (self._go_on() if self.is_open else self._return())
            except StoreAway:
                self.doubt()
                self._wake.clear()
            pause_s = self._times.renew_every_s if self.is_open else 0.25
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s * self._rng.uniform(0.8, 1.0)):
                    await self._wake.wait()
            self._wake.clear()

    async def say_draining(self) -> None:
        """Write into the lease that this replica drains: for people who look."""
        self.is_draining = True
        with contextlib.suppress(StoreAway):
            await self._renew(written=self.is_open)

    async def retire(self) -> None:
        """Give up what is left, and drop the lease: others need not wait for its end."""
        if self._confirming is not None:
            self._confirming.cancel()
        with contextlib.suppress(StoreAway):
            await self._holdings.pay_debts()
            await self._store.run(StoreOp.LEASE, "DEL", self._keys.lease(self._replica))
            await self._store.run(StoreOp.LEASE, "ZREM", self._keys.replicas, self._replica)

    async def _go_on(self) -> None:
        """Renew in time."""
        if self.is_stale:
            await self.confirm()
            return
        lease = await self._renew(written=True)
        self._known = lease.replicas
        self._store.tally.replicas = len(lease.replicas)
        if not lease.lasted:  # the clock of this machine stood still as well
            self._lease_until = 0.0
            await self.confirm()
        await self._holdings.pay_debts()

    async def _return(self) -> None:
        """Begin, or begin again after the store or the subscription was away."""
        doubts = self._doubts
        await self._mail.until_listening(_LISTEN_DEADLINE_S)
        run_id = await self._store.run_id()
        lease = await self._renew(written=False, run_id=run_id)
        await self._holdings.pay_debts()
        peer_ids = self._holdings.begin_doubt()
        if self._remembers(lease):
            # Its records decide, also while ours are checked: nobody forgot anything.
            self._open(doubts, lease)
        await self._assert_slowly(peer_ids)
        lease = await self._renew(written=True)
        if not self._is_settled(lease):
            self._log.info("store.settling", at_most_s=round(self._times.lease_s, 1))
        while not self._is_settled(lease):
            await asyncio.sleep(self._times.lease_s / 100)
            lease = await self._renew(written=True)
        self._open(doubts, lease)

    def _remembers(self, lease: _Lease) -> bool:
        return lease.memory_s >= self._times.lease_s

    def _is_settled(self, lease: _Lease) -> bool:
        """Whether everybody alive has written its ids into this store."""
        has_all = bool(self._known) and self._known <= lease.replicas
        return has_all or self._remembers(lease)

    def _open(self, doubts: int, lease: _Lease) -> None:
        if doubts != self._doubts:
            raise StoreAway("Contact was lost again meanwhile.")
        self._known = lease.replicas | {self._replica}
        self._store.tally.replicas = len(self._known)
        if not self.is_open:
            self.is_open = self._store.tally.is_up = True
            self.opened.set()
            self._log.info("store.open", replicas=len(self._known))

    async def _assert_slowly(self, peer_ids: list[str]) -> None:
        """Write ids again without a rush: every other replica does the same at this moment."""
        self._rng.shuffle(peer_ids)
        for start in range(0, len(peer_ids), _ASSERTED_AT_ONCE):
            part = peer_ids[start : start + _ASSERTED_AT_ONCE]
            await self._holdings.deliver(await self._holdings.assert_ids(part))
            if self._clock() > self._lease_until - self._times.lease_s / 2:
                await self._renew(written=False)
            if start + _ASSERTED_AT_ONCE < len(peer_ids):
                await asyncio.sleep(len(part) / self._times.assert_per_s)

    async def _assert_all(self) -> list[Parcel]:
        """Write ids again at once: sockets wait for the answer."""
        self._log.warning("lease.stale")
        try:
            lease = await self._renew(written=True)
            self._known = lease.replicas
            return await self._holdings.assert_ids(self._holdings.begin_doubt())
        except StoreAway:
            self.doubt()
            return []

    async def _renew(self, *, written: bool, run_id: str = "") -> _Lease:
        began_at = self._clock()
        says = {
            "state": "draining" if self.is_draining else "up",
            "since": self._started_at,
            "host": socket.gethostname(),
        }
        lasted, memory_ms, replicas = await self._store.script(
            StoreOp.LEASE,
            "renew",
            (self._keys.lease(self._replica), self._keys.replicas, self._keys.birth),
            (
                self._replica,
                json.dumps(says),
                round(self._times.lease_s * 1000),
                run_id,
                int(written),
            ),
        )
        self._lease_until = began_at + self._times.lease_s
        names = frozenset(name.decode() for name in replicas)
        return _Lease(bool(lasted), int(memory_ms) / 1000, names)
