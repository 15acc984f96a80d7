"""The whole model as the host sees it: its own layers, then one lap through the chain.

This is the way of one token: embed, the host's layers, pack to half floats, a frame down the
chain, the returned hidden state, the head.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.generate.prefill import ROUNDS_IN_FLIGHT, plan_rounds
from poolhouse_node.wire.slices import Control, Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from poolhouse_node.generate.ports import Chain, Compute
    from poolhouse_node.room.laps import LapKind
    from poolhouse_node.shard import Packed, Shard, TopLogits

__all__ = ["Trunk"]

_BYTES_PER_VALUE = 2
RESET = Control(reset=True)


@dataclass(slots=True)
class Trunk:
    """The host's layers and the chain behind them, and what their caches hold."""

    shard: Shard
    compute: Compute
    chain: Chain
    fed: list[int] | None = None
    """Exact ids every device's caches hold, in order; ``None`` after any failure."""
    _control: Control = field(default=Control.NONE)
    """Waits for the next frame (generation, section 10)."""
    _suspect: bool = False
    """Frames of a failed answer may still be in the chain."""
    firsts: deque[tuple[Kind, int]] = field(default_factory=lambda: deque(maxlen=3))
    """Kind and columns of the last frames that were sent at position 0."""
    _epoch: int = 0
    """Counts how often the caches were forgotten: work that began before is worth nothing."""
    _why: str = "The chain changed while the answer ran."

    @property
    def position(self) -> int:
        """Where the next column is written."""
        return len(self.fed or ())

    def forget(self, why: str | None = None) -> None:
        """What the caches hold is unknown now: the next prompt starts from nothing.

        Whatever is being computed fails with ``why``, before a frame of it is sent.
        """
        self.fed, self._why = None, why or self._why
        self._epoch += 1
        self._control = Control.NONE
        self._suspect = not self.chain.is_empty

    def follow(self, former: Trunk | None) -> None:
        """This is not the first deal: frames of the ones before may still be in the chain.

        ``former`` is the trunk until now; ``None`` when another process was the host.
        """
        self._suspect = not self.chain.is_empty
        if former is not None:
            self.firsts.extend(former.firsts)

    async def prefill(
        self,
        ids: Sequence[int],
        candidates: int,
        *,
        stopped: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> TopLogits | None:
        """Feed a prompt and return the logits after its last id; ``None`` when stopped first.

        What the caches already hold of it is reused (section 3). ``progress`` gets tokens fed and
        tokens in all. Raises :class:`LapFailed` or ``ShardError``; then :meth:`forget` was called.
        """
        try:
            await self._reuse(ids)
            if self.chain.is_empty:
                return await self._prefill_solo(ids, candidates, stopped, progress)
            return await self._prefill_chain(ids, candidates, stopped, progress)
        except BaseException:
            self.forget()
            raise

    async def step(self, token: int, candidates: int) -> TopLogits:
        """Feed one sampled token and return the logits after it. Raises as :meth:`prefill`."""
        try:
            if self.chain.is_empty:
                return await self._pass_solo([token], candidates)
            returned = await self._send([token], Kind.HIDDEN, "token")
            return await self._head(await returned, candidates)
        except BaseException:
            self.forget()
            raise

    async def _reuse(self, ids: Sequence[int]) -> None:
        """Keep what the caches hold when ``ids`` begin with it; else reset everything."""
        fed = self.fed
        if fed and len(fed) < len(ids) and list(ids[: len(fed)]) == fed:
            return
        await self._compute(self.shard.reset)
        self._control = Control.NONE if self.chain.is_empty else RESET
        self.fed = []

    async def _prefill_solo(
        self,
        ids: Sequence[int],
        candidates: int,
        stopped: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> TopLogits | None:
        top: TopLogits | None = None
        while self.position < len(ids):
            if stopped():
                return None
            # A stop is honoured between passes.
            part = ids[self.position : self.position + self.shard.prompt_columns]
            top = await self._pass_solo(part, candidates)
            progress(self.position, len(ids))
        return top

    async def _pass_solo(self, ids: Sequence[int], candidates: int) -> TopLogits:
        position, shard = len(self._fed()), self.shard

        top = await self._compute(lambda: shard.top_of_ids(ids, position, candidates))
        self._fed().extend(ids)
        return _finite(top)

    async def _prefill_chain(
        self,
        ids: Sequence[int],
        candidates: int,
        stopped: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> TopLogits | None:
        last = await self._clear_the_chain(ids) if self._suspect else b""
        in_flight: deque[Awaitable[bytes]] = deque()
        for columns in plan_rounds(len(ids) - self.position):
            if stopped():
                break
            if len(in_flight) >= ROUNDS_IN_FLIGHT:
                await in_flight.popleft()
            part = ids[self.position : self.position + columns]
            in_flight.append(await self._send(part, Kind.HIDDEN_B, "prefill"))
            progress(self.position, len(ids))
        for lap in in_flight:
            last = await lap
        if len(self._fed()) < len(ids) or not last:  # stopped; forgotten meanwhile is a failure
            return None
        return await self._head(last[-self._column_bytes :], candidates)

    async def _clear_the_chain(self, ids: Sequence[int]) -> bytes:
        """Feed the first ids alone, as a lap that no frame of a failed answer can pass for.

        Frames stay in order, so whatever was still in the chain has left it when this one is back;
        and as it resets every device, it does not matter what they did. A returned frame is known
        by kind, position and columns only: those of this one were not used lately.
        """
        widths = [(Kind.HIDDEN_B, columns) for columns in (1, 2, 3) if columns <= len(ids)]
        unused = (key for key in [*widths, (Kind.HIDDEN, 1)] if key not in self.firsts)
        kind, columns = next(unused, (Kind.HIDDEN, 1))
        lap = await self._send(ids[:columns], kind, "prefill", is_barrier=True)
        returned = await lap
        self._suspect = False
        return returned

    async def _send(
        self, ids: Sequence[int], kind: Kind, lap_kind: LapKind, *, is_barrier: bool = False
    ) -> Awaitable[bytes]:
        """The host's own layers over ``ids``, and the frame sent; the lap is still open."""
        position, shard = len(self._fed()), self.shard
        packed: Packed = await self._compute(lambda: shard.forward_ids(ids, position))
        if not packed.sendable:
            raise LapFailed("not-a-number", "This device's layers gave values that are no numbers.")
        frame = Frame(kind, position, len(ids), packed.data, control=self._control)
        self._control = Control.NONE
        if position == 0:
            self.firsts.append((kind, len(ids)))
        returned = self.chain.lap(frame, lap_kind, is_barrier=is_barrier)
        self._fed().extend(ids)
        return returned

    async def _head(self, payload: bytes, candidates: int) -> TopLogits:
        shard = self.shard
        top = await self._compute(lambda: shard.top_of_bytes(payload, candidates))
        return _finite(top)

    async def _compute[T](self, call: Callable[[], T]) -> T:
        """Run on the compute thread. Raises :class:`LapFailed` when :meth:`forget` came between:
        the layers may have been dealt again, and this trunk retired.
        """
        epoch = self._epoch
        result = await self.compute.run(call)
        if epoch != self._epoch:
            raise LapFailed("left", self._why)
        return result

    def _fed(self) -> list[int]:
        if self.fed is None:
            raise LapFailed("left", self._why)
        return self.fed

    @property
    def _column_bytes(self) -> int:
        return self.shard.width * _BYTES_PER_VALUE


def _finite(top: TopLogits) -> TopLogits:
    if not top.finite:
        raise LapFailed("not-a-number", "The model's head gave values that are no numbers.")
    return top
