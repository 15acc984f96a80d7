"""Lap timeouts against the vectors."""

import pytest

from poolhouse_node.room.laps import LapStatistics
from tests.support.vectors import cases, vectors

LIVENESS = vectors("liveness")


def statistics(stat: dict | None) -> LapStatistics:
    if stat is None:
        return LapStatistics()
    return LapStatistics(stat["n"], stat["lap"] / 1000, stat["max"] / 1000)


@pytest.mark.parametrize("case", cases(LIVENESS["lap_timeout"]))
def test_timeouts(case):
    kind = "token" if case["fallback_ms"] == 30_000 else "verify"
    rtt_s = None if case["rtt_ms"] is None else case["rtt_ms"] / 1000
    timeout_s = statistics(case["stat"]).timeout_s(kind, rtt_s)
    assert timeout_s * 1000 == pytest.approx(case["timeout_ms"], abs=1)


RTT_S = 0.04  # of the chain in the vectors' running statistics


def test_statistics_follow_the_laps():
    laps = LapStatistics()
    for row in LIVENESS["lap_stats"]:
        laps.add(row["lap_ms"] / 1000)
        assert laps.count == row["after"]["n"]
        assert laps.average_s * 1000 == pytest.approx(row["after"]["lap"])
        assert laps.slowest_s * 1000 == pytest.approx(row["after"]["max"])
        assert laps.timeout_s("token", RTT_S) * 1000 == pytest.approx(
            row["timeout_decode_ms"], abs=1
        )
        assert laps.timeout_s("verify", RTT_S) * 1000 == pytest.approx(
            row["timeout_verify_ms"], abs=1
        )


def test_a_prefill_round_keeps_its_timeout():
    laps = LapStatistics(count=10, average_s=0.1, slowest_s=0.2)
    assert laps.timeout_s("prefill", 0.01) == 90
