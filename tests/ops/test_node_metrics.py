"""Names, labels, bounds and number of a device's series."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from poolhouse_node.device.answer_record import Outcome
from poolhouse_node.ops import bounds, metrics
from poolhouse_node.ops.metrics import NodeMetrics
from poolhouse_node.ops.readings import EngineMemory, Role, RoomReading, RoomReadings
from poolhouse_node.ops.registry import NodeRegistry, make_registry, room_label
from poolhouse_node.rtc.counts import LinkCounts

PERSONAL = {"peer", "peer_id", "name", "room", "code", "ip", "address", "token", "asker", "file"}


@dataclass
class Node:
    registry: NodeRegistry
    metrics: NodeMetrics
    readings: RoomReadings

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"poolhouse_{name}", labels)


@pytest.fixture
def node() -> Node:
    registry = make_registry("1.2.3", 4)
    readings = RoomReadings(LinkCounts(), lambda: EngineMemory(300, 40))
    registry.register(readings)
    return Node(registry, NodeMetrics(registry), readings)


def reading(**changes) -> RoomReading:
    usual = {
        "role": Role.WORKER, "is_connected": True, "has_signaling": True, "layers": 10,
        "pledge_bytes": 1000, "links_open": 2, "links_held": 1, "links_relayed": 1,
        "buffered_bytes": 5, "carried": LinkCounts(frames_sent=7, sent_second_bytes=9),
    }  # fmt: skip
    return RoomReading(**(usual | changes))


def test_names_and_help_texts_follow_the_rules(node):
    for metric in node.registry.collect():
        if metric.name.startswith("process_"):
            continue
        assert re.fullmatch(r"poolhouse(_[a-z]+)+", metric.name)
        assert re.match(r"[A-Z0-9].*\.$", metric.documentation)
        for sample in metric.samples:
            assert sample.name.endswith("_total") is (metric.type == "counter")
            assert not sample.name.endswith("_created")
            assert not PERSONAL & set(sample.labels)


def test_every_series_exists_before_anything_happened_and_stays_below_the_budget(node):
    before = sum(len(metric.samples) for metric in node.registry.collect())
    node.metrics.describe_node("cpu", "", "torch")
    with node.readings.watching(reading):
        after = sum(len(metric.samples) for metric in node.registry.collect())
    assert after == before + 1  # what computes here, once it is known
    assert after < 400, "the budget of a device is 500"


@pytest.mark.parametrize(
    ("metric", "threshold"),
    [
        (bounds.FIRST_TOKEN_S, 20),
        (bounds.LAP_S, 2),
        (bounds.LAP_S, 30),
        (bounds.LAP_S, 90),
        (bounds.LOOP_LAG_S, 0.25),
    ],
)
def test_a_bound_stands_on_every_threshold(metric, threshold):
    assert threshold in metric
    assert list(metric) == sorted(set(metric))


def test_labels_of_outcomes_are_those_of_the_device():
    assert {each.value for each in metrics.GenOutcome} == {each.value for each in Outcome}


def test_rooms_add_up_and_what_links_carried_stays(node):
    first = reading()
    second = reading(role=Role.HOST, links_relayed=0, queue_length=3, queue_limit=10)
    with node.readings.watching(lambda: second):
        with node.readings.watching(lambda: first):
            assert node.value("room_connected") == 2
            assert node.value("links", state="open") == 4
            assert node.value("links", state="relayed") == 1
            assert node.value("room_role", role="host") == 1
            assert node.value("link_frames_total", direction="sent") == 14
            assert node.value("engine_pledge_bytes") == 1000
        assert node.value("room_connected") == 1
        assert node.value("gen_queue_length") == 3
        assert node.value("link_frames_total", direction="sent") == 14
    assert node.value("link_frames_total", direction="sent") == 14
    assert node.value("link_bytes_total", direction="sent", copy="second") == 18
    assert node.value("engine_memory_bytes", use="weights") == 300


def test_a_device_is_ready_while_others_can_find_it(node):
    assert not node.readings.has_signaling
    with node.readings.watching(reading):
        assert node.readings.has_signaling
        with node.readings.watching(lambda: reading(has_signaling=False)):
            assert not node.readings.has_signaling
            assert node.value("room_signaling_connected") == 0


def test_the_room_is_named_only_where_it_is_wanted(node):
    assert node.value("room_connected") == 0
    node.registry.room = room_label("4TKG9P")
    assert node.value("room_connected", room=node.registry.room) == 0
    assert node.value("gen_total", room=node.registry.room, outcome="stop") == 0
    assert node.registry.get_sample_value("process_open_fds") is not None, "is of no room"


def test_a_room_is_named_by_neither_its_code_nor_a_part_of_it():
    label = room_label("4TKG9P")
    assert re.fullmatch("[0-9a-f]{8}", label)
    assert label == room_label("4TKG9P") != room_label("4TKG9Q")


def test_two_devices_in_one_process_do_not_collide(node):
    other = make_registry("1.2.3", 4)
    NodeMetrics(other).resumed.inc()
    assert node.value("gen_resumed_total") == 0
    assert node.value("build_info", version="1.2.3", protocol="4", python=_python()) == 1


def _python() -> str:
    import platform

    return platform.python_version()
