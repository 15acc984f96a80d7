"""The worker of ``bench decode --shape --room``: a process with the second half of the layers.

Started as ``python -m poolhouse_node.cli.bench.room_child URL ENGINE DEVICE SHAPE QUANT LO HI
CONTEXT``. It says ``ready``, runs frames until its stdin ends, and says what each took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.bench.room_parts import TimedCompute, TimedShard
from poolhouse_node.cli.bench.shapes import find_shape
from poolhouse_node.cli.running import run
from poolhouse_node.device.layers import FrameRunner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.rtc.link import Link
    from poolhouse_node.rtc.peer import Engine
    from poolhouse_node.wire.slices import Frame

__all__ = ["WORKER_ID"]

WORKER_ID = "bench-room-worker"


def main() -> None:
    """Work until stdin ends."""
    url, engine, device, shape, quant, lo, hi, context = sys.argv[1:]
    part = _Part(device, shape, quant, (int(lo), int(hi)), int(context))
    match engine:
        case "libdatachannel" | "aiortc" as known:
            run(_work(url, known, part))
        case _:
            sys.exit(2)


@dataclass(frozen=True, slots=True)
class _Part:
    """What the worker holds."""

    device: str
    shape: str
    quant: str
    layers: tuple[int, int]
    context: int


@dataclass(slots=True)
class _Worker:
    """A device that runs its layers and sends frames back to who dialed."""

    shard: TimedShard
    compute: TimedCompute
    link: Link | None = None
    arrived_at: float = 0.0
    spans_s: list[float] = field(default_factory=list)
    """From a frame's arrival to its return."""

    def runner(self) -> FrameRunner:
        return FrameRunner(
            self.shard,  # type: ignore[arg-type]
            self.compute,
            self._send,
            lambda sentence: print(sentence, file=sys.stderr),
            lambda: True,
        )

    def _send(self, frame: Frame) -> None:
        if self.link is not None:
            self.link.send_frame(frame)
        self.spans_s.append(time.perf_counter() - self.arrived_at)


@dataclass(frozen=True, slots=True)
class _Events:
    worker: _Worker
    runner: FrameRunner

    def link_opened(self, link: Link) -> None:
        self.worker.link = link
        link.admit()

    def frame(self, link: Link, frame: Frame) -> None:
        self.worker.arrived_at = time.perf_counter()
        self.runner.put(frame)

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        """Nothing is said here."""

    def link_closed(self, link: Link, reason: str) -> None:
        """The benchmark is over."""

    def signaling_changed(self, *, connected: bool) -> None:
        """It is not needed any more."""


async def _work(url: str, engine: Engine, part: _Part) -> None:
    from poolhouse_node.cli.bench.shape_shards import make_shard
    from poolhouse_node.engine.devices import pick_device
    from poolhouse_node.rtc.open import open_network

    shard = TimedShard(
        make_shard(
            find_shape(part.shape),
            part.layers,
            pick_device(part.device),
            quant=part.quant,
            seed=1,
            context=part.context,
            with_head=False,
        )
    )
    worker = _Worker(shard, TimedCompute(shard))
    runner = worker.runner()
    network = await open_network([url], WORKER_ID, engine=engine)
    network.mesh.key = ""
    network.listen(_Events(worker, runner))
    running = asyncio.ensure_future(runner.work())
    print(json.dumps("ready"), flush=True)
    await _until_stdin_ends()
    running.cancel()
    frames = [
        [span_s, call.call_s, call.device_s]
        for span_s, call in zip(worker.spans_s, worker.compute.calls, strict=True)
    ]
    print(json.dumps(frames), flush=True)
    await network.close()
    worker.compute.close()


async def _until_stdin_ends() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


if __name__ == "__main__":
    main()
