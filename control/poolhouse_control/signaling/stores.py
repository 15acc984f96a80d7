"""Picks the presence store: memory, or Redis where settings name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_control.errors import SettingsError
from poolhouse_control.signaling.presence_memory import MemoryPresence
from poolhouse_control.signaling.store_times import StoreTimes

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.settings import Settings
    from poolhouse_control.signaling.presence import Presence
    from poolhouse_control.signaling.redis_store import RedisStore
    from poolhouse_control.signaling.store_tally import StoreTally

__all__ = ["make_presence"]

_QUEUE_MARGIN_S = 3.0


def make_presence(
    settings: Settings,
    log: FilteringBoundLogger,
    tally: StoreTally,
    *,
    clock: Callable[[], float],
) -> tuple[Presence, RedisStore | None]:
    """Build the store; nothing is connected yet.

    Raises:
        SettingsError: Redis is asked for and its client is not installed, or the URL is no URL.
    """
    if not settings.redis_url:
        return MemoryPresence(settings.limits), None
    try:
        from poolhouse_control.signaling.presence_redis import RedisPresence
        from poolhouse_control.signaling.redis_store import RedisStore
    except ImportError:
        raise SettingsError(
            "POOLHOUSE_REDIS_URL is set, but the Redis client is not installed: "
            "pip install 'poolhouse[control,redis]'."
        ) from None
    store = RedisStore(settings.redis_url, cluster=settings.redis_cluster, tally=tally, clock=clock)
    times = StoreTimes(
        lease_s=settings.redis_lease_s, queue_s=settings.expire_after_s + _QUEUE_MARGIN_S
    )
    presence = RedisPresence(
        store, settings.limits, log, prefix=settings.redis_prefix, times=times, clock=clock
    )
    return presence, store
