"""The public app: wires signaling and the relay desk, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from litestar import Litestar
from litestar.exceptions import HTTPException

from poolhouse_control.ops import metrics
from poolhouse_control.ops.health import Health, watching_loop_lag
from poolhouse_control.ops.logs import make_logger
from poolhouse_control.ops.openapi import openapi_config
from poolhouse_control.ops.problems import api_errors
from poolhouse_control.ops.signaling_metrics import SignalingCollector
from poolhouse_control.relay.service import make_relay
from poolhouse_control.signaling import routes as signaling_routes
from poolhouse_control.signaling.hub import Hub
from poolhouse_control.signaling.presence_memory import MemoryPresence
from poolhouse_control.signaling.store_tally import StoreTally
from poolhouse_control.signaling.switchboard import Switchboard

if TYPE_CHECKING:
    from litestar.types import Scope
    from prometheus_client import CollectorRegistry
    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.settings import Settings

__all__ = ["Parts", "create_app", "make_parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the apps of one process share."""

    settings: Settings
    log: FilteringBoundLogger
    registry: CollectorRegistry
    health: Health
    switchboard: Switchboard


def make_parts(settings: Settings, log: FilteringBoundLogger | None = None) -> Parts:
    """Build the parts of one control plane; nothing runs yet."""
    log = log or make_logger(level=settings.log_level, style=settings.log_format)
    hub = Hub(settings.limits, key=settings.key, origins=settings.origins)
    presence = MemoryPresence(settings.limits)
    board = Switchboard(hub, presence, log, sweep_every_s=settings.sweep_every_s)
    registry = metrics.make_registry()
    registry.register(SignalingCollector(board, StoreTally()))
    return Parts(settings, log, registry, Health(), board)


def create_app(settings: Settings, parts: Parts | None = None) -> Litestar:
    """Build the app of the public port, around ``parts`` if they are shared."""
    parts = parts or make_parts(settings)
    relay = make_relay(
        settings,
        parts.log,
        metrics.RelayMetrics(parts.registry),
        registrations=parts.switchboard.presence,
    )
    lag = metrics.loop_lag(parts.registry)

    async def log_failure(error: Exception, scope: Scope) -> None:
        if not isinstance(error, HTTPException):
            parts.log.error("request.failed", kind=scope["type"], exc_info=error)

    return Litestar(
        [
            signaling_routes.make_router(settings, parts.switchboard),
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
