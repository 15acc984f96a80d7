"""Where the time of a token goes in a room: clocks around the shard and the compute thread."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from poolhouse_node.device.compute import ComputeThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.engine.torch_shard import TorchShard
    from poolhouse_node.shard import Packed, TopLogits

__all__ = ["CallTimes", "TimedCompute", "TimedShard"]

type Step = Literal["layers", "head"]


@dataclass(frozen=True, slots=True)
class CallTimes:
    """One call on the compute thread."""

    step: Step | None
    """``None`` for what is neither, such as a reset."""
    call_s: float
    device_s: float
    """By the device's own clock where it runs graphs, else the call itself."""


class TimedShard:
    """A shard whose steps are timed on the device. Everything else is the shard's."""

    def __init__(self, shard: TorchShard) -> None:
        self._shard = shard
        self._step: Step | None = None
        self._began_at = 0.0
        self._graphs = shard.graphs
        if self._graphs is not None:
            self._graphs.keep_time()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    def forward_ids(self, ids: Sequence[int], position: int) -> Packed:
        """As the shard does."""
        self._begin("layers")
        return self._shard.forward_ids(ids, position)

    def forward_bytes(
        self, data: bytes, columns: int, position: int, *, snapshots: bool = False
    ) -> Packed:
        """As the shard does."""
        self._begin("layers")
        return self._shard.forward_bytes(data, columns, position, snapshots=snapshots)

    def top_of_bytes(self, data: bytes, k: int) -> TopLogits:
        """As the shard does."""
        self._begin("head")
        return self._shard.top_of_bytes(data, k)

    def take_step(self) -> tuple[Step | None, float]:
        """What ran since the last call, and seconds of the device for it."""
        step, self._step = self._step, None
        device_s = self._graphs.last_s() if step and self._graphs else None
        return step, time.perf_counter() - self._began_at if device_s is None else device_s

    def _begin(self, step: Step) -> None:
        self._step, self._began_at = step, time.perf_counter()


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
            step, device_s = self._shard.take_step()
            self.calls.append(CallTimes(step, time.perf_counter() - started, device_s))
            return result

        return await super().run(timed)
