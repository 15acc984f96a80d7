"""Is it up, can devices join, do rooms answer."""

from __future__ import annotations

from tools.monitoring.boards.parts import machine, quantiles, rate
from tools.monitoring.grafana import Board, Panel, Query, Row

__all__ = ["OVERVIEW"]

_FAILED = 'outcome=~"timeout|link_lost|error"'

_NOW = Row(
    "Now",
    (
        Panel(
            "Control planes",
            "Replicas that answer Prometheus.",
            "short",
            (Query("count(poolhouse_signal_peers{ON}) or vector(0)"),),
            kind="stat", width=4, height=4, bad_below=1,
        ),
        Panel(
            "Devices",
            "Devices that answer Prometheus, in a room or not.",
            "short",
            (Query("count(poolhouse_room_connected{ON}) or vector(0)"),),
            kind="stat", width=4, height=4,
        ),
        Panel(
            "Rooms",
            "Rooms that devices here host.",
            "short",
            (Query('sum(poolhouse_room_role{role="host", ON}) or vector(0)'),),
            kind="stat", width=4, height=4,
        ),
        Panel(
            "Devices without a room",
            "They run, but are inside of no room.",
            "short",
            (Query("count(poolhouse_room_connected{ON} == 0) or vector(0)"),),
            kind="stat", width=4, height=4, bad_above=1,
        ),
        Panel(
            "Tokens a second",
            "Of all rooms.",
            "short",
            (
                Query(
                    'sum(rate(poolhouse_gen_tokens_total{kind="answer", ON}[$__rate_interval]))'
                    " or vector(0)"
                ),
            ),
            kind="stat", width=4, height=4,
        ),
        Panel(
            "Alerts",
            "Alerts of poolhouse that fire, but for the one that always does.",
            "short",
            (
                Query(
                    'count(ALERTS{alertname=~"Poolhouse.*", alertname!="PoolhouseWatchdog", '
                    'alertstate="firing"}) or vector(0)'
                ),
            ),
            kind="stat", width=4, height=4, bad_above=1,
        ),
    ),
)  # fmt: skip

_PEOPLE = Row(
    "What people notice",
    (
        Panel(
            "How do answers end?",
            "Answers a second by outcome. A time-out, a lost link and an error are failures.",
            "ops",
            (Query(rate("poolhouse_gen_total", "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Share of answers that fail",
            "Of those that end; an alert comes when it stays above a tenth.",
            "percentunit",
            (
                Query(
                    f"sum(rate(poolhouse_gen_total{{{_FAILED}, ON}}[$__rate_interval]))"
                    " / sum(rate(poolhouse_gen_total{ON}[$__rate_interval]))",
                    "failed",
                ),
            ),
            bad_above=0.1,
            highest=1,
        ),
        Panel(
            "When does the first token come?",
            "From a question's arrival, its time in the queue included. The objective is 20 s for "
            "nine of ten.",
            "s",
            quantiles("poolhouse_gen_time_to_first_token_seconds"),
            bad_above=20,
        ),
        Panel(
            "Tokens a second by room",
            "Each host makes the answers of its room.",
            "short",
            (
                Query(
                    rate("poolhouse_gen_tokens_total", "instance", 'kind="answer"'), "{{instance}}"
                ),
            ),
        ),
        Panel(
            "How do attempts to join end?",
            "Devices that try to get into a room, by outcome, a second.",
            "ops",
            (Query(rate("poolhouse_room_joins_total", "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Does signaling let devices in?",
            "Attempts to register, by outcome, a second.",
            "ops",
            (Query(rate("poolhouse_signal_connects_total", "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
    ),
)

_WHAT_RUNS = Row(
    "What runs",
    (
        Panel(
            "Versions",
            "Versions and room protocols of all programs. Devices of different protocols refuse "
            "each other.",
            "short",
            (Query("count by (job, version, protocol) (poolhouse_build_info{ON})"),),
            kind="table", width=12,
        ),
        Panel(
            "Where devices compute",
            "Kind of device, GPU and engine.",
            "short",
            (Query("count by (device, gpu, backend) (poolhouse_node_info{ON})"),),
            kind="table", width=12,
        ),
    ),
)  # fmt: skip

OVERVIEW = Board(
    "overview",
    "poolhouse / overview",
    "Is it up, can devices join, do rooms answer?",
    (_NOW, _PEOPLE, machine(), _WHAT_RUNS),
    home="poolhouse_build_info",
)
