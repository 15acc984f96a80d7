"""``poolhouse bench decode --shape --room``: two devices over loopback links, part by part.

The same code as in a room runs on both sides of a real link: the host's loop, its chain, the
worker's frame runner. Only joining and dealing are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.bench.room_child import WORKER_ID
from poolhouse_node.cli.bench.room_parts import TimedCompute, TimedShard
from poolhouse_node.cli.bench.shapes import find_shape
from poolhouse_node.cli.children import Children
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.running import say
from poolhouse_node.cli.up import CONTROL_START_S, control_arguments
from poolhouse_node.device.laps import WorkerChain
from poolhouse_node.generate.decode import GenerationRequest, answer
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.generate.trunk import Trunk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from poolhouse_node.cli.bench.shapes import Shape
    from poolhouse_node.rtc.link import Link
    from poolhouse_node.rtc.peer import Engine
    from poolhouse_node.wire.slices import Frame

__all__ = ["RoomBench", "bench_room", "parse_devices"]

_START_S, _LINK_S, _STRIPES = 300.0, 30.0, 3


@dataclass(frozen=True, slots=True)
class RoomBench:
    """What is measured."""

    shape: str
    devices: tuple[str, str]
    """The host's, with the first half of the layers and the head; the worker's."""
    quant: str = "q4_0"
    engine: Engine = "libdatachannel"
    prompt: int = 64
    tokens: int = 64
    repeats: int = 3

    @property
    def context(self) -> int:
        """Positions of one answer."""
        return self.prompt + self.tokens + 1


@dataclass(frozen=True, slots=True)
class RoomParts:
    """Milliseconds of a token, means that add up to :attr:`token`."""

    token: float
    host_layers: float
    """On the device, as the next two: with copies in and out, look-up or widening, packing."""
    worker_layers: float
    head: float
    """And the best logits."""
    launches_and_readback: float
    """Of all three: the calls, less what the devices needed."""
    wire: float
    """There and back: a lap, less the time from arrival to return at the worker."""
    loops: float
    """Threads woken, sampling, frames handed on, in both processes."""


@dataclass(slots=True)
class _Chain(WorkerChain):
    """The chain, with what each lap took."""

    laps_s: list[float] = field(default_factory=list)

    def lap(self, frame: Frame, kind: Any, *, is_barrier: bool = False) -> asyncio.Future[bytes]:
        started = time.perf_counter()
        returned = WorkerChain.lap(self, frame, kind, is_barrier=is_barrier)
        returned.add_done_callback(lambda _: self.laps_s.append(time.perf_counter() - started))
        return returned


@dataclass(slots=True)
class _Host:
    """The host's side of the link."""

    chain: _Chain

    def link_opened(self, link: Link) -> None:
        link.admit()

    def frame(self, link: Link, frame: Frame) -> None:
        self.chain.take(link.peer_id, frame)

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        """Nothing is said here."""

    def link_closed(self, link: Link, reason: str) -> None:
        """The lap in flight will time out and say so."""

    def signaling_changed(self, *, connected: bool) -> None:
        """It is not needed any more."""


def parse_devices(text: str) -> tuple[str, str]:
    """``cuda:0,cuda:1``. Raises :class:`CommandFailed`."""
    host, comma, worker = text.partition(",")
    if not (host and comma and worker) or "," in worker:
        raise CommandFailed(f"--room wants two devices, such as cuda:0,cuda:1, not {text!r}.")
    return host.strip(), worker.strip()


async def bench_room(bench: RoomBench, *, as_json: bool) -> int:
    """Measure one device with all layers, then two; print both and where the time goes."""
    shape = find_shape(bench.shape)
    alone_s = await _alone(bench, shape)
    parts = await _room(bench, shape)
    figures = {
        "alone_tokens_per_s": 1 / alone_s,
        "room_tokens_per_s": 1e3 / parts.token,
        "share": alone_s * 1e3 / parts.token,
        "parts_ms": asdict(parts),
    }
    if as_json:
        print(json.dumps(figures))
    else:
        _show(bench, alone_s, parts)
    return 0


def _show(bench: RoomBench, alone_s: float, parts: RoomParts) -> None:
    print(f"{bench.shape}, {', '.join(bench.devices)}, {bench.engine}, {bench.tokens} tokens")
    print(f"  one device   {1 / alone_s:8.1f} tokens/s  {alone_s * 1e3:.3f} ms a token")
    share = alone_s * 1e3 / parts.token
    print(f"  two devices  {1e3 / parts.token:8.1f} tokens/s  {parts.token:.3f} ms ({share:.0%})")
    for name, part_ms in asdict(parts).items():
        if name != "token":
            print(f"    {name.replace('_', ' '):24}{part_ms:8.3f} ms")


async def _alone(bench: RoomBench, shape: Shape) -> float:
    """Seconds of a token on the host's device with every layer, in the same loop."""
    chain = _Chain(lambda _: None, lambda _: None, str)
    async with _host_shard(bench, shape, (0, shape.layers)) as (shard, compute):
        times = [await _token_s(bench, shard, compute, chain) for _ in range(bench.repeats + 1)]
    return statistics.median(times[1:])


