"""``poolhouse bench decode --against``: both precisions beside other programs, in turns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from poolhouse_node.cli.bench.contestant import KINDS
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.machine import fair_threads, free_cores, usable_cores
from poolhouse_node.cli.pulling import pull_with_progress
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.generate.tokenizer import Tokenizer
from poolhouse_node.weights.opening import open_weights

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["AgainstBench", "bench_against"]

OURS = ("exact", "packed")
LONG_PROMPT = 1000
OPENING_S = 120.0
TURN_S = 300.0
TEXT = "A pool is kept clean by a pump, a filter and a little chlorine, measured every morning. "


@dataclass(frozen=True, slots=True)
class AgainstBench:
    """What is measured."""

    model: str
    peers: tuple[str, ...]
    tokens: int = 64
    repeats: int = 3
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class PeerFigure:
    """Medians of one program after one prompt. Ratios are ours to each peer's, ``None`` for it."""

    program: str
    prompt_tokens: int
    ttft_s: float
    tokens_per_s: float
    best_tokens_per_s: float
    decode_ratios: dict[str, float]
    """Of tokens per second, by peer: more is better."""
    ttft_ratios: dict[str, float]
    """Of times to the first token, by peer: less is better."""


class Contestant:
    """A process that measures itself."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, kind: str, file: Path, threads: int) -> Contestant:
        """Raises :class:`CommandFailed` when it does not get so far as to open the model."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "poolhouse_node.cli.bench.contestant"),
            *(kind, str(file), str(threads)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        contestant = cls(process)
        try:
            await contestant._line(OPENING_S)
        except (CommandFailed, TimeoutError):
            await contestant.end()
            raise CommandFailed(
                f"{kind} does not open the model here: is its package installed?"
            ) from None
        return contestant

    async def measure(self, ids: list[int], tokens: int) -> tuple[float, float]:
        """Time to the first token and tokens per second."""
        if self._process.stdin is None:
            raise CommandFailed("A program ended.")
        self._process.stdin.write(json.dumps({"ids": ids, "tokens": tokens}).encode() + b"\n")
        figures = json.loads(await self._line(TURN_S))
        return figures["ttft_s"], figures["tokens_per_s"]

    async def end(self) -> None:
        """End the process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _line(self, timeout_s: float) -> bytes:
        if self._process.stdout is None:
            raise CommandFailed("A program ended.")
        line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
        if not line:
            raise CommandFailed("A program ended while it was measured.")
        return line


async def bench_against(bench: AgainstBench, *, as_json: bool) -> int:
    """Measure, all programs taking turns; print figures and ratios."""
    unknown = [peer for peer in bench.peers if peer not in KINDS or peer in OURS]
    if unknown:
        raise CommandFailed(f"--against takes hf and llama.cpp, not {unknown[0]!r}.")
    view = TerminalView()
    _, file = await pull_with_progress(bench.model, view)
    prompts = _prompts(file.path)
    threads = bench.threads or fair_threads(free_cores())
    async with contextlib.AsyncExitStack() as stack:
        programs: dict[str, Contestant] = {}
        for kind in (*OURS, *bench.peers):
            view.say(f"opening: {kind} …")
            programs[kind] = await Contestant.start(kind, file.path, threads)
            stack.push_async_callback(programs[kind].end)
        measured = await _take_turns(bench, programs, prompts, view)
    figures = _figures(bench, measured)
    if as_json:
        print(json.dumps([asdict(figure) for figure in figures]))
    else:
        _show(figures, bench, threads)
    return 0


def _prompts(path: Path) -> list[list[int]]:
    """A short one and a long one."""
    with open_weights(path) as gguf:
        ids = Tokenizer.from_metadata(gguf.metadata).encode_with_specials(TEXT)
    return [(ids * (length // len(ids) + 1))[:length] for length in (36, LONG_PROMPT)]


type Measured = dict[tuple[str, int], list[tuple[float, float]]]


async def _take_turns(
    bench: AgainstBench,
    programs: dict[str, Contestant],
    prompts: list[list[int]],
    view: TerminalView,
) -> Measured:
    measured: Measured = {}
    for repeat in range(bench.repeats):
        for ids in prompts:
            view.say(f"run {repeat + 1} of {bench.repeats}: {len(ids)} tokens …")
            for kind in _rotated(list(programs), repeat):
                figures = await programs[kind].measure(ids, bench.tokens)
                measured.setdefault((kind, len(ids)), []).append(figures)
    return measured


def _rotated(kinds: list[str], by: int) -> list[str]:
    """Nobody is always first."""
    return kinds[by % len(kinds) :] + kinds[: by % len(kinds)]


def _figures(bench: AgainstBench, measured: Measured) -> list[PeerFigure]:
    ttft_s = {key: statistics.median(ttft for ttft, _ in runs) for key, runs in measured.items()}
    rates = {key: statistics.median(rate for _, rate in runs) for key, runs in measured.items()}
    figures = []
    for (kind, length), runs in sorted(measured.items(), key=lambda item: item[0][1]):
        peers = [(peer, (peer, length)) for peer in bench.peers if kind in OURS]
        key = (kind, length)
        figures.append(
            PeerFigure(
                kind,
                length,
                round(ttft_s[key], 3),
                round(rates[key], 2),
                round(max(rate for _, rate in runs), 2),
                {peer: round(rates[key] / rates[of], 2) for peer, of in peers},
                {peer: round(ttft_s[key] / ttft_s[of], 2) for peer, of in peers},
            )
        )
    return figures


def _show(figures: list[PeerFigure], bench: AgainstBench, threads: int) -> None:
    print(
        f"{bench.model}, {bench.tokens} tokens, greedy, {threads} threads of {usable_cores()} cores"
    )
    print(
        f"{'':12}{'prompt':>8}{'first token':>13}{'tokens/s':>10}{'best':>8}  decode, first token"
    )
    for figure in figures:
        ratios = "; ".join(
            f"{ratio:.2f}, {figure.ttft_ratios[peer]:.2f} x {peer}"
            for peer, ratio in figure.decode_ratios.items()
        )
        print(
            f"{figure.program:12}{figure.prompt_tokens:>8}{figure.ttft_s:>11.3f} s"
            f"{figure.tokens_per_s:>10.2f}{figure.best_tokens_per_s:>8.2f}  {ratios}"
        )
