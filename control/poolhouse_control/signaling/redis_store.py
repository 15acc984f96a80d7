"""A Redis or Valkey, one server or a cluster, with a deadline on everything and no second tries.

A command that failed may have been done: only who sent it can tell what to do then. So nothing is
repeated here. A store that does not answer is left alone for a while, and everybody asking it
meanwhile hears ``StoreAway`` at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from poolhouse_control.errors import StoreAway
from poolhouse_control.signaling.breaker import Breaker
from poolhouse_control.signaling.redis_link import Link
from poolhouse_control.signaling.store_tally import StoreFault, StoreOp, StoreTally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["RedisStore", "Subscription"]

CONNECT_DEADLINE_S: Final = 0.25
COMMAND_DEADLINE_S: Final = 0.5
_MAX_CONNECTIONS: Final = 16
_PIPELINED: Final = 200

type _Call = tuple[Sequence[str], Sequence[Any]]


class _Script:
    """One file of ``scripts/``."""

    def __init__(self, name: str) -> None:
        file = resources.files("poolhouse_control.signaling") / "scripts" / f"{name}.lua"
        self.text = file.read_text(encoding="utf-8")
        self.sha = _sha1(self.text)


class RedisStore:
    """Runs scripts, publishes and subscribes; counts, and gives up in time."""

    def __init__(
        self,
        url: str,
        *,
        cluster: bool = False,
        tally: StoreTally | None = None,
        clock: Callable[[], float],
        on_trip: Callable[[], None] = lambda: None,
    ) -> None:
        self.tally = tally or StoreTally()
        self.on_trip = on_trip
        """Called when the store is given up for a while."""
        self._url = url
        self._is_cluster = cluster
        self._clock = clock
        self._breaker = Breaker()
        # redis-py's pools raise when they are empty; here one waits.
        self._connections = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._client: Any = None
        self._publisher: Link | None = None
        self._publishing = asyncio.Lock()

    @property
    def client(self) -> Redis | RedisCluster:
        """The client itself, for other parts that keep something there."""
        if self._client is None:
            kind = RedisCluster if self._is_cluster else Redis
            self._client = kind.from_url(self._url, **_OPTIONS)
        client: Redis | RedisCluster = self._client
        return client

    @property
    def is_answering(self) -> bool:
        """Whether it is asked at all."""
        return not self._breaker.is_open

    async def script(self, op: StoreOp, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run one script. All keys are in one slot.

        Raises:
            StoreAway: it did not answer well in time. It may have run.
        """
        script = _script(name)

        async def call() -> Any:
            try:
                return await self._raw.evalsha(script.sha, len(keys), *keys, *args)
            except NoScriptError:
                return await self._raw.eval(script.text, len(keys), *keys, *args)

        return await self._ask(op, call)

    async def scripts(self, op: StoreOp, name: str, calls: Sequence[_Call]) -> list[Any]:
        """Run one script many times, each call with keys in a slot of its own.

        Raises:
            StoreAway: as ``script``. Some may have run.
        """
        if self._is_cluster:
            return await asyncio.gather(*(self.script(op, name, *call) for call in calls))
        results: list[Any] = []
        for start in range(0, len(calls), _PIPELINED):
            part = calls[start : start + _PIPELINED]
            results += await self._ask(op, lambda part=part: self._pipelined(name, part))  # type: ignore[misc]
        return results

    async def run(self, op: StoreOp, *command: Any) -> Any:
        """Run one plain command.

        Raises:
            StoreAway: as ``script``.
        """
        return await self._ask(op, lambda: self._raw.execute_command(*command))

    async def publish(self, channel: str, payload: bytes) -> int:
        """Publish; return how many listened.

        Raises:
            StoreAway: as ``script``.
        """
        if self._is_cluster:
            # PUBLISH in a cluster goes to every node and counts the listeners of one. Which node
            # has the channel, and where it moved, only redis-py knows.
            return int(await self.run(StoreOp.PUBLISH, "SPUBLISH", channel, payload))
        return int(await self._ask(StoreOp.PUBLISH, lambda: self._publish(channel, payload)))

    async def run_id(self) -> str:
        """Name this life of the server; empty where it may not be asked.

        Raises:
            StoreAway: as ``script``.
        """

        async def call() -> str:
            options = {"target_nodes": RedisCluster.PRIMARIES} if self._is_cluster else {}
            try:
                found = await self._raw.info("server", **options)
            except NoPermissionError:
                return ""
            infos = [found] if "run_id" in found else found.values()
            return "+".join(sorted(str(info["run_id"]) for info in infos))

        return str(await self._ask(StoreOp.LEASE, call))

    def try_again(self) -> None:
        """Ask at once instead of waiting: there is a sign of life."""
        self._breaker.try_again(self._clock())

    async def subscription(self, channel: str) -> Subscription:
        """Prepare to listen on a channel, over a connection of its own."""
        if not self._is_cluster:
            client = Redis.from_url(self._url, **_OPTIONS)
            return Subscription(client, channel, sharded=False)
        async with asyncio.timeout(COMMAND_DEADLINE_S):
            await self._raw.initialize()
        node = self._raw.get_node_from_key(channel)
        options = _OPTIONS | {
            name: value
            for name, value in node.connection_kwargs.items()
            if name in ("username", "password") or name.startswith("ssl")
        }
        return Subscription(Redis(host=node.host, port=node.port, **options), channel, sharded=True)

    async def close(self) -> None:
        """End all connections."""
        if self._publisher is not None:
            await self._publisher.close()
        if self._client is not None:
            with contextlib.suppress(RedisError, OSError):
                await self._client.aclose()

    @property
    def _raw(self) -> Any:
        """The client without its types, which say of every answer that it may be of any kind."""
        return self.client

    async def _pipelined(self, name: str, calls: Sequence[_Call]) -> list[Any]:
        script = _script(name)
        results: list[Any] = []
        for once_more in (True, False):
            pipe = self._raw.pipeline(transaction=False)
            for keys, args in calls:
                pipe.evalsha(script.sha, len(keys), *keys, *args)
            results = await pipe.execute(raise_on_error=False)
            if not any(isinstance(result, NoScriptError) for result in results):
                break
            if once_more:  # the server forgot its scripts: none of these was run
                await self._raw.script_load(script.text)
        failed = next((each for each in results if isinstance(each, Exception)), None)
        if failed is not None:
            raise failed
        return results

    async def _publish(self, channel: str, payload: bytes) -> Any:
        async with self._publishing:
            link = self._publisher
            if link is None or link.is_lost:
                if link is not None:
                    await link.close()
                link = self._publisher = await Link.open(self._raw.connection_pool)
            try:
                link.write("PUBLISH", channel, payload)
                return await link.read()
            except asyncio.CancelledError:
                # Its deadline: the answer may still come, and must not be taken for the next one.
                await link.close()
                raise

    async def _ask(self, op: StoreOp, call: Callable[[], Awaitable[Any]]) -> Any:
        async with self._connections:
            # The deadline is the store's, not that of those who stand in line here.
            began_at = self._clock()
            if not self._breaker.allows(began_at):
                raise StoreAway("The store did not answer lately.")
            try:
                async with asyncio.timeout(COMMAND_DEADLINE_S):
                    result = await call()
            except (RedisError, OSError, TimeoutError) as error:
                await self._failed(op, error)
                raise StoreAway(f"The store did not answer: {type(error).__name__}.") from error
        self._breaker.succeeded()
        self.tally.command_s[op].observe(self._clock() - began_at)
        return result

    async def _failed(self, op: StoreOp, error: Exception) -> None:
        fault = _fault(error)
        self.tally.errors[op, fault] += 1
        if self._breaker.failed(self._clock()):
            self.on_trip()
        if fault is StoreFault.CONNECTION and not self._is_cluster:
            # The idle connections of the pool are dead too: nobody else should find that out.
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await self._raw.connection_pool.disconnect(inuse_connections=False)


