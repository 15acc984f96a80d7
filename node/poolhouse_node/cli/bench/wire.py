"""``poolhouse bench wire``: a frame and its echo over a link, beside its floors in the same run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from poolhouse_node.cli.bench.bare_core import CoreEnd
from poolhouse_node.cli.bench.echo_child import link_host_id
from poolhouse_node.cli.bench.tcp import connect
from poolhouse_node.cli.children import Children
from poolhouse_node.cli.running import say
from poolhouse_node.cli.up import CONTROL_START_S, control_arguments
from poolhouse_node.wire.slices import Frame, Kind, decode_header, encode_slices

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from poolhouse_node.rtc.link import Link
    from poolhouse_node.rtc.peer import Engine

__all__ = ["WireBench", "bench_wire"]

type Lap = Callable[[], Awaitable[None]]
type Echo = Literal["core-slices", "core-frames"]

ROUNDS = 20
"""Turns of each kind: short ones, so that the machine's other work hits all alike."""
LAP_S = 10.0
STRIPES, STRIPES_S = 3, 20.0
CHILD_END_S = 10.0
FLOOR = "bare core echo, slice by slice"
NAMES = {
    "tcp": "TCP, one connection",
    "core-slices": FLOOR,
    "core-frames": "bare core echo, frame by frame",
    "libdatachannel": "link over libdatachannel",
    "aiortc": "link over aiortc",
}


@dataclass(frozen=True, slots=True)
class WireBench:
    """What is measured."""

    laps: int = 2000
    frame_bytes: int = 10_240
    engines: tuple[Engine, ...] = ("libdatachannel", "aiortc")


async def bench_wire(bench: WireBench, *, as_json: bool) -> int:
    """Measure all kinds in turns; print milliseconds a lap and the ratios to the floor."""
    async with contextlib.AsyncExitStack() as stack:
        say("setting up associations between two processes each …")
        laps = await _set_up(bench, stack)
        times = await _take_turns(laps, bench.laps)
    figures = {name: _summary(values) for name, values in times.items()}
    floor = figures["core-slices"]["p50_ms"]
    for figure in figures.values():
        figure["ratio"] = round(figure["p50_ms"] / floor, 2)
    if as_json:
        print(json.dumps(figures))
    else:
        _show(figures, bench)
    return 0


def _show(figures: Mapping[str, Mapping[str, float]], bench: WireBench) -> None:
    print(f"{bench.frame_bytes} bytes and back, {bench.laps} laps of each kind, in turns")
    print(f"{'':34}{'p50':>9}{'p95':>9}{'p99':>9}  ratio of p50 to the")
    print(f"{'':34}{'ms':>9}{'ms':>9}{'ms':>9}  {FLOOR}")
    for name, figure in figures.items():
        print(
            f"{NAMES[name]:34}{figure['p50_ms']:>9.3f}{figure['p95_ms']:>9.3f}"
            f"{figure['p99_ms']:>9.3f}  {figure['ratio']:.2f}"
        )


async def _set_up(bench: WireBench, stack: contextlib.AsyncExitStack) -> dict[str, Lap]:
    laps = {
        "tcp": await stack.enter_async_context(_tcp_lap(bench.frame_bytes)),
        "core-slices": await stack.enter_async_context(_core_lap(bench.frame_bytes, "core-slices")),
        "core-frames": await stack.enter_async_context(_core_lap(bench.frame_bytes, "core-frames")),
    }
    children = await stack.enter_async_context(Children())
    control = await children.start("control", control_arguments())
    url = json.loads(await control.first_line(CONTROL_START_S))["signal_url"]
    for engine in bench.engines:
        laps[engine] = await stack.enter_async_context(_link_lap(bench.frame_bytes, url, engine))
    return laps


