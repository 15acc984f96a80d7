"""Where the time of a token goes in a room: clocks around the shard and the compute thread."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolhouse_node.device.compute import ComputeThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.engine.torch_shard import TorchShard

__all__ = ["CallTimes", "TimedCompute", "TimedShard"]


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One call on the compute thread."""

    call_s: float
    device_s: float | None
    """Of the layers, by the device's own clock; ``None`` when none were run."""


class TimedShard:
    """A shard whose layers are timed on the device. Everything else is the shard's."""

    def __init__(self, shard: TorchShard) -> None:
        self._shard = shard
        self._events: Any = None
        self._run_s: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    def run(self, hidden: Any, position: int, *, snapshots: bool = False) -> Any:
        """As the shard does."""
        started = time.perf_counter()
        self._mark(0)
        result = self._shard.run(hidden, position, snapshots=snapshots)
        self._mark(1)
        self._run_s = time.perf_counter() - started
        return result

    def take_device_s(self) -> float | None:
        """Of the layers since the last call, if they ran; what they gave was waited for."""
        run_s, self._run_s = self._run_s, None
        if run_s is None or self._events is None:
            return run_s
        start, end = self._events
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def _mark(self, which: int) -> None:
        import torch

        if self._shard.device.type != "cuda":
            return
        with torch.cuda.device(self._shard.device):
            self._events = self._events or [torch.cuda.Event(enable_timing=True) for _ in "12"]
            self._events[which].record()


class TimedCompute(ComputeThread):
    """The compute thread, with what each call took on it."""

    def __init__(self, shard: TimedShard) -> None:
        super().__init__()
        self._shard = shard
        self.calls: list[CallTimes] = []

    async def run[T](self, call: Callable[[], T]) -> T:
        def timed() -> T:
            started = time.perf_counter()
            result = call()
            taken_s = time.perf_counter() - started
            self.calls.append(CallTimes(taken_s, self._shard.take_device_s()))
            return result

        return await super().run(timed)
