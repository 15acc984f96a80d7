"""``bench decode --shape --room`` on a shape that is small enough for two CPUs."""

import asyncio
import json

import pytest

from poolhouse_node.cli.bench.shape_room import RoomBench, bench_room, parse_devices
from poolhouse_node.cli.failures import CommandFailed


@pytest.mark.webrtc
@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_room_of_two_processes_accounts_for_every_token(capsys):
    bench = RoomBench("tiny", ("cpu", "cpu"), prompt=18, tokens=6, repeats=1)
    assert asyncio.run(bench_room(bench, as_json=True)) == 0
    figures = json.loads(capsys.readouterr().out)
    parts = figures["parts_ms"]
    token_ms = parts.pop("token")
    assert sum(parts.values()) == pytest.approx(token_ms)
    assert figures["room_tokens_per_s"] == pytest.approx(1e3 / token_ms)
    assert min(parts["host_layers"], parts["worker_layers"], parts["head"]) > 0
    # A worker may be still in its call to send when the host has the frame: only both together
    # are sure to take time.
    assert parts["wire"] + parts["loops"] > 0


@pytest.mark.parametrize("text", ["cpu", "cpu,", ",cpu", "cpu,cpu,cpu"])
def test_a_room_has_two_devices(text):
    with pytest.raises(CommandFailed, match="two devices"):
        parse_devices(text)


def test_devices_are_told_apart():
    assert parse_devices("cuda:0, cuda:1") == ("cuda:0", "cuda:1")