async def _take_turns(laps: Mapping[str, Lap], count: int) -> dict[str, list[float]]:
    """Seconds of each lap by kind. The first turn of each warms up and does not count."""
    times: dict[str, list[float]] = {name: [] for name in laps}
    for turn in range(ROUNDS + 1):
        for name, lap in laps.items():
            taken = [await _timed(lap) for _ in range(max(1, count // ROUNDS))]
            if turn:
                times[name] += taken
    return times


async def _timed(lap: Lap) -> float:
    started = time.perf_counter()
    async with asyncio.timeout(LAP_S):
        await lap()
    return time.perf_counter() - started


def _summary(times_s: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times_s, n=100)
    named = {"p50_ms": cuts[49], "p95_ms": cuts[94], "p99_ms": cuts[98]}
    return {name: round(value * 1000, 3) for name, value in named.items()}


def _frame(size_bytes: int) -> Frame:
    return Frame(Kind.HIDDEN, 0, 1, bytes(size_bytes))


@contextlib.asynccontextmanager
async def _tcp_lap(size_bytes: int) -> AsyncIterator[Lap]:
    done = asyncio.Event()
    async with _child("tcp") as child:
        end = await connect(await child.hear(), lambda end, data: done.set())
        payload = bytes(size_bytes)

        async def lap() -> None:
            done.clear()
            end.send(payload)
            await done.wait()

        yield lap
        end.close()


@contextlib.asynccontextmanager
async def _core_lap(size_bytes: int, echo: Echo) -> AsyncIterator[Lap]:
    """Laps of bare slices: over when each index of the frame has come back once."""
    missing: set[tuple[int, int]] = set()
    done = asyncio.Event()
    frame = _frame(size_bytes)
    frame_id = 0

    def received(_number: int, data: bytes) -> None:
        header = decode_header(data)
        if header is not None:
            missing.discard((header.frame_id, header.slice_index))
            if not missing:
                done.set()

    async with _child(echo) as child:
        end = CoreEnd(received)
        await child.tell(await end.describe("offer"))
        end.accept(await child.hear(), "answer")
        await end.opened()

        async def lap() -> None:
            nonlocal frame_id
            frame_id += 1
            slices = encode_slices(frame, frame_id)
            missing.update((frame_id, index) for index in range(len(slices)))
            done.clear()
            end.send_all(slices)
            await done.wait()

        yield lap


class _Asking:
    """A device that waits for its frame to come back."""

    def __init__(self) -> None:
        self.back = asyncio.Event()

    def link_opened(self, link: Link) -> None:
        link.admit()

    def frame(self, link: Link, frame: Frame) -> None:
        self.back.set()

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        """Nothing is said here."""

    def link_closed(self, link: Link, reason: str) -> None:
        """The lap in flight will time out and say so."""

    def signaling_changed(self, *, connected: bool) -> None:
        """It is not needed any more."""


@contextlib.asynccontextmanager
async def _link_lap(size_bytes: int, url: str, engine: Engine) -> AsyncIterator[Lap]:
    from poolhouse_node.rtc.open import open_network

    async with _child("link", url, engine) as child:
        await child.hear()
        events = _Asking()
        network = await open_network([url], engine=engine)
        network.mesh.key = ""
        network.listen(events)
        link = await network.dial(link_host_id(engine), timeout_s=STRIPES_S)
        async with asyncio.timeout(STRIPES_S):
            while link.stripes < STRIPES:  # noqa: ASYNC110 - a link does not announce them
                await asyncio.sleep(0.05)
        frame = _frame(size_bytes)

        async def lap() -> None:
            events.back.clear()
            link.send_frame(frame)
            await events.back.wait()

        yield lap
        await network.close()


@dataclass(frozen=True, slots=True)
class _EchoChild:
    """The echoing process, spoken to in JSON lines."""

    process: asyncio.subprocess.Process

    async def tell(self, value: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value).encode() + b"\n")
        await self.process.stdin.drain()

    async def hear(self) -> Any:
        assert self.process.stdout is not None
        async with asyncio.timeout(STRIPES_S):
            return json.loads(await self.process.stdout.readline())


@contextlib.asynccontextmanager
async def _child(*arguments: str) -> AsyncIterator[_EchoChild]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "poolhouse_node.cli.bench.echo_child", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    try:
        yield _EchoChild(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), CHILD_END_S)
        except TimeoutError:
            process.kill()
            await process.wait()
