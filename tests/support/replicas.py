"""Replicas inside the test's own loop: presence over a real Redis, and what it told its process."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poolhouse_control.ops.logs import make_logger
from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.presence import Claimed, Parcel
from poolhouse_control.signaling.presence_redis import RedisPresence
from poolhouse_control.signaling.redis_store import RedisStore
from poolhouse_control.signaling.store_times import StoreTimes
from poolhouse_control.signaling.tally import RelayKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from poolhouse_control.signaling.presence import Owned
    from tests.support.redis import RedisServer

__all__ = ["Replica", "eventually", "parcel", "replica"]

PATIENCE_S = 10.0


@dataclass
class Told:
    """Hears what other replicas do, and does nothing about it."""

    arrived_parcels: list[tuple[Parcel, int]] = field(default_factory=list)
    kicks: list[Owned] = field(default_factory=list)
    void: list[Owned] = field(default_factory=list)

    async def arrived(self, parcel: Parcel, hop: int) -> None:
        self.arrived_parcels.append((parcel, hop))

    async def kicked(self, peer_id: str, epoch: int) -> None:
        self.kicks.append((peer_id, epoch))

    async def lost(self, owned: Sequence[Owned]) -> None:
        self.void += owned

    @property
    def texts(self) -> list[str]:
        return [parcel.text for parcel, _ in self.arrived_parcels]


@dataclass
class Replica:
    """One replica, without sockets."""

    presence: RedisPresence
    store: RedisStore
    told: Told

    async def claim(self, peer_id: str, token: str = "t") -> Claimed:
        """Claim; fails unless it is granted."""
        result = await self.presence.claim(peer_id, token)
        assert isinstance(result, Claimed), result
        return result

    async def route(self, item: Parcel, *, may_wait: bool = True, hop: int = 0) -> Any:
        return await self.presence.route(item, 0.0, may_wait=may_wait, hop=hop)


def parcel(dst: str = "Z", src: str = "A", text: str = "{}") -> Parcel:
    """An offer."""
    return Parcel(RelayKind.OFFER, src, dst, text)


async def eventually(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def replica(
    server: RedisServer,
    *,
    url: str = "",
    limits: Limits | None = None,
    wait: bool = True,
    prefix: str = "ph",
    clock: Callable[[], float] = time.monotonic,
    **times: float,
) -> AsyncIterator[Replica]:
    """A replica while the context is open, already open for claims unless told not to ``wait``."""
    store = RedisStore(url or server.url, cluster=server.is_cluster, clock=clock)
    presence = RedisPresence(
        store,
        limits or Limits(),
        make_logger(level="error"),
        prefix=prefix,
        times=StoreTimes(**{"lease_s": 15.0} | times),
        clock=clock,
    )
    told = Told()
    async with presence.running(told):
        if wait:
            async with asyncio.timeout(PATIENCE_S):
                await presence.opened()
        yield Replica(presence, store, told)
