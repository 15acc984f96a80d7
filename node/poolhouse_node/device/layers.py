"""The layers a worker holds, and what it does with each frame (generation, section 11)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.shard import ShardError
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.slices import Frame, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.shard import Packed, Shard
    from poolhouse_node.wire.slices import Control

__all__ = ["FrameRunner", "apply_control"]

FRAMES_WAITING_MAX = 256
"""More than any host keeps in flight; beyond it the host is told and the frame dropped."""
RETURN_KIND = {Kind.HIDDEN: Kind.HIDDENRET, Kind.HIDDEN_B: Kind.HIDDENRET_B}


def apply_control(shard: Shard, control: Control) -> None:
    """Rollback, save, drop, reset, load: always in this order (generation, section 10)."""
    if control.rollback is not None:
        shard.rollback(control.rollback)
    if control.save is not None:
        shard.save(control.save)
    if control.drop_all:
        shard.drop_all()
    elif control.drop:
        shard.drop(control.drop)
    if control.reset:
        shard.reset()
    if control.load is not None:
        shard.load(control.load)


@dataclass(slots=True)
class FrameRunner:
    """Runs frames one at a time, in arrival order, and hands on what comes out.

    ``forward`` gets the frame for the next device (with the control to pass on); ``report`` gets a
    sentence for the host when a frame cannot be run. The owner runs :meth:`work` as a task.
    """

    shard: Shard
    compute: Compute
    forward: Callable[[Frame], None]
    report: Callable[[str], None]
    returns_to_host: Callable[[], bool]
    _waiting: asyncio.Queue[Frame] = field(
        default_factory=lambda: asyncio.Queue(FRAMES_WAITING_MAX)
    )

    def put(self, frame: Frame) -> None:
        """Queue a frame that arrived. Returned ones are for a host: they are ignored here."""
        if frame.kind not in RETURN_KIND:
            return
        try:
            self._waiting.put_nowait(frame)
        except asyncio.QueueFull:
            self.report(f"more than {FRAMES_WAITING_MAX} frames are waiting")

    async def work(self) -> None:
        """Run frames until cancelled. Anything wrong with one is reported; the queue goes on."""
        while True:
            frame = await self._waiting.get()
            try:
                await self._run(frame)
            except (ShardError, WireError) as error:
                self.report(str(error))

    async def _run(self, frame: Frame) -> None:
        if frame.columns < 1:
            raise ShardError("a frame holds no hidden state")  # decision 8
        packed = await self.compute.run(lambda: self._forward_pass(frame))
        if not packed.sendable:
            lo, hi = self.shard.lo, self.shard.hi
            self.report(f"NaN produced on layers {lo}-{hi - 1}")
            return
        self.forward(self._outgoing(frame, packed))

    def _forward_pass(self, frame: Frame) -> Packed:
        apply_control(self.shard, frame.control)
        return self.shard.forward_bytes(
            frame.payload, frame.columns, frame.position, snapshots=frame.spec
        )

    def _outgoing(self, frame: Frame, packed: Packed) -> Frame:
        if not self.returns_to_host():
            return Frame(
                frame.kind, frame.position, frame.columns, packed.data, frame.spec, frame.control
            )
        return Frame(
            RETURN_KIND[frame.kind], frame.position, frame.columns, packed.data, frame.spec
        )
