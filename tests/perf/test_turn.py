"""What an answer of ``/api/turn`` costs, beside a handler that does nothing.

Both servers run on the same loop and the same HTTP parser; CPU time counts, not the clock, so a
busy machine changes little.
"""

import json
import statistics
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import pytest

from poolhouse_node.cli.bench.procfs import cpu_s
from tests.support.posting import Posting
from tests.support.program import Program
from tests.support.redis import redis_server

pytestmark = [pytest.mark.perf, pytest.mark.timeout(120)]

REQUESTS = 4000
ROUNDS = 3


@contextmanager
def bare_server():
    """Port and process of the floor."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.bare_litestar"], stdout=subprocess.PIPE
    )
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def control(**env):
    """Port and process of a control plane with a relay and the limit on."""
    program = Program.start(
        *("control", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0", "--json"),
        env={
            "TURN_SECRET": "0123456789abcdef" * 2,
            "TURN_HOST": "relay.example.org",
            "POOLHOUSE_TURN_PROBE_EVERY_S": "0",
            "POOLHOUSE_TRUSTED_PROXIES": "127.0.0.1",
            "POOLHOUSE_PUBLIC_URL": "https://room.example.org",
            "POOLHOUSE_LOG_FORMAT": "json",
            **env,
        },
    )
    try:
        program.until_answering()
        url = json.loads(program.stdout)["signal_url"]
        yield int(url.rstrip("/").rpartition(":")[2]), program.process.pid
    finally:
        program.kill()


async def answers_per_cpu_s(posting: Posting, pid: int) -> float:
    before = cpu_s(pid)
    await posting.run(REQUESTS)
    return REQUESTS / (cpu_s(pid) - before)


async def measure(port: int, pid: int) -> tuple[float, float]:
    """Medians of the floor and of ``/api/turn``, taken in turn."""
    with bare_server() as (bare_port, bare_pid):
        floor, turn = Posting(bare_port, "/bare"), Posting(port, "/api/turn")
        await floor.run(400)
        await turn.run(400)
        pairs = [
            (await answers_per_cpu_s(floor, bare_pid), await answers_per_cpu_s(turn, pid))
            for _ in range(ROUNDS)
        ]
    assert floor.statuses == {200: 400 + ROUNDS * REQUESTS}
    assert turn.statuses == {200: 400 + ROUNDS * REQUESTS}
    assert all(b"credential" in body for body in turn.bodies)
    return tuple(statistics.median(values) for values in zip(*pairs, strict=True))


def report(record_property, where: str, floor: float, turn: float) -> float:
    ratio = turn / floor
    record_property("ratio", ratio)
    print(
        f"\n/api/turn, limit {where}: {turn:.0f} answers a CPU second, "
        f"a bare handler {floor:.0f}: {ratio:.2f} x"
    )
    return ratio


async def test_with_the_limit_in_memory(record_property):
    with control() as (port, pid):
        floor, turn = await measure(port, pid)
    assert report(record_property, "in memory", floor, turn) >= 0.4


@asynccontextmanager
async def replica(folder):
    async with redis_server(folder) as redis:
        with control(POOLHOUSE_REDIS_URL=redis.url) as found:
            yield *found, redis


@pytest.mark.redis
async def test_with_the_limit_in_redis(record_property, tmp_path):
    async with replica(tmp_path) as (port, pid, redis):
        floor, turn = await measure(port, pid)
        counted = sum(b"rate:turn" in key.encode() for key in await redis.keys())
    assert counted == 400 + ROUNDS * REQUESTS, "each was counted there"
    assert report(record_property, "in Redis", floor, turn) >= 0.2
