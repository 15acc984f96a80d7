"""The Prometheus series of a control plane, in a registry of its own.

Signaling counts in plain numbers (``ops.signaling_metrics`` reads them).
Label sets are closed and every child exists from the start, so that rates have a beginning.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from poolhouse_control import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

    from poolhouse_control.relay.health import RelayHealth

__all__ = ["ROOM_PROTOCOL", "RelayMetrics", "loop_lag", "make_registry"]

ROOM_PROTOCOL: Final = "4"
"""The room protocol of the devices this control plane is released with."""

_RELAY_OUTCOMES: Final = (
    "issued",
    "origin",
    "not_configured",
    "rate_limited",
    "unproven",
    "upstream_error",
)
# 2.5 s is what a device waits for its answer, 4 s the deadline of the hosted API.
_UPSTREAM_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2.5, 4)
_LAG_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class _Registry(CollectorRegistry):
    """Leaves out the ``_created`` series: twice the series for what nobody asks."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [
                sample for sample in metric.samples if not sample.name.endswith("_created")
            ]
            yield metric


def make_registry() -> CollectorRegistry:
    """Make a registry that holds the process and the build."""
    registry = _Registry()
    ProcessCollector(registry=registry)
    build = Gauge(
        "poolhouse_build_info",
        "Version of this program, room protocol and Python; always 1.",
        ("version", "protocol", "python"),
        registry=registry,
    )
    build.labels(__version__, ROOM_PROTOCOL, platform.python_version()).set(1)
    return registry


def loop_lag(registry: CollectorRegistry) -> Histogram:
    """Histogram of how late the event loop ran a timer; 0.25 s is the alert's threshold."""
    return Histogram(
        "poolhouse_loop_lag_seconds",
        "How late the event loop ran a timer that is due every half second.",
        buckets=_LAG_BOUNDS_S,
        registry=registry,
    )


class RelayMetrics:
    """``POST /api/turn`` by outcome, its hosted provider, and the relay hosts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = Counter(
            "poolhouse_relay_credentials_total",
            "Requests for relay credentials by outcome.",
            ("outcome",),
            registry=registry,
        )
        self.credentials = {outcome: counter.labels(outcome) for outcome in _RELAY_OUTCOMES}
        self.upstream_seconds = Histogram(
            "poolhouse_relay_upstream_seconds",
            "How long the hosted relay provider took to answer.",
            buckets=_UPSTREAM_BOUNDS_S,
            registry=registry,
        )
        self._hosts = Gauge(
            "poolhouse_relay_hosts",
            "Relay hosts that are probed, by what the probes found.",
            ("state",),
            registry=registry,
        )
        for state in ("up", "down"):
            self._hosts.labels(state)

    def watch_hosts(self, health: RelayHealth) -> None:
        """Read the state of the hosts at each scrape."""
        self._hosts.labels("up").set_function(lambda: health.up_count)
        self._hosts.labels("down").set_function(lambda: health.down_count)
