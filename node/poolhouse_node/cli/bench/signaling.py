"""``poolhouse bench signaling``: what a socket and a relayed message cost the control plane."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.cli.bench.signaling_crowd import open_crowd
from poolhouse_node.cli.bench.signaling_phases import relay_at_rate, relay_flat_out, settle
from poolhouse_node.cli.bench.signaling_servers import (
    address_of,
    allow_sockets,
    needs_linux,
    npm_peer,
    own_control,
    running_server,
)
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.machine import usable_cores
from poolhouse_node.cli.running import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from poolhouse_node.cli.bench.signaling_crowd import Crowd
    from poolhouse_node.cli.bench.signaling_phases import Relayed
    from poolhouse_node.cli.bench.signaling_servers import Server

__all__ = ["Figures", "SignalingBench", "bench_signaling"]

WARM_UP_SOCKETS = 64
SETTLE_S = 0.5
LAG_MS_MAX = 2.0
"""At the 99th percentile. Above, the generator waited for the machine, and its latencies say
more about that than about the server."""
TRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class SignalingBench:
    """What is measured."""

    sockets: int = 2000
    messages: int = 60_000
    """Flat out, in all rounds together."""
    rate_per_s: int = 1000
    seconds: float = 15.0
    """At the fixed rate, in all rounds together."""
    message_bytes: int = 1200
    rounds: int = 3
    against: str | None = None
    """``npm`` or the URL of a running PeerServer."""
    against_pid: int | None = None
    replicas: int = 1
    """Above 1, so many replicas over Redis are measured beside one: every message crosses."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one server was measured to do."""

    server: str
    opened_per_s: float
    cpu_us_per_opening: float
    kb_per_socket: float
    """Of 1024 bytes."""
    relayed_per_s: float
    cpu_us_flat_out: float
    """CPU time of the server per message, as fast as it goes."""
    cpu_us_at_rate: float
    lost: int
    damaged: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    lag_p99_ms: float
    """Of the generator."""
    latency_counts: bool
    """Whether every round had a try in which the generator kept its time."""
    repeated: int
    """Tries that did not count."""


@dataclass(slots=True)
class _Subject:
    """A server with the sockets that were opened to it and what was seen so far."""

    server: Server
    crowd: Crowd
    opened_per_s: float
    cpu_us_per_opening: float
    kb_per_socket: float
    flat_out: list[tuple[float, float]] = field(default_factory=list)
    """Messages a second and CPU microseconds a message, by round."""
    at_rate_cpu_us: list[float] = field(default_factory=list)
    latencies_ns: list[int] = field(default_factory=list)
    lags_ns: list[int] = field(default_factory=list)
    lost: int = 0
    repeated: int = 0
    latency_counts: bool = True


async def bench_signaling(bench: SignalingBench, *, as_json: bool) -> int:
    """Measure the servers in turns; print their figures and the ratios between them."""
    needs_linux()
    makers = [own_control(), *_against(bench)]
    if bench.replicas > 1:
        makers.insert(0, own_control(bench.replicas))
    allow_sockets(bench.sockets * len(makers))
    async with contextlib.AsyncExitStack() as stack:
        subjects = [await _open(bench, maker, stack) for maker in makers]
        for number in range(bench.rounds):
            for subject in subjects:
                say(f"round {number + 1} of {bench.rounds}: {subject.server.name} …")
                await _round(bench, subject, subjects)
    figures = [_figures(subject) for subject in subjects]
    if as_json:
        print(json.dumps({"bench": asdict(bench), "servers": [asdict(f) for f in figures]}))
    else:
        _show(bench, figures)
    return 0


def _against(bench: SignalingBench) -> list[AbstractAsyncContextManager[Server]]:
    if bench.against is None:
        return []
    if bench.against == "npm":
        return [npm_peer()]
    address_of(bench.against)  # refuse before anything is started
    return [running_server(bench.against, bench.against_pid)]


async def _open(
    bench: SignalingBench,
    maker: AbstractAsyncContextManager[Server],
    stack: contextlib.AsyncExitStack,
) -> _Subject:
    server = await stack.enter_async_context(maker)
    say(f"opening {bench.sockets} sockets to {server.name} …")
    warm_up = await open_crowd(server.addresses, WARM_UP_SOCKETS, bench.message_bytes, "warm")
    await settle(warm_up)
    warm_up.close()
    await asyncio.sleep(SETTLE_S)
    memory_kb, cpu_s, started = server.resident_kb(), server.cpu_s(), time.perf_counter()
    crowd = await open_crowd(server.addresses, bench.sockets, bench.message_bytes)
    stack.callback(crowd.close)
    seconds, cpu_s = time.perf_counter() - started, server.cpu_s() - cpu_s
    await asyncio.sleep(SETTLE_S)
    return _Subject(
        server,
        crowd,
        bench.sockets / seconds,
        cpu_s / bench.sockets * 1e6,
        (server.resident_kb() - memory_kb) / bench.sockets,
    )


