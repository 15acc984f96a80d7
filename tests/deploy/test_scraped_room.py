"""A real Prometheus watches a real control plane and a real room: every query is answered."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

import pytest
from tools.monitoring.lint import board_expressions

from tests.support.monitoring import RULE_FILES, boards
from tests.support.program import Program
from tests.support.prometheus import Prometheus
from tests.support.room_processes import RoomProcesses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.prometheus, pytest.mark.room, pytest.mark.model, pytest.mark.webrtc,
    pytest.mark.timeout(180),
]  # fmt: skip

RATE_INTERVAL = "2m"
"""More than the test takes: what happened in it is in every rate."""
LAYERS = {"host": 10.0, "worker-1": 10.0, "worker-2": 10.0}
RUNNING = (
    "poolhouse_signal_peers", "poolhouse_room_connected", "poolhouse_room_seat_layers",
    'poolhouse_links{state="open"}', 'poolhouse_engine_memory_bytes{use="weights"}',
    "poolhouse_engine_pledge_bytes", 'poolhouse_lap_duration_seconds_count{kind="decode"}',
    'poolhouse_engine_step_seconds_count{kind="decode"}', "poolhouse_model_load_seconds_count",
    'poolhouse_gen_total{outcome="length"}', "poolhouse_gen_time_to_first_token_seconds_count",
    'poolhouse_link_frames_total{direction="received"}', "poolhouse_link_rtt_seconds_count",
    'poolhouse_signal_messages_total{type="OFFER"}',
)  # fmt: skip


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that has watched a room of three devices answer a question."""
    folder = tmp_path_factory.mktemp("monitored")
    control = Program.start(
        *("control", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0", "--json")
    )
    try:
        control.until_answering()
        at = json.loads(control.stdout.splitlines()[0])
        with (
            RoomProcesses(folder, at["signal_url"], 40, start=lambda name: measured) as room,
            watching(folder, room, at["admin_url"]) as prometheus,
        ):
            prometheus.until("count(up == 1) == 4")  # what happens from now on has a rate
            asked = room.ask("What is a swimming pool?")
            assert asked.end(60) == 0, asked.stderr
            prometheus.until('poolhouse_gen_total{outcome=~"length|stop"} > 0')
            prometheus.until("poolhouse_link_rtt_seconds_count > 0")
            prometheus.until('rate(poolhouse_gen_total{outcome="error"}[2m])')
            yield prometheus
    finally:
        control.kill()


def measured(*arguments: str, env: dict[str, str]) -> Program:
    return Program.start(*arguments, env=env | {"POOLHOUSE_METRICS_PORT": "0"})


def watching(folder: Path, room: RoomProcesses, admin_url: str) -> Prometheus:
    """Open the room, and name everyone in it to a Prometheus."""
    room.open()
    nodes = [room.host, *room.workers.values()]
    targets = {
        "poolhouse-control": [address_in(admin_url)],
        "poolhouse-node": [address_in(node.stderr) for node in nodes],
    }
    return Prometheus(folder, targets, RULE_FILES)


def address_in(text: str) -> str:
    return re.search(r"http://([\d.]+:\d+)", text[text.find("Metrics: ") + 1 :])[1]


def values(series: list[dict]) -> list[float]:
    return [float(each["value"][1]) for each in series]


def test_every_target_is_scraped(prometheus):
    targets = prometheus.ask("targets")["activeTargets"]
    assert len(targets) == 4
    assert {target["health"] for target in targets} == {"up"}


@pytest.mark.parametrize("name", sorted(boards()))
def test_every_query_of_a_dashboard_has_an_answer(prometheus, name):
    silent = [
        f"{title}: {expression}"
        for title, expression in board_expressions(boards()[name], RATE_INTERVAL)
        if not prometheus.query(expression)
    ]
    assert silent == []


@pytest.mark.parametrize("name", sorted(boards()))
def test_the_variables_of_a_dashboard_find_what_runs(prometheus, name):
    variable = boards()[name]["templating"]["list"][-1]["query"]["query"]
    metric = re.match(r"label_values\((\w+)\{", variable)[1]
    found = prometheus.ask("label/instance/values", **{"match[]": metric})
    wanted = {"poolhouse_build_info": 4, "poolhouse_signal_peers": 1, "poolhouse_room_connected": 3}
    assert len(found) == wanted[metric]


@pytest.mark.parametrize("expression", RUNNING)
def test_what_runs_is_counted(prometheus, expression):
    assert max(values(prometheus.query(expression))) > 0


def test_the_room_is_told_as_it_is(prometheus):
    assert sorted(values(prometheus.query("poolhouse_room_seat_layers"))) == [10, 10, 10]
    assert values(prometheus.query('sum(poolhouse_room_role{role="host"})')) == [1]
    assert values(prometheus.query('sum(poolhouse_room_role{role="worker"})')) == [2]
    assert values(prometheus.query("sum(poolhouse_signal_peers)"))[0] >= 3


def test_tokens_and_their_times_are_numbers(prometheus):
    expressions = board_expressions(boards()["poolhouse-overview"], RATE_INTERVAL)
    tokens = [e for title, e in expressions if title.startswith("Tokens a second")]
    first = [e for title, e in expressions if title.startswith("When does the first token")]
    assert all(max(values(prometheus.query(expression))) > 0 for expression in tokens)
    assert all(math.isfinite(values(prometheus.query(expression))[0]) for expression in first)


def test_every_rule_works_and_only_the_watchdog_fires(prometheus):
    prometheus.until("ALERTS")
    groups = prometheus.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert not [rule for rule in rules if rule.get("lastError")]
    firing = prometheus.query('ALERTS{alertstate="firing"}')
    assert [each["metric"]["alertname"] for each in firing] == ["PoolhouseWatchdog"]


def test_a_device_stays_below_its_budget_of_series(prometheus):
    counts = prometheus.query('count by (instance) ({job="poolhouse-node", instance!=""})')
    assert len(counts) == 3
    assert max(values(counts)) < 500
    (control,) = prometheus.query('count({job="poolhouse-control"})')
    assert float(control["value"][1]) < 330, "300 of ours, and those of the process and the scrape"