class Subscription:
    """A connection that listens on one channel, from ``open`` until it breaks or is closed."""

    def __init__(self, client: Redis, channel: str, *, sharded: bool) -> None:
        self._client = client
        self._channel = channel
        self._prefix = "S" if sharded else ""
        self._link: Link | None = None

    async def open(self) -> None:
        """Connect and subscribe; returns when the server has confirmed."""
        async with asyncio.timeout(COMMAND_DEADLINE_S):
            self._link = await Link.open(self._client.connection_pool)
            self._link.write(f"{self._prefix}SUBSCRIBE", self._channel)
            await self._link.read()

    async def next(self) -> bytes | None:
        """Wait for a message; None once the server has confirmed that there will be no more."""
        assert self._link is not None, "open it first"
        while True:
            kind, _, payload = await self._link.read()
            if kind in (b"message", b"smessage"):
                data: bytes = payload
                return data
            if kind in (b"unsubscribe", b"sunsubscribe"):
                return None

    def finish(self) -> None:
        """Ask for the end: everything published before still comes, then ``next`` gives None."""
        if self._link is not None:
            self._link.write(f"{self._prefix}UNSUBSCRIBE", self._channel)

    async def close(self) -> None:
        """Break the connection; whoever waits in ``next`` hears of it."""
        with contextlib.suppress(RedisError, OSError):
            if self._link is not None:
                await self._link.close()
            await self._client.aclose()


_OPTIONS: Final[dict[str, Any]] = {
    "protocol": 2,
    "retry": Retry(NoBackoff(), 0),
    "socket_connect_timeout": CONNECT_DEADLINE_S,
    "socket_timeout": COMMAND_DEADLINE_S,
}


@cache
def _script(name: str) -> _Script:
    return _Script(name)


def _sha1(text: str) -> str:
    # How the server names scripts; nothing is guarded by it.
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _fault(error: Exception) -> StoreFault:
    if isinstance(error, TimeoutError | RedisTimeoutError):
        return StoreFault.TIMEOUT
    if isinstance(error, RedisConnectionError | OSError):
        return StoreFault.CONNECTION
    return StoreFault.REFUSED
