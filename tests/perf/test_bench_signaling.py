"""``bench signaling`` runs and keeps its promises with room for a busy machine.

The promised ratios are measured by hand and kept in docs/reference/benchmarks.md.
"""

import pytest

from tests.support.program import run

pytestmark = [pytest.mark.perf, pytest.mark.timeout(120)]

SHORT = ("--sockets", "200", "--messages", "9000", "--seconds", "3", "--json")


def test_the_control_plane_beside_npms_peerserver():
    ended = run("bench", "signaling", *SHORT, "--against", "npm", timeout_s=100)
    assert ended.process.returncode == 0, ended.stderr
    ours, theirs = ended.json()["servers"]
    assert [ours["server"], theirs["server"]] == ["poolhouse control", "npm peer 1.0.2"]
    for figures in (ours, theirs):
        assert figures["lost"] == figures["damaged"] == 0
        assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"]
        assert figures["opened_per_s"] > 50
        assert figures["relayed_per_s"] > 500
    # The clock tick is a tenth of what so few messages cost: much room.
    assert ours["cpu_us_flat_out"] < 3 * theirs["cpu_us_flat_out"]
    assert 0 < ours["cpu_us_at_rate"] < 300
    assert 0 < ours["kb_per_socket"] < 60
