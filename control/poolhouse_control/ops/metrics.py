"""The Prometheus series of a control plane, in a registry of its own.

Signaling counts in plain numbers (``signaling.tally``); they are read when somebody scrapes.
Label sets are closed and every child exists from the start, so that rates have a beginning.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from poolhouse_control import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from enum import StrEnum

    from prometheus_client.metrics_core import Metric

    from poolhouse_control.signaling.switchboard import Switchboard
    from poolhouse_control.signaling.tally import Tally

__all__ = ["ROOM_PROTOCOL", "RelayMetrics", "SignalingCollector", "loop_lag", "make_registry"]

ROOM_PROTOCOL: Final = "4"
"""The room protocol of the devices this control plane is released with."""

_RELAY_OUTCOMES: Final = ("issued", "origin", "not_configured", "upstream_error")
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
    """Counts of ``POST /api/turn`` by outcome."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = Counter(
            "poolhouse_relay_credentials_total",
            "Requests for relay credentials by outcome.",
            ("outcome",),
            registry=registry,
        )
        self.credentials = {outcome: counter.labels(outcome) for outcome in _RELAY_OUTCOMES}


class SignalingCollector(Collector):
    """Reads the hub's counts and the present state at scrape time."""

    def __init__(self, switchboard: Switchboard) -> None:
        self._switchboard = switchboard

    def collect(self) -> Iterator[Metric]:
        """Yield every series of signaling."""
        yield from self._gauges()
        yield from _labelled_counters(self._switchboard.hub.tally)
        yield from _plain_counters(self._switchboard.hub.tally)

    def _gauges(self) -> Iterator[Metric]:
        board = self._switchboard
        values = {
            "peers": ("Registered ids.", board.hub.peer_count),
            "sockets": ("Open signaling sockets, registered or not.", board.socket_count),
            "queue_messages": ("Messages that wait for an absent peer.", board.presence.queued),
        }
        for name, (text, value) in values.items():
            yield GaugeMetricFamily(f"poolhouse_signal_{name}", text, value=value)


def _labelled_counters(tally: Tally) -> Iterator[Metric]:
    yield _counter("connects", "Attempts to register, by outcome.", "outcome", tally.connects)
    yield _counter(
        "disconnects", "Registered sockets that ended, by reason.", "reason", tally.disconnects
    )
    yield _counter(
        "message_bytes", "Bytes of text frames, by direction.", "direction", tally.message_bytes
    )
    yield _counter(
        "takeovers", "Ids taken over by a new socket, by what right.", "kind", tally.takeovers
    )
    yield _counter(
        "dropped_frames", "Frames that were not acted on.", "reason", tally.dropped_frames
    )
    messages = CounterMetricFamily(
        "poolhouse_signal_messages",
        "Messages from peer to peer, by type and by what became of them.",
        labels=("type", "route"),
    )
    for (kind, route), count in tally.messages.items():
        messages.add_metric((kind.value, route.value), count)
    yield messages


def _plain_counters(tally: Tally) -> Iterator[Metric]:
    values = {
        "heartbeats": ("Heartbeat messages.", tally.heartbeats),
        "expired": ("Notices to senders that a peer was not there.", tally.expired),
        "send_queue_dropped": (
            "Messages lost because their receiver read too slowly.",
            tally.outbox_dropped,
        ),
    }
    for name, (text, value) in values.items():
        yield CounterMetricFamily(f"poolhouse_signal_{name}", text, value=value)


def _counter[Label: StrEnum](
    name: str, text: str, label: str, counts: Mapping[Label, int]
) -> Metric:
    family = CounterMetricFamily(f"poolhouse_signal_{name}", text, labels=(label,))
    for value, count in counts.items():
        family.add_metric((value.value,), count)
    return family
