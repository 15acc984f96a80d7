"""The limit on credentials in Redis, one for all replicas."""

from __future__ import annotations

import time
from importlib import resources
from typing import TYPE_CHECKING, Final

from redis.exceptions import RedisError

from poolhouse_control.relay.limiter import WINDOW_S, Limiter, MemoryLimiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis.asyncio import Redis
    from redis.asyncio.cluster import RedisCluster

__all__ = ["RedisLimiter"]

_RETRY_AFTER_S: Final = 1.0


class RedisLimiter(Limiter):
    """Windows in Redis. While it is away each replica counts for itself.

    The client must give up within a deadline of its own (``socket_timeout``).
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
        self._script = client.register_script(source.read_text(encoding="utf-8"))
        self._prefix = f"{prefix}:rate:turn:"
        self._arguments = (rate, round(window_s * 1000))
        self._fallback = MemoryLimiter(rate, window_s=window_s, clock=clock)
        self._clock = clock
        self._away_until = 0.0

    async def admit(self, subject: str) -> float:
        """Count a request; return 0, or the seconds until its subject may ask again."""
        if self._clock() < self._away_until:
            return self._fallback.admit_now(subject)
        try:
            left_ms = await self._script(keys=[self._prefix + subject], args=self._arguments)
        except (RedisError, OSError, TimeoutError):
            # A request must not wait for each deadline in turn.
            self._away_until = self._clock() + _RETRY_AFTER_S
            return self._fallback.admit_now(subject)
        return int(left_ms) / 1000
