"""A model part that counts and times what it is asked to do."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from poolhouse_node.ops.metrics import EngineError, StepKind
from poolhouse_node.ops.readings import EngineMemory
from poolhouse_node.shard import OutOfMemory, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from poolhouse_node.ops.metrics import NodeMetrics
    from poolhouse_node.shard import Hidden, Packed, Shard, TopLogits

__all__ = ["MeasuredShard", "memory_of"]


class MeasuredShard:
    """A :class:`~poolhouse_node.shard.Shard`: all but what is measured is the other one's own.

    A step is timed from its bytes or tokens to its bytes or logits, which is where an engine that
    computes elsewhere is waited for.
    """

    def __init__(
        self,
        shard: Shard,
        metrics: NodeMetrics,
        *,
        clock: Callable[[], float] = time.perf_counter,
        when_closed: Callable[[MeasuredShard], None] = lambda shard: None,
    ) -> None:
        self._shard, self._metrics, self._clock = shard, metrics, clock
        self._when_closed = when_closed
        self._began_at = 0.0
        self._kind = StepKind.HEAD

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    def embed(self, ids: Sequence[int]) -> Hidden:
        self._begin()
        with self._failing():
            return self._shard.embed(ids)

    def unpack(self, data: bytes, columns: int) -> Hidden:
        self._begin()
        with self._failing(EngineError.SHAPE):
            return self._shard.unpack(data, columns)

    def run(self, hidden: Hidden, position: int, *, snapshots: bool = False) -> Hidden:
        columns = len(hidden)
        self._kind = _kind(columns, snapshots=snapshots)
        with self._failing():
            result = self._shard.run(hidden, position, snapshots=snapshots)
        self._metrics.engine_tokens[self._kind].inc(columns)
        return result

    def pack(self, hidden: Hidden) -> Packed:
        with self._failing():
            packed = self._shard.pack(hidden)
        self._end(is_finite=packed.sendable)
        return packed

    def head(self, hidden: Hidden, k: int) -> TopLogits:
        with self._failing():
            top = self._shard.head(hidden, k)
        self._end(is_finite=top.finite)
        return top

    def close(self) -> None:
        self._when_closed(self)
        self._shard.close()

    def _begin(self) -> None:
        self._began_at, self._kind = self._clock(), StepKind.HEAD

    def _end(self, *, is_finite: bool) -> None:
        self._metrics.step_s[self._kind].observe(self._clock() - self._began_at)
        if not is_finite:
            self._metrics.engine_errors[EngineError.NONFINITE].inc()

    @contextlib.contextmanager
    def _failing(self, kind: EngineError = EngineError.OTHER) -> Iterator[None]:
        try:
            yield
        except OutOfMemory:
            self._metrics.engine_errors[EngineError.OOM].inc()
            raise
        except ShardError:
            self._metrics.engine_errors[kind].inc()
            raise


def memory_of(shards: Iterable[Shard]) -> EngineMemory:
    """What these shards hold. What several rooms share counts once."""
    parts = {id(holding.part): holding for holding in (shard.holding for shard in shards)}
    return EngineMemory(
        sum(each.weights_bytes for each in parts.values()),
        sum(each.state_bytes for each in parts.values()),
    )


def _kind(columns: int, *, snapshots: bool) -> StepKind:
    if snapshots:
        return StepKind.VERIFY
    return StepKind.DECODE if columns == 1 else StepKind.PREFILL
