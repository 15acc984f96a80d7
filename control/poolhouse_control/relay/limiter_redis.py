"""The limit on credentials in Redis, one for all replicas."""

from __future__ import annotations

import asyncio
import hashlib
import time
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import NoScriptError, RedisError

from poolhouse_control.relay.limiter import WINDOW_S, Limiter, MemoryLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster

__all__ = ["RedisLimiter"]

_DEADLINE_S: Final = 0.5
_AT_A_TIME: Final = 16
_RETRY_AFTER_S: Final = 1.0


class RedisLimiter(Limiter):
    """Windows in Redis. While it is away each replica counts for itself.

    The client is shared with others: at most 16 connections of it are used at a time.
    """

    def __init__(
        self,
        client: Redis | RedisCluster,
        rate: int,
        *,
        prefix: str = "ph",
        window_s: float = WINDOW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        source = resources.files("poolhouse_control.relay") / "scripts" / "admit.lua"
        self._client: Any = client
        self._script = source.read_text(encoding="utf-8")
        self._sha = hashlib.sha1(self._script.encode(), usedforsecurity=False).hexdigest()
        self._prefix = f"{prefix}:rate:turn:"
        self._arguments = (rate, round(window_s * 1000))
        self._fallback = MemoryLimiter(rate, window_s=window_s, clock=clock)
        self._clock = clock
        self._away_until = 0.0
        # redis-py's pools raise when they are empty; here one waits, within the deadline.
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def admit(self, subject: str) -> float:
        """Count a request; return 0, or the seconds until its subject may ask again."""
        if self._clock() < self._away_until:
            return self._fallback.admit_now(subject)
        try:
            async with asyncio.timeout(_DEADLINE_S), self._turns:
                left_ms = await self._count(self._prefix + subject)
        except (RedisError, OSError, TimeoutError):
            # A request must not wait for each deadline in turn.
            self._away_until = self._clock() + _RETRY_AFTER_S
            return self._fallback.admit_now(subject)
        return left_ms / 1000

    async def _count(self, key: str) -> int:
        try:
            return int(await self._client.evalsha(self._sha, 1, key, *self._arguments))
        except NoScriptError:
            return int(await self._client.eval(self._script, 1, key, *self._arguments))