async def _round(bench: SignalingBench, subject: _Subject, subjects: Sequence[_Subject]) -> None:
    for other in subjects:  # whoever is silent for long is cut, also while it is not its turn
        other.lost += await settle(other.crowd)
    before_s = subject.server.cpu_s()
    relayed = await relay_flat_out(subject.crowd, max(1, bench.messages // bench.rounds))
    cpu_us = (subject.server.cpu_s() - before_s) / relayed.messages * 1e6
    subject.flat_out.append((relayed.messages / relayed.seconds, cpu_us))
    subject.lost += relayed.lost
    await _round_at_rate(bench, subject)


async def _round_at_rate(bench: SignalingBench, subject: _Subject) -> None:
    messages = max(2, int(bench.rate_per_s * bench.seconds / bench.rounds))
    for tries_left in reversed(range(TRIES_MAX)):
        before_s = subject.server.cpu_s()
        relayed = await relay_at_rate(subject.crowd, bench.rate_per_s, messages)
        cpu_us = (subject.server.cpu_s() - before_s) / messages * 1e6
        subject.lost += relayed.lost
        kept_time = _percentile_ms(relayed.lags_ns, 99) <= LAG_MS_MAX
        if kept_time or not tries_left:
            subject.latency_counts &= kept_time
            _keep(subject, relayed, cpu_us)
            return
        subject.repeated += 1
        lag_ms = _percentile_ms(relayed.lags_ns, 99)
        say(f"the generator lagged {lag_ms:.1f} ms at p99: once more …")


def _keep(subject: _Subject, relayed: Relayed, cpu_us: float) -> None:
    subject.at_rate_cpu_us.append(cpu_us)
    subject.latencies_ns += relayed.latencies_ns
    subject.lags_ns += relayed.lags_ns


def _percentile_ms(values_ns: Sequence[int], percent: int) -> float:
    if len(values_ns) < 2:
        raise CommandFailed("Hardly a message arrived: there is nothing to tell.")
    return statistics.quantiles(values_ns, n=100)[percent - 1] / 1e6


def _figures(subject: _Subject) -> Figures:
    rates, cpu_us = zip(*subject.flat_out, strict=True)
    p50, p95, p99 = (round(_percentile_ms(subject.latencies_ns, p), 2) for p in (50, 95, 99))
    return Figures(
        subject.server.name,
        round(subject.opened_per_s),
        round(subject.cpu_us_per_opening),
        round(subject.kb_per_socket, 1),
        round(statistics.median(rates)),
        round(statistics.median(cpu_us), 1),
        round(statistics.median(subject.at_rate_cpu_us), 1),
        subject.lost,
        subject.crowd.damaged,
        p50,
        p95,
        p99,
        round(_percentile_ms(subject.lags_ns, 99), 2),
        subject.latency_counts,
        subject.repeated,
    )


ROWS = (
    ("sockets opened per second", "opened_per_s", ".0f"),
    ("CPU per opened socket, us", "cpu_us_per_opening", ".0f"),
    ("memory per idle socket, KB", "kb_per_socket", ".1f"),
    ("messages relayed per second", "relayed_per_s", ".0f"),
    ("CPU per message, flat out, us", "cpu_us_flat_out", ".1f"),
    ("CPU per message, at rate, us", "cpu_us_at_rate", ".1f"),
    ("messages lost", "lost", "d"),
    ("messages damaged or misplaced", "damaged", "d"),
    ("latency at rate, p50 ms", "p50_ms", ".2f"),
    ("latency at rate, p95 ms", "p95_ms", ".2f"),
    ("latency at rate, p99 ms", "p99_ms", ".2f"),
    ("lag of the generator, p99 ms", "lag_p99_ms", ".2f"),
)
NO_RATIO = {"lost", "damaged", "lag_p99_ms"}


def _show(bench: SignalingBench, figures: Sequence[Figures]) -> None:
    print(
        f"{bench.sockets} sockets, messages of {bench.message_bytes} bytes, "
        f"rate {bench.rate_per_s}/s, {bench.rounds} rounds in turns, {usable_cores()} cores"
    )
    first = figures[0]
    print(f"{'':32}" + "".join(f"{f.server[:20]:>21}{_head(f, first):>9}" for f in figures))
    for label, name, style in ROWS:
        cells = (
            f"{getattr(figure, name):>21{style}}{_ratio(first, figure, name):>9}"
            for figure in figures
        )
        print(f"{label:32}" + "".join(cells))
    for figure in figures:
        _show_reservations(figure)


def _head(figure: Figures, first: Figures) -> str:
    return "" if figure is first else "ratio"


def _ratio(first: Figures, other: Figures, name: str) -> str:
    """Of the first server's figure to another one's."""
    if other is first or name in NO_RATIO or not getattr(other, name):
        return ""
    return f"{getattr(first, name) / getattr(other, name):.2f}"


def _show_reservations(figure: Figures) -> None:
    if figure.repeated:
        print(
            f"{figure.server}: {figure.repeated} tries at the fixed rate were repeated: the "
            f"generator lagged above {LAG_MS_MAX:.0f} ms at p99."
        )
    if not figure.latency_counts:
        print(f"{figure.server}: its latency does not count: the machine was too busy.")
