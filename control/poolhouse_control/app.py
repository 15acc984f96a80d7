"""The public app: wires signaling and the relay desk, nothing else."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from litestar import Litestar
from litestar.exceptions import HTTPException

from poolhouse_control.ops import metrics
from poolhouse_control.ops.drain import Drain, DrainTimes
from poolhouse_control.ops.health import Health, watching_loop_lag
from poolhouse_control.ops.logs import make_logger
from poolhouse_control.ops.openapi import openapi_config
from poolhouse_control.ops.problems import api_errors
from poolhouse_control.ops.signaling_metrics import SignalingCollector
from poolhouse_control.relay.service import make_relay
from poolhouse_control.signaling import routes as signaling_routes
from poolhouse_control.signaling.hub import Hub
from poolhouse_control.signaling.store_tally import StoreTally
from poolhouse_control.signaling.stores import make_presence
from poolhouse_control.signaling.switchboard import Switchboard
from poolhouse_control.signaling.turnstile import Turnstile
from poolhouse_control.site.page import Part

if TYPE_CHECKING:
    import asyncio

    from litestar.types import Scope
    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.relay.limiter import Limiter
    from poolhouse_control.relay.service import RelayService
    from poolhouse_control.settings import Settings
    from poolhouse_control.signaling.redis_store import RedisStore

__all__ = ["Parts", "create_app", "make_parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the apps of one process share."""

    settings: Settings
    log: FilteringBoundLogger
    registry: CollectorRegistry
    health: Health
    switchboard: Switchboard
    drain: Drain
    store: RedisStore | None
    """The store that replicas share."""


def make_parts(
    settings: Settings,
    log: FilteringBoundLogger | None = None,
    *,
    ending: asyncio.Event | None = None,
) -> Parts:
    """Build the parts of one control plane; nothing runs yet. ``ending`` asks for the drain."""
    log = log or make_logger(level=settings.log_level, style=settings.log_format)
    hub = Hub(settings.limits, key=settings.key, origins=settings.origins)
    tally = StoreTally()
    presence, store = make_presence(settings, log, tally, clock=time.monotonic)
    turnstile = Turnstile(settings.max_connects_per_s, burst=2 * settings.max_connects_per_s)
    board = Switchboard(
        hub, presence, log, turnstile=turnstile, sweep_every_s=settings.sweep_every_s
    )
    registry = metrics.make_registry()
    registry.register(SignalingCollector(board, tally))
    health = Health()
    drain = Drain(_drain_times(settings), health, board, log, requested=ending)
    return Parts(settings, log, registry, health, board, drain, store)


def _shared_limiter(settings: Settings, store: RedisStore | None) -> Limiter | None:
    """One count an address for all replicas, where they share a store."""
    if store is None:
        return None
    from poolhouse_control.relay.limiter_redis import RedisLimiter

    return RedisLimiter(store.client, settings.turn_rate, prefix=settings.redis_prefix)


def _for_people(parts: Parts, relay: RelayService) -> list[Part]:
    """How the control plane is, in sentences for its page."""
    board, settings = parts.switchboard, parts.settings
    has_store = board.presence.is_open
    if board.is_draining:
        signaling = Part("Signaling", False, "is about to end; another replica takes over.")
    elif has_store:
        signaling = Part("Signaling", True, "takes devices.")
    else:
        signaling = Part("Signaling", False, "takes no new devices until the store is back.")
    return [signaling, _relay_for_people(settings, relay), _store_for_people(settings, has_store)]


def _relay_for_people(settings: Settings, relay: RelayService) -> Part:
    if not (settings.turn_urls or settings.turn_host or settings.turn_key_id):
        return Part("Relay", True, "is not set up: devices need a direct path to each other.")
    if relay.health.down_count and not relay.health.up_count:
        return Part("Relay", False, "does not answer.")
    return Part("Relay", True, "is there for devices without a direct path.")


def _store_for_people(settings: Settings, has_store: bool) -> Part:
    if not settings.redis_url:
        return Part("Store", True, "is the memory of this one process.")
    return Part("Store", has_store, "answers." if has_store else "does not answer.")


def _drain_times(settings: Settings) -> DrainTimes:
    """Without a shared store there is nobody to send clients to: then at once."""
    is_shared = bool(settings.redis_url)
    return DrainTimes(
        delay_s=settings.drain_delay_s if is_shared else 0.0,
        spread_s=settings.drain_spread_s if is_shared else 0.0,
        grace_s=settings.shutdown_timeout_s,
        # What waits is due by then, and looked at twice.
        notice_s=settings.expire_after_s + 2 * settings.sweep_every_s if is_shared else 0.0,
    )


def create_app(settings: Settings, parts: Parts | None = None) -> Litestar:
    """Build the app of the public port, around ``parts`` if they are shared."""
    parts = parts or make_parts(settings)
    relay = make_relay(
        settings,
        parts.log,
        metrics.RelayMetrics(parts.registry),
        registrations=parts.switchboard.presence,
        limiter=_shared_limiter(settings, parts.store),
    )
    lag = metrics.loop_lag(parts.registry)

    async def log_failure(error: Exception, scope: Scope) -> None:
        if not isinstance(error, HTTPException):
            parts.log.error("request.failed", kind=scope["type"], exc_info=error)

    return Litestar(
        [
            signaling_routes.make_router(
                settings, parts.switchboard, parts=lambda: _for_people(parts, relay)
            ),
            relay.router,
        ],
        lifespan=[
            lambda _: parts.switchboard.running(),
            lambda _: relay.running(),
            lambda _: watching_loop_lag(lag),
        ],
        exception_handlers={HTTPException: api_errors},
        before_send=[signaling_routes.SignalingCors(settings, except_under="/api/")],
        after_exception=[log_failure],
        openapi_config=openapi_config(),
        include_in_schema=False,
        logging_config=None,
        debug=False,
    )
