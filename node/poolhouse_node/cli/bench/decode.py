"""``poolhouse bench decode``: tokens per second of rooms beside one process without links."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.loading import EngineLoader, open_model
from poolhouse_node.cli.machine import fair_threads, free_cores, usable_cores
from poolhouse_node.cli.pulling import pull_with_progress
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device.compute import ComputeThread
from poolhouse_node.generate.decode import GenerationRequest, answer
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.generate.trunk import Trunk

if TYPE_CHECKING:
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.shard import Shard

__all__ = ["DecodeBench", "bench_decode"]

PROMPT = (
    "<|im_start|>user\nExplain in a few sentences how a swimming pool is kept clean.<|im_end|>\n"
    "<|im_start|>assistant\n"
)
ROOM_S = 180.0


@dataclass(frozen=True, slots=True)
class DecodeBench:
    """What is measured."""

    model: str
    rtc: str
    device: str
    devices: tuple[int, ...] = (1, 2, 3)
    tokens: int = 64
    repeats: int = 3
    threads: int | None = None
    precision: str = "auto"


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians of one arrangement."""

    arrangement: str
    tokens_per_s: float
    ttft_s: float
    ratio: float
    """Of its tokens per second to those of one process without links."""


class _NoChain:
    """The chain of a process that holds every layer."""

    is_empty = True

    def lap(
        self, frame: object, kind: object, *, is_barrier: bool = False
    ) -> asyncio.Future[bytes]:
        raise CommandFailed("There is no chain.")


async def bench_decode(bench: DecodeBench, *, as_json: bool) -> int:
    """Measure, the arrangements taking turns; print the figures with their ratios."""
    view = TerminalView()
    await pull_with_progress(bench.model, view)
    rates: dict[int, list[tuple[float, float]]] = {0: [], **{n: [] for n in bench.devices}}
    for repeat in range(bench.repeats):
        for devices, measured in rates.items():
            view.say(f"run {repeat + 1} of {bench.repeats}: {_name(devices)} …")
            measured.append(
                await _in_process(bench) if devices == 0 else await _room(bench, devices)
            )
    figures = _figures(rates)
    if as_json:
        print(json.dumps([asdict(figure) for figure in figures]))
    else:
        _show(figures, bench)
    return 0


def _name(devices: int) -> str:
    return f"room of {devices}" if devices else "one process, no links"


def _figures(rates: dict[int, list[tuple[float, float]]]) -> list[Figure]:
    medians = {
        devices: tuple(statistics.median(column) for column in zip(*measured, strict=True))
        for devices, measured in rates.items()
    }
    base = medians[0][0]
    return [
        Figure(_name(devices), round(rate, 2), round(ttft_s, 3), round(rate / base, 2))
        for devices, (rate, ttft_s) in medians.items()
    ]


def _show(figures: list[Figure], bench: DecodeBench) -> None:
    print(f"{bench.model}, {bench.tokens} tokens, greedy, {bench.rtc}, {usable_cores()} cores")
    print(f"{'':24}{'tokens/s':>10}{'first token':>13}{'ratio':>8}")
    for figure in figures:
        print(
            f"{figure.arrangement:24}{figure.tokens_per_s:>10.2f}"
            f"{figure.ttft_s:>11.3f} s{figure.ratio:>8.2f}"
        )


async def _room(bench: DecodeBench, devices: int) -> tuple[float, float]:
    """Tokens per second and time to the first one, of a room of processes."""
    with tempfile.TemporaryDirectory() as folder:
        prompt = Path(folder) / "prompt.txt"
        await asyncio.to_thread(prompt.write_text, PROMPT, encoding="utf-8")
        arguments = [
            *("up", "--devices", str(devices), "--raw", str(prompt), "--json"),
            *("--max-tokens", str(bench.tokens), "--model", bench.model, "--rtc", bench.rtc),
            *("--device", bench.device, "--precision", bench.precision),
            *(("--threads", str(bench.threads)) if bench.threads else ()),
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "poolhouse_node", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(os.environ),
        )
        stdout, stderr = await asyncio.wait_for(process.communicate(), ROOM_S)
    if process.returncode:
        raise CommandFailed(f"A room of {devices} failed: {stderr.decode().strip()[-400:]}")
    line = json.loads(stdout.decode().splitlines()[-1])
    return line["tokens_per_s"], line["ttft_s"]


async def _in_process(bench: DecodeBench) -> tuple[float, float]:
    """The same in this process: the engine and the loop, no room around them."""
    store, file = await pull_with_progress(bench.model, TerminalView(quiet=True))
    threads = bench.threads or fair_threads(free_cores())
    loader = EngineLoader(store, bench.device, threads, file, bench.precision)
    model = open_model(file, None, loader)
    shard = await loader.load(
        model.key,
        (0, model.needs.layers),
        context_size=model.context_size,
        host=True,
        progress=lambda share: None,
    )
    compute = ComputeThread()
    try:
        return await _measure(model, shard, compute, bench.tokens)
    finally:
        await compute.run(shard.close)
        compute.close()


async def _measure(
    model: RoomModel, shard: Shard, compute: ComputeThread, tokens: int
) -> tuple[float, float]:
    shown_at: list[float] = []
    started = time.perf_counter()
    await answer(
        Trunk(shard, compute, _NoChain()),
        GenerationRequest(
            model.tokenizer.encode_with_specials(PROMPT),
            tokens,
            Sampling(),
            model.tokenizer.end_ids,
        ),
        draw=lambda: 0.0,
        show=lambda token: shown_at.append(time.perf_counter()),
        stopped=lambda: False,
        progress=lambda fed, total: None,
    )
    rate = (len(shown_at) - 1) / (shown_at[-1] - shown_at[0])
    return rate, shown_at[0] - started
