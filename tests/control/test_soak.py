"""Long lives: connections by the thousand, noise on real sockets, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.support.control import running_control
from tests.support.control_process import ControlProcess, control_process
from tests.support.noise import noisy_frame
from tests.support.peerjs_socket import peer_socket, raw_upgrade

if TYPE_CHECKING:
    from tests.support.control import RunningControl

pytestmark = pytest.mark.slow

LONG = [pytest.mark.long, pytest.mark.timeout(900)]
OPEN = {"type": "OPEN"}


@pytest.mark.parametrize("cycles", [60, pytest.param(1000, marks=LONG)])
async def test_an_id_is_free_after_each_of_many_kills(cycles: int) -> None:
    """Killed without a close: reset, half closed, or in the middle of a frame."""
    async with running_control(log_level="error") as control:
        for cycle in range(cycles):
            reader, writer = await raw_upgrade(control.signal_url, "A")
            assert b'{"type":"OPEN"}' in await reader.readuntil(b"}")
            if cycle % 3 == 1:
                writer.write(b"\x81\xfe\x10\x00half a fra")
            if cycle % 3 == 2:
                writer.write_eof()
                await asyncio.wait_for(reader.read(), 5)
            writer.transport.abort()
            await opens_for_another(control, f"token-{cycle}")


async def opens_for_another(control: RunningControl, token: str) -> None:
    """A socket's end takes a turn or two of the loop to be noticed."""
    async with asyncio.timeout(5):
        while True:
            async with peer_socket(control.socket_url, "A", token) as peer:
                if await peer.hear() == OPEN:
                    await peer.say({"type": "LEAVE"})
                    assert await peer.close_code() == 1000
                    return


@pytest.mark.parametrize(
    ("warm_up", "connections"), [(300, 600), pytest.param(2000, 20_000, marks=LONG)]
)
async def test_short_connections_leave_no_memory_behind(warm_up: int, connections: int) -> None:
    # An idle machine opens more sockets a second than one replica takes by default.
    settings = {"POOLHOUSE_LOG_LEVEL": "info", "POOLHOUSE_MAX_CONNECTS_PER_S": "1000000"}
    async with control_process(**settings) as control:
        await come_and_go(control, warm_up)
        before = resident_bytes(control)
        await come_and_go(control, connections)
        assert resident_bytes(control) < before * 1.2


async def come_and_go(control: ControlProcess, count: int) -> None:
    gate = asyncio.Semaphore(20)

    async def one(number: int) -> None:
        async with gate, peer_socket(control.socket_url, f"P{number}") as peer:
            assert await peer.hear() == OPEN
            await peer.say({"type": "OFFER", "dst": f"P{number}", "payload": "x" * 500})
            await peer.hear()
            await peer.say({"type": "OFFER", "dst": "nobody", "payload": "x" * 500})

    for start in range(0, count, 200):
        await asyncio.gather(*(one(number) for number in range(start, min(count, start + 200))))
        control.lines[1:] = []
    gc.collect()


def resident_bytes(control: ControlProcess) -> int:
    status = Path(f"/proc/{control.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("count", [1500, pytest.param(100_000, marks=LONG)])
async def test_noise_on_live_sockets_disturbs_nobody(count: int) -> None:
    """No exception of ours, others are served, and every id is free in the end."""
    rng = random.Random(count)
    async with (
        running_control(log_level="warning", max_connects_per_s=1_000_000) as control,
        peer_socket(control.socket_url, "W") as witness,
    ):
        assert await witness.hear() == OPEN
        left = count
        while left:
            name = rng.choice("ABCD")
            with contextlib.suppress(ConnectionClosed, InvalidHandshake):
                async with peer_socket(control.socket_url, name, f"t{left}") as noisy:
                    for _ in range(min(left, 40)):
                        left -= 1
                        await noisy.say(noisy_frame(rng))
            await witness.say({"type": "OFFER", "dst": "W", "payload": left})
            async with asyncio.timeout(10):
                while (await witness.hear()).get("payload") != left:
                    pass
        for name in "ABCD":
            async with asyncio.timeout(5):
                while not await is_free(control, name):
                    await asyncio.sleep(0.01)
    assert "request.failed" not in control.log.getvalue()
    assert "Traceback" not in control.log.getvalue()


async def is_free(control: RunningControl, name: str) -> bool:
    async with peer_socket(control.socket_url, name, "the last") as peer:
        return await peer.hear() == OPEN
