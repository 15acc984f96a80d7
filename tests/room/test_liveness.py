"""Silence, stalls and drops against the vectors."""

import pytest

from poolhouse_node.device import entrance, keeper, orders
from poolhouse_node.room import laps, liveness, mesh, returning, roster
from poolhouse_node.room.liveness import (
    AnswerWatch,
    PingCount,
    PingLoop,
    is_back,
    is_phone,
    silent_limit_s,
    stall_limit_s,
    was_away,
)
from tests.support.vectors import cases, vectors

LIVENESS = vectors("liveness")


@pytest.mark.parametrize("case", cases(LIVENESS["dead_after"]))
def test_stall_limits(case):
    rtt_s = None if case["rtt_ms"] is None else case["rtt_ms"] / 1000
    assert stall_limit_s(rtt_s) * 1000 == pytest.approx(case["limit_ms"])


@pytest.mark.parametrize("case", cases(LIVENESS["silent_limit"]))
def test_silent_links_are_dropped(case):
    limit_s = silent_limit_s(to_host=case["to_host"], phone=case["phone"], loading=case["loading"])
    assert limit_s == (None if case["limit_ms"] is None else case["limit_ms"] / 1000)
    for quiet in case["cases"]:
        now = 10_000.0
        on_time, late = PingLoop(last_tick=now - 2.5), PingLoop(last_tick=now - 5.001)
        heard_at = now - quiet["quiet_ms"] / 1000
        assert not on_time.tick(now)
        assert on_time.is_silent(heard_at, limit_s, now) == quiet["drop"]
        assert late.tick(now)
        assert late.is_silent(heard_at, limit_s, now) == quiet["drop_if_late_tick"]


def play(actions: list[dict]) -> None:
    watch, heard_at = AnswerWatch(), {}
    for action in actions:
        now = action.get("now", 0) / 1000
        match action["op"]:
            case "arm":
                watch.arm(now)
            case "disarm":
                watch.disarm()
            case "heard":
                heard_at[action["id"]] = now
            case "forget":
                heard_at.pop(action["id"], None)
            case "tick":
                chain = {peer: heard_at.get(peer, float("-inf")) for peer in action["ids"]}
                rtts = {peer: ms / 1000 for peer, ms in (action.get("rtt") or {}).items()}
                watch.held.clear()  # the vectors report a silent device at every tick
                dead = watch.tick(now, chain, rtts)
                assert watch.ping_due(now) == action["ping"], action
                assert [d.peer_id for d in dead] == [d["id"] for d in action["dead"]], action
                for found, expect in zip(dead, action["dead"], strict=True):
                    assert found.silent_s * 1000 == pytest.approx(expect["silent_ms"])
                    assert found.limit_s * 1000 == pytest.approx(expect["limit_ms"])


@pytest.mark.parametrize("case", cases(LIVENESS["heartbeat"]))
def test_drop_detection_scripts(case):
    play(case["actions"])


def test_a_stalled_device_is_reported_once_and_again_after_it_came_back():
    watch = AnswerWatch()
    watch.arm(0)
    reports = [watch.tick(t / 4, {"a": 0.0}, {}) for t in range(40)]
    assert sum(map(len, reports)) == 1
    assert not watch.answered("a", 0.0)
    assert watch.answered("a", 9.9)
    assert not watch.answered("a", 9.9)
    later = [watch.tick(10 + t / 4, {"a": 10.0}, {}) for t in range(40)]
    assert sum(map(len, later)) == 1


@pytest.mark.parametrize(
    ("meta", "phone"),
    [
        ({"ua": "iPhone"}, True),
        ({"ua": "Android"}, True),
        ({"ua": "iPad"}, False),
        ({"phone": True, "ua": "Device"}, True),
        ({}, False),
    ],
)
def test_what_counts_as_a_phone(meta, phone):
    assert is_phone(meta) is phone


def test_an_api_client_is_dropped_after_six_pings_in_a_row():
    pings = PingCount()
    assert [pings.tick() for _ in range(8)] == [False] * 6 + [True] * 2
    pings.answered()
    assert [pings.tick() for _ in range(7)] == [False] * 6 + [True]


@pytest.mark.parametrize("case", cases(LIVENESS["suspect_back"]))
def test_a_stalled_device_is_back_after_a_full_round_trip(case):
    assert is_back(case["latest_answered_ping_sent"], case["silence_began"]) is case["back"]


@pytest.mark.parametrize("case", cases(LIVENESS["away"]))
def test_who_was_away(case):
    hidden_at = None if case["hidden_at"] is None else case["hidden_at"] / 1000
    assert was_away(hidden_at, case["now"] / 1000) == case["was_away"]


def test_the_numbers_are_those_of_the_protocol():
    """One place for all of them; each is used where the module says."""
    said = LIVENESS["constants"]
    ours_ms = {
        "ping_ms": liveness.PING_S,
        "silent_ms": liveness.COMPUTER_SILENT_S,
        "phone_silent_ms": liveness.PHONE_SILENT_S,
        "host_silent_ms": liveness.HOST_SILENT_S,
        "busy_ping_ms": liveness.BUSY_PING_S,
        "stall_ms": liveness.STALL_S,
        "name_probe_ms": roster.NAME_PROBE_S,
        "quiet_ms": roster.NAMESAKE_QUIET_S,
        "dead_min_ms": liveness.stall_limit_s(0),
        "dead_max_ms": liveness.stall_limit_s(99),
        "lap_min_ms": laps.FLOOR_S,
        "lap_token_ms": laps.UNMEASURED_S["token"],
        "lap_verify_or_prefill_ms": laps.UNMEASURED_S["prefill"],
        "rejoin_grace_ms": keeper.REDEAL_AFTER_S,
        "recover_max_ms": keeper.WHOLE_WAIT_S,
        "relink_wait_ms": orders.RELINK_WAIT_S,
        "link_silent_ms": returning.LINK_STALE_S,
        "knock_ms": returning.KNOCK_S,
        "host_wait_ms": returning.KNOCKING_S,
        "dead_link_wait_ms": returning.DEAD_LINK_WAIT_S,
        "mesh_wait_ms": mesh.MESH_WAIT_S,
        "host_hello_wait_ms": entrance.HOST_HELLO_WAIT_S,
    }
    assert {name: seconds * 1000 for name, seconds in ours_ms.items()} == {
        name: said[name] for name in ours_ms
    }
    assert said["api_missed_pings"] == liveness.API_MISSED_PINGS  # the one that is no time
    # A link is never judged while layers load.
    assert set(said) - set(ours_ms) == {"api_missed_pings", "link_silent_loading_ms"}
