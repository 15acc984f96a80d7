"""The 10 KB lap between two processes: a link against a bare ``_core`` echo of the same slices.

Run as a program: ``python tests/perf/wire_lap.py [--engine E] [--laps N] [--bytes N]``. Both are
measured in turns in one run, each between this process and an echoing child: four associations,
slices of 4.6 KB, every slice of a small frame sent twice. What the link adds is numbering, picking
channels, putting together, ordering and the hand-over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections import deque
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2] / part) for part in ("", "node", "control")]

from poolhouse_node.rtc.open import open_network
from poolhouse_node.wire.slices import Frame, Kind, encode_slices
from tests.support.control import running_control
from tests.support.recorder import Recorder, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ASSOCIATIONS = 4
HOST = "pooled-room-LAP"
type Lap = Callable[[], Awaitable[None]]


# The bare echo.


class CoreEnd:
    """Four associations of ``_core`` with one ordered channel each, and nothing else."""

    def __init__(self, received: Callable[[int, bytes], None]) -> None:
        from aiolibdatachannel import _core, _native

        from poolhouse_node.rtc.libdatachannel_extras import load_extras

        load_extras(_native)  # the same retransmission timer
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[int, bytes]] = deque()
        self._armed = False
        self._received = received
        self._send = _native.send_bytes
        self.peers: list[Any] = []
        self.handles: list[int] = []
        self._channels: list[Any] = []
        for number in range(ASSOCIATIONS):
            peer = _core.PeerConnection([])
            handle = peer.create_data_channel(
                "bare", negotiated=True, manual_stream=True, stream=77
            )
            channel = _core.DataChannel(handle)
            channel.set_on_message(lambda data, number=number: self._put(number, data))
            self.peers.append(peer)
            self.handles.append(handle)
            self._channels.append(channel)

    def _put(self, number: int, data: bytes) -> None:
        self._queue.append((number, data))
        if not self._armed:
            self._armed = True
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        self._armed = False
        while self._queue:
            self._received(*self._queue.popleft())

    def send(self, number: int, data: bytes) -> None:
        self._send(self.handles[number], data)

    async def describe(self, kind: str) -> list[str]:
        for peer in self.peers:
            peer.set_local_description(kind)
        await asyncio.sleep(0.5)  # host candidates only: gathered at once
        return [peer.get_local_description() for peer in self.peers]

    def accept(self, descriptions: list[str], kind: str) -> None:
        for peer, sdp in zip(self.peers, descriptions, strict=True):
            peer.set_remote_description(sdp, kind)

    async def opened(self) -> None:
        await until(lambda: all(channel.is_open() for channel in self._channels))


@asynccontextmanager
async def core_lap(size_bytes: int, how: str) -> AsyncIterator[Lap]:
    """Laps of bare slices: done when each index of the frame has come back once.

    ``how`` the child answers: each ``slice`` as it comes, or the ``frame`` once it is whole.
    """
    missing: set[bytes] = set()
    done = asyncio.Event()
    frame_ids = iter(range(1, 2**32))
    turns = cycle(range(ASSOCIATIONS))

    def received(_number: int, data: bytes) -> None:
        missing.discard(data[4:8] + data[14:16])
        if not missing:
            done.set()

    async with _child("core", how) as child:
        end = CoreEnd(received)
        await _tell(child, await end.describe("offer"))
        end.accept(await _hear(child), "answer")
        await end.opened()

        async def lap() -> None:
            frame = Frame(Kind.HIDDEN, 0, 1, bytes(size_bytes))
            slices = encode_slices(frame, next(frame_ids))
            missing.update(data[4:8] + data[14:16] for data in slices)
            done.clear()
            for data in slices:
                end.send(next(turns), data)
                if len(slices) <= 3:
                    end.send(next(turns), data)
            await done.wait()

        yield lap


async def echo_core(how: str) -> None:
    """The child: send every message back on the channel it came on, or every frame whole."""
    turns = cycle(range(ASSOCIATIONS))
    gathered: dict[bytes, bytes] = {}
    last = b""

    def received_frame(_number: int, data: bytes) -> None:
        nonlocal last
        if data[4:8] <= last:  # a late copy; ids are big-endian
            return
        gathered[data[14:16]] = data
        if len(gathered) < int.from_bytes(data[16:18]):
            return
        last, slices = data[4:8], [gathered[index] for index in sorted(gathered)]
        gathered.clear()
        for piece in slices:
            end.send(next(turns), piece)
            if len(slices) <= 3:
                end.send(next(turns), piece)

    def received_slice(number: int, data: bytes) -> None:
        end.send(number, data)

    end = CoreEnd(received_frame if how == "frame" else received_slice)
    reader = await _stdin()
    end.accept(json.loads(await reader.readline()), "offer")
    _say(await end.describe("answer"))
    await reader.read()


# The link.


@asynccontextmanager
async def link_lap(size_bytes: int, engine: str) -> AsyncIterator[Lap]:
    """Laps of frames over a link with stripes."""
    async with (
        running_control(log_level="error") as control,
        _child("link", control.signal_url, engine) as child,
    ):
        await _hear(child)
        done = asyncio.Event()
        events = Recorder()
        events.frame = lambda link, frame: done.set()
        network = await open_network([control.signal_url], engine=engine)
        network.listen(events)
        link = await network.dial(HOST, timeout_s=20)
        await until(lambda: link.stripes == ASSOCIATIONS - 1)
        await asyncio.sleep(0.2)

        async def lap() -> None:
            done.clear()
            link.send_frame(Frame(Kind.HIDDEN, 0, 1, bytes(size_bytes)))
            await done.wait()

        yield lap
        await network.close()


async def echo_link(url: str, engine: str) -> None:
    """The child: send every frame back."""
    events = Recorder()
    events.frame = lambda link, frame: link.send_frame(frame)
    network = await open_network([url], HOST, engine=engine)
    network.listen(events)
    _say("ready")
    await (await _stdin()).read()
    await network.close()


# Both.


async def measure(laps: int, size_bytes: int, engine: str, rounds: int = 20) -> dict[str, Any]:
    """Milliseconds a lap of both kinds, in turns of one run."""
    times: dict[str, list[list[float]]] = {"core": [], "core_frame": [], "link": []}
    async with (
        core_lap(size_bytes, "slice") as core,
        core_lap(size_bytes, "frame") as core_frame,
        link_lap(size_bytes, engine) as link,
    ):
        kinds = (("core", core), ("core_frame", core_frame), ("link", link))
        for name, lap in kinds * (rounds + 1):
            # Short turns: the machine's other work hits all alike. The keep-alive of a link that
            # was just used adds 100 bytes a second to the next turn, which is nothing.
            taken = []
            for _ in range(laps // rounds):
                start = time.perf_counter()
                async with asyncio.timeout(10):
                    await lap()
                taken.append((time.perf_counter() - start) * 1000)
            times[name].append(taken)
    # The first round of each warms up.
    flat = {name: [t for turn in turns[1:] for t in turn] for name, turns in times.items()}
    result = {name: _summary(values) for name, values in flat.items()}
    ratios = {
        f"link/{name}": round(result["link"]["p50"] / result[name]["p50"], 3)
        for name in ("core", "core_frame")
    }
    return result | ratios


def _summary(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50": round(cuts[49], 3), "p95": round(cuts[94], 3), "p99": round(cuts[98], 3)}


@asynccontextmanager
async def _child(*args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        "--echo",
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    try:
        yield child
    finally:
        child.stdin.close()
        try:
            async with asyncio.timeout(10):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()


async def _tell(child: asyncio.subprocess.Process, value: Any) -> None:
    child.stdin.write(json.dumps(value).encode() + b"\n")
    await child.stdin.drain()


async def _hear(child: asyncio.subprocess.Process) -> Any:
    return json.loads(await child.stdout.readline())


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


async def _stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="libdatachannel")
    parser.add_argument("--laps", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=10_240)
    parser.add_argument("--asyncio", action="store_true", help="without uvloop")
    parser.add_argument("--echo", nargs="+", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.asyncio:
        factory = asyncio.new_event_loop
    else:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        match chosen.echo:
            case ["core", how]:
                runner.run(echo_core(how))
            case ["link", url, engine]:
                runner.run(echo_link(url, engine))
            case _:
                _say(runner.run(measure(chosen.laps, chosen.bytes, chosen.engine)))


if __name__ == "__main__":
    main()
