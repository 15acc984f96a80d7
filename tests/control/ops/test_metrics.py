"""Names, labels and number of series (metrics by the rules of Prometheus)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from poolhouse_control.app import Parts, create_app, make_parts
from poolhouse_control.settings import Settings
from poolhouse_control.signaling import tally

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SIGNAL = "poolhouse_signal_"


@pytest.fixture
def parts() -> Parts:
    parts = make_parts(Settings())
    create_app(parts.settings, parts)
    return parts


def ours(parts: Parts) -> list[Metric]:
    return [m for m in parts.registry.collect() if not m.name.startswith("process_")]


def test_the_set_of_metrics(parts: Parts) -> None:
    assert {metric.name for metric in ours(parts)} == {
        "poolhouse_build_info",
        "poolhouse_loop_lag_seconds",
        "poolhouse_relay_credentials",
        "poolhouse_relay_hosts",
        "poolhouse_relay_upstream_seconds",
        "poolhouse_drain_state",
        "poolhouse_replica_leases",
        "poolhouse_store_command_seconds",
        "poolhouse_store_errors",
        "poolhouse_store_probe_lost",
        "poolhouse_store_up",
        SIGNAL + "connects",
        SIGNAL + "deliver_seconds",
        SIGNAL + "disconnects",
        SIGNAL + "dropped_frames",
        SIGNAL + "expired",
        SIGNAL + "heartbeats",
        SIGNAL + "message_bytes",
        SIGNAL + "messages",
        SIGNAL + "peers",
        SIGNAL + "queue_messages",
        SIGNAL + "rerouted",
        SIGNAL + "send_queue_dropped",
        SIGNAL + "sockets",
        SIGNAL + "takeovers",
    }


def test_names_and_help_texts_follow_the_rules(parts: Parts) -> None:
    for metric in ours(parts):
        assert re.fullmatch(r"poolhouse(_[a-z]+)+", metric.name)
        assert metric.documentation.endswith(".")
        for sample in metric.samples:
            assert sample.name.endswith("_total") is (metric.type == "counter")
            assert not sample.name.endswith("_created")


def test_the_number_of_series(parts: Parts) -> None:
    """Budget: below 300 a replica. A new series is added here by hand."""
    count = sum(len(metric.samples) for metric in ours(parts))
    gauges, lag, build = 6, 13 + 2, 1
    labelled = 10 + 9 + 2 + 2 + 2 + 5 * 4 + 6
    plain, deliver = 4, 12 + 2
    store = 8 * (11 + 2) + 8 * 3 + 1
    relay_hosts, upstream_buckets, upstream_sums = 2, 11, 2
    relay = relay_hosts + upstream_buckets + upstream_sums
    assert count == gauges + lag + build + labelled + plain + deliver + store + relay
    assert count < 300


@pytest.mark.parametrize(
    ("metric", "label", "values"),
    [
        ("connects", "outcome", tally.ConnectOutcome),
        ("disconnects", "reason", tally.DisconnectReason),
        ("message_bytes", "direction", tally.Direction),
        ("takeovers", "kind", tally.TakeoverKind),
        ("dropped_frames", "reason", tally.DroppedFrame),
        ("messages", "type", tally.RelayKind),
        ("messages", "route", tally.RelayRoute),
    ],
)
def test_labels_are_the_enumerations_and_exist_from_the_start(
    parts: Parts, metric: str, label: str, values: type[tally.RelayKind]
) -> None:
    (found,) = [m for m in ours(parts) if m.name == SIGNAL + metric]
    assert {sample.labels[label] for sample in found.samples} == {v.value for v in values}
    assert all(sample.value == 0 for sample in found.samples)


def test_the_alerts_threshold_is_a_bound_of_the_lag(parts: Parts) -> None:
    value = parts.registry.get_sample_value("poolhouse_loop_lag_seconds_bucket", {"le": "0.25"})
    assert value == 0


def test_a_histogram_counts_what_was_seen(parts: Parts) -> None:
    deliver = parts.switchboard.hub.tally.deliver_s
    for value in (0.0005, 0.002, 7.0):
        deliver.observe(value)

    def sample(name: str, **labels: str) -> float | None:
        return parts.registry.get_sample_value(f"{SIGNAL}deliver_seconds_{name}", labels)

    assert [sample("bucket", le=le) for le in ("0.0005", "0.001", "0.0025", "5.0", "+Inf")] == [
        1, 1, 2, 2, 3,
    ]  # fmt: skip
    assert sample("count") == 3
    assert sample("sum") == pytest.approx(7.0025)


def test_two_apps_in_one_process_do_not_collide(parts: Parts) -> None:
    other = make_parts(Settings())
    create_app(other.settings, other)
    parts.switchboard.hub.tally.heartbeats += 1
    assert other.registry.get_sample_value(SIGNAL + "heartbeats_total") == 0
    assert parts.registry.get_sample_value(SIGNAL + "heartbeats_total") == 1
