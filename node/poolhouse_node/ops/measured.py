"""A model part that counts and times what it is asked to do."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolhouse_node.ops.metrics import EngineError, StepKind
from poolhouse_node.ops.readings import EngineMemory
from poolhouse_node.shard import OutOfMemory, ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from poolhouse_node.ops.metrics import NodeMetrics
    from poolhouse_node.shard import Packed, Shard, TopLogits

__all__ = ["MeasuredShard", "memory_of"]

_BYTES_PER_VALUE = 2


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shard, name)

    def forward_ids(self, ids: Sequence[int], position: int) -> Packed:
        with self._step(_kind(len(ids)), len(ids)) as step:
            return step.packed(self._shard.forward_ids(ids, position))

    def forward_bytes(
        self, data: bytes, columns: int, position: int, *, snapshots: bool = False
    ) -> Packed:
        is_whole = len(data) == _BYTES_PER_VALUE * columns * self._shard.width
        wrong = EngineError.OTHER if is_whole else EngineError.SHAPE
        with self._step(_kind(columns, snapshots=snapshots), columns, wrong) as step:
            return step.packed(
                self._shard.forward_bytes(data, columns, position, snapshots=snapshots)
            )

    def top_of_bytes(self, data: bytes, k: int) -> TopLogits:
        with self._step(StepKind.HEAD, 0) as step:
            return step.top(self._shard.top_of_bytes(data, k))

    def top_of_ids(self, ids: Sequence[int], position: int, k: int) -> TopLogits:
        with self._step(_kind(len(ids)), len(ids)) as step:
            return step.top(self._shard.top_of_ids(ids, position, k))

    def close(self) -> None:
        self._when_closed(self)
        self._shard.close()

    @contextlib.contextmanager
    def _step(
        self, kind: StepKind, columns: int, wrong: EngineError = EngineError.OTHER
    ) -> Iterator[_Step]:
        """``columns`` through the layers. What fails is counted as ``wrong``, or as no memory."""
        metrics, step, began_at = self._metrics, _Step(), self._clock()
        try:
            yield step
        except OutOfMemory:
            metrics.engine_errors[EngineError.OOM].inc()
            raise
        except ShardError:
            metrics.engine_errors[wrong].inc()
            raise
        metrics.step_s[kind].observe(self._clock() - began_at)
        if columns:
            metrics.engine_tokens[kind].inc(columns)
        if not step.is_finite:
            metrics.engine_errors[EngineError.NONFINITE].inc()


@dataclass(slots=True)
class _Step:
    """What came of a step."""

    is_finite: bool = True

    def packed(self, packed: Packed) -> Packed:
        self.is_finite = packed.sendable
        return packed

    def top(self, top: TopLogits) -> TopLogits:
        self.is_finite = top.finite
        return top


def memory_of(shards: Iterable[Shard]) -> EngineMemory:
    """What these shards hold. What several rooms share counts once."""
    parts = {id(holding.part): holding for holding in (shard.holding for shard in shards)}
    return EngineMemory(
        sum(each.weights_bytes for each in parts.values()),
        sum(each.state_bytes for each in parts.values()),
    )


def _kind(columns: int, *, snapshots: bool = False) -> StepKind:
    if snapshots:
        return StepKind.VERIFY
    return StepKind.DECODE if columns == 1 else StepKind.PREFILL
