"""The phases of a signaling load: as fast as it goes, and at a fixed rate."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poolhouse_node.cli.bench.signaling_crowd import Crowd

__all__ = ["IN_FLIGHT", "Relayed", "relay_at_rate", "relay_flat_out", "settle"]

IN_FLIGHT = 128
"""Messages that are under way at a time when going flat out."""
STALL_S = 3.0
"""Without any message for so long, what is missing is lost."""
TICK_S = 0.001
"""The finest timer of the loop. All that is due goes out at a tick."""


@dataclass(frozen=True, slots=True)
class Relayed:
    """What one phase saw."""

    messages: int
    lost: int
    seconds: float
    latencies_ns: list[int]
    lags_ns: list[int]
    """How late each message of a fixed rate was sent: the generator's own doing."""


class _Count:
    """Counts arrivals down and keeps their latencies."""

    def __init__(self, total: int) -> None:
        self.left = total
        self.done = asyncio.Event()
        self.latencies_ns: list[int] = []

    def hear(self, latency_ns: int) -> None:
        self.latencies_ns.append(latency_ns)
        self.left -= 1
        if not self.left:
            self.done.set()

    async def all_in(self) -> None:
        """Wait for the last one, or until nothing comes any more."""
        while True:
            before = self.left
            try:
                await asyncio.wait_for(self.done.wait(), STALL_S)
            except TimeoutError:
                if self.left < before:
                    continue
            return


async def settle(crowd: Crowd) -> int:
    """A heartbeat and a message through every socket, so that nothing is left to do.

    Returns the messages that were lost on the way.
    """
    crowd.beat()
    return (await relay_flat_out(crowd, len(crowd.peers))).lost


async def relay_flat_out(crowd: Crowd, messages: int) -> Relayed:
    """Keep :data:`IN_FLIGHT` messages under way, one socket after the other."""
    senders = itertools.islice(itertools.cycle(crowd.peers), messages)
    count = _Count(messages)

    def hear(latency_ns: int) -> None:
        count.hear(latency_ns)
        sender = next(senders, None)
        if sender is not None:
            sender.send()

    crowd.hear = hear
    with _undisturbed():
        started = time.perf_counter()
        for sender in list(itertools.islice(senders, IN_FLIGHT)):
            sender.send()
        await count.all_in()
        seconds = time.perf_counter() - started
    # A lost message leaves fewer under way; what was never sent is not lost.
    sent = messages - sum(1 for _ in senders)
    return Relayed(sent, sent - (messages - count.left), seconds, count.latencies_ns, [])


async def relay_at_rate(crowd: Crowd, per_s: int, messages: int) -> Relayed:
    """Send at a fixed rate, whether or not earlier messages have arrived."""
    senders = itertools.cycle(crowd.peers)
    count = _Count(messages)
    crowd.hear = count.hear
    lags_ns: list[int] = []
    with _undisturbed():
        started_ns = time.monotonic_ns()
        while len(lags_ns) < messages:
            lag_ns = time.monotonic_ns() - started_ns - len(lags_ns) * 1_000_000_000 // per_s
            if lag_ns < 0:
                await asyncio.sleep(TICK_S)
                continue
            next(senders).send()
            lags_ns.append(lag_ns)
        await count.all_in()
        seconds = (time.monotonic_ns() - started_ns) / 1e9
    return Relayed(messages, count.left, seconds, count.latencies_ns, lags_ns)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No garbage collection of ours in between: it would look like the server's latency."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
