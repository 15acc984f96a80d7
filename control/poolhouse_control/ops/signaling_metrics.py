"""The series of signaling and of its store, read from plain numbers at scrape time."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

    from poolhouse_control.signaling.store_tally import StoreTally
    from poolhouse_control.signaling.switchboard import Switchboard
    from poolhouse_control.signaling.tally import Buckets, Tally

__all__ = ["SignalingCollector"]


class SignalingCollector(Collector):
    """Reads the counts of the hub and of the store, and the present state."""

    def __init__(self, switchboard: Switchboard, store: StoreTally) -> None:
        self._switchboard = switchboard
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Yield every series of signaling."""
        yield from _gauges(self._switchboard, self._store)
        yield from _labelled(self._switchboard.hub.tally)
        yield from _plain(self._switchboard.hub.tally)
        yield from _store(self._store)


def _gauges(board: Switchboard, store: StoreTally) -> Iterator[Metric]:
    values = {
        "signal_peers": ("Registered ids.", board.hub.peer_count),
        "signal_sockets": ("Open signaling sockets, registered or not.", board.socket_count),
        "signal_queue_messages": (
            "Messages of peers here that wait for an absent peer.",
            board.hub.waiting_count,
        ),
        "drain_state": ("1 while this replica drains, else 0.", int(board.is_draining)),
        "store_up": ("1 while the presence store answers, else 0.", int(store.is_up)),
        "replica_leases": ("Replicas that share the store, as this one sees it.", store.replicas),
    }
    for name, (text, value) in values.items():
        yield GaugeMetricFamily(f"poolhouse_{name}", text, value=value)


def _labelled(tally: Tally) -> Iterator[Metric]:
    yield _counter(
        "signal_connects", "Attempts to register, by outcome.", ("outcome",), tally.connects
    )
    yield _counter(
        "signal_disconnects",
        "Registered sockets that ended, by reason.",
        ("reason",),
        tally.disconnects,
    )
    yield _counter(
        "signal_message_bytes",
        "Bytes of text frames, by direction.",
        ("direction",),
        tally.message_bytes,
    )
    yield _counter(
        "signal_takeovers",
        "Ids taken over by a new socket, by what right.",
        ("kind",),
        tally.takeovers,
    )
    yield _counter(
        "signal_dropped_frames",
        "Frames that were not acted on.",
        ("reason",),
        tally.dropped_frames,
    )
    yield _counter(
        "signal_messages",
        "Messages from peer to peer, by type and by what became of them.",
        ("type", "route"),
        tally.messages,
    )


def _plain(tally: Tally) -> Iterator[Metric]:
    values = {
        "heartbeats": ("Heartbeat messages.", tally.heartbeats),
        "expired": ("Notices to senders that a peer was not there.", tally.expired),
        "rerouted": (
            "Messages from another replica whose receiver had moved on.",
            tally.rerouted,
        ),
        "send_queue_dropped": (
            "Messages lost because their receiver read too slowly.",
            tally.outbox_dropped,
        ),
    }
    for name, (text, value) in values.items():
        yield CounterMetricFamily(f"poolhouse_signal_{name}", text, value=value)
    yield _histogram(
        "signal_deliver_seconds",
        "From a message's arrival to its receiver's outbox, its replica, or a queue.",
        (),
        [((), tally.deliver_s)],
    )


def _store(store: StoreTally) -> Iterator[Metric]:
    yield _histogram(
        "store_command_seconds",
        "How long the presence store took to answer, by what it was asked.",
        ("op",),
        [((op.value,), buckets) for op, buckets in store.command_s.items()],
    )
    yield _counter(
        "store_errors",
        "Commands that the presence store did not answer well.",
        ("op", "kind"),
        store.errors,
    )
    yield CounterMetricFamily(
        "poolhouse_store_probe_lost",
        "Probes to this replica itself that did not come back in time.",
        value=store.probes_lost,
    )


def _counter(name: str, text: str, labels: tuple[str, ...], counts: Mapping[Any, int]) -> Metric:
    """A family with one series a key of ``counts``: an enumeration's member, or a tuple of them."""
    family = CounterMetricFamily(f"poolhouse_{name}", text, labels=labels)
    for key, count in counts.items():
        values = key if isinstance(key, tuple) else (key,)
        family.add_metric([value.value for value in values], count)
    return family


def _histogram(
    name: str,
    text: str,
    labels: tuple[str, ...],
    children: Iterable[tuple[tuple[str, ...], Buckets]],
) -> Metric:
    family = HistogramMetricFamily(f"poolhouse_{name}", text, labels=labels)
    for values, buckets in children:
        bounds = [*map(str, buckets.bounds), "+Inf"]
        counts = list(zip(bounds, accumulate(buckets.counts), strict=True))
        family.add_metric(values, counts, buckets.sum)
    return family