async def _room(bench: RoomBench, shape: Shape) -> RoomParts:
    half = shape.layers // 2
    async with (
        _worker(bench, (half, shape.layers)) as worker,
        _host_shard(bench, shape, (0, half)) as (shard, compute),
        _linked(bench, worker.url) as chain,
    ):
        runs = []
        for _ in range(bench.repeats + 1):  # the first one warms up
            compute.calls.clear()
            chain.laps_s.clear()
            token_s = await _token_s(bench, shard, compute, chain)
            runs.append((token_s, list(compute.calls), list(chain.laps_s)))
        frames = await worker.end()
    count = bench.tokens - 1
    each = len(frames) // len(runs)
    measured = [
        _parts(token_s, calls[-2 * count :], laps[-count:], frames[: each * (n + 1)][-count:])
        for n, (token_s, calls, laps) in enumerate(runs)
    ]
    return sorted(measured[1:], key=lambda parts: parts.token)[len(measured[1:]) // 2]


def _parts(token_s: float, calls: list[Any], laps: list[float], frames: list[Any]) -> RoomParts:
    """The parts of one answer's tokens."""
    layers = [call for call in calls if call.step == "layers"]
    heads = [call for call in calls if call.step == "head"]
    host_call_s = statistics.fmean(call.call_s for call in layers)
    host_s = statistics.fmean(call.device_s for call in layers)
    head_call_s = statistics.fmean(call.call_s for call in heads)
    head_s = statistics.fmean(call.device_s for call in heads)
    lap_s = statistics.fmean(laps)
    span_s, worker_call_s, worker_s = map(statistics.fmean, zip(*frames, strict=True))
    loops_s = (token_s - host_call_s - head_call_s - lap_s) + (span_s - worker_call_s)
    calls_s = host_call_s - host_s + worker_call_s - worker_s + head_call_s - head_s
    return RoomParts(
        token=token_s * 1e3,
        host_layers=host_s * 1e3,
        worker_layers=worker_s * 1e3,
        head=head_s * 1e3,
        launches_and_readback=calls_s * 1e3,
        wire=(lap_s - span_s) * 1e3,
        loops=loops_s * 1e3,
    )


async def _token_s(
    bench: RoomBench, shard: TimedShard, compute: TimedCompute, chain: _Chain
) -> float:
    """Seconds of a token after the first, of one greedy answer."""
    shown_at: list[float] = []
    await answer(
        Trunk(shard, compute, chain),  # type: ignore[arg-type]
        GenerationRequest(
            [7 + n % 11 for n in range(bench.prompt)], bench.tokens, Sampling(), frozenset()
        ),
        draw=lambda: 0.0,
        show=lambda token: shown_at.append(time.perf_counter()),
        stopped=lambda: False,
        progress=lambda fed, total: None,
    )
    return (shown_at[-1] - shown_at[0]) / (len(shown_at) - 1)


@contextlib.asynccontextmanager
async def _host_shard(
    bench: RoomBench, shape: Shape, layers: tuple[int, int]
) -> AsyncIterator[tuple[TimedShard, TimedCompute]]:
    from poolhouse_node.cli.bench.shape_shards import make_shard
    from poolhouse_node.engine.devices import pick_device

    say(f"layers {layers[0]} to {layers[1]} on {bench.devices[0]} …")
    shard = TimedShard(
        await asyncio.to_thread(
            make_shard,
            shape,
            layers,
            pick_device(bench.devices[0]),
            quant=bench.quant,
            seed=0,
            context=bench.context,
            with_head=True,
        )
    )
    compute = TimedCompute(shard)
    try:
        yield shard, compute
    finally:
        await compute.run(shard.close)
        compute.close()


@dataclass(frozen=True, slots=True)
class _Worker:
    """The worker's process and where the control plane is."""

    process: asyncio.subprocess.Process
    url: str

    async def end(self) -> list[Any]:
        """Close its stdin; what each of its frames took."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return list(await self.hear(_LINK_S))

    async def hear(self, timeout_s: float) -> Any:
        assert self.process.stdout is not None
        async with asyncio.timeout(timeout_s):
            line = await self.process.stdout.readline()
        if not line:
            raise CommandFailed("The worker of the benchmark ended before it was asked to.")
        return json.loads(line)


@contextlib.asynccontextmanager
async def _worker(bench: RoomBench, layers: tuple[int, int]) -> AsyncIterator[_Worker]:
    async with Children() as children:
        control = await children.start("control", control_arguments())
        url = json.loads(await control.first_line(CONTROL_START_S))["signal_url"]
        say(f"layers {layers[0]} to {layers[1]} on {bench.devices[1]} …")
        where = [url, bench.engine, bench.devices[1], bench.shape, bench.quant]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "poolhouse_node.cli.bench.room_child", *where),
            *map(str, (*layers, bench.context)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        worker = _Worker(process, url)
        try:
            await worker.hear(_START_S)
            yield worker
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


@contextlib.asynccontextmanager
async def _linked(bench: RoomBench, url: str) -> AsyncIterator[_Chain]:
    """A chain of the one worker, over a link with its stripes."""
    from poolhouse_node.rtc.open import open_network

    network = await open_network([url], engine=bench.engine)
    network.mesh.key = ""
    chain = _Chain(network.links.get, lambda _: None, str)
    network.listen(_Host(chain))
    try:
        link = await network.dial(WORKER_ID, timeout_s=_LINK_S)
        async with asyncio.timeout(_LINK_S):
            while link.stripes < _STRIPES:  # noqa: ASYNC110 - a link does not announce them
                await asyncio.sleep(0.05)
        chain.deal([link.peer_id])
        yield chain
    finally:
        await network.close()
