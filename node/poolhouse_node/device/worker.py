"""Holding layers for a host: load them, keep the link to the next device, run frames."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.layers import FrameRunner
from poolhouse_node.device.next_link import HOST, LinkOpener, NextLink
from poolhouse_node.room.links import LinkFailed
from poolhouse_node.room.shares import ModelPart
from poolhouse_node.room.versions import PROTOCOL
from poolhouse_node.shard import BeyondPledge, ShardError
from poolhouse_node.wire.messages.loading import ErrorReport, Load, Next, Progress, Ready

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.ports import Link, ShardLoader
    from poolhouse_node.device.tasks import Tasks
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.shard import Shard
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.slices import Frame

__all__ = ["Worker"]


SAVED_STATES_NEEDED = 8
"""What a host may use: answers, pins, one to spare. Who cannot hold them says so (decision 14)."""


@dataclass(slots=True)
class Worker:
    """One device's layers, and its link to the next one, which ``open_link`` opens."""

    loader: ShardLoader
    compute: Compute
    tasks: Tasks
    tell_host: Callable[[Message], None]
    open_link: LinkOpener
    name_of: Callable[[str], str]
    host_link: Callable[[], Link | None]
    notify: Notify
    loading_changed: Callable[[bool], None]
    beyond_pledge: Callable[[int], None]
    """A deal takes so many bytes here, which is more than this device lends."""
    _next: NextLink = field(init=False)
    _part: ModelPart | None = None
    """What the host wants this device to hold."""
    _runner: FrameRunner | None = None
    """Set while frames are taken."""
    _shard: Shard | None = None
    _shard_is: ModelPart | None = None
    _work: list[asyncio.Task[None]] = field(default_factory=list)
    _percent: int = -1

    def __post_init__(self) -> None:
        self._next = NextLink(self.open_link, self.tell_host, self.name_of, self.tasks, self.notify)

    @property
    def layers(self) -> tuple[int, int] | None:
        """The layers held or being loaded, ``[lo, hi)``."""
        return self._part.layers if self._part else None

    def take_load(self, load: Load) -> None:
        """The host dealt: load the layers, or empty them, or only note where results go now."""
        if load.v is not None and load.v != PROTOCOL:
            self.tell_host(ErrorReport(message=f"this device speaks room protocol {PROTOCOL}"))
            return
        part = ModelPart.of(load)
        self._next.point(load.next)
        if part == self._part and self._runner is None:
            return  # the same load is still running
        self._part, self._runner = part, None
        self._start(lambda: self._take_up(part), "load")

    def take_next(self, order: Next) -> None:
        """The host says where results go now; with ``relink`` over a fresh link."""
        if self._part is None:
            return
        if order.relink:
            self._next.relink(order.next)
        else:
            self._next.point(order.next)

    def put(self, frame: Frame) -> None:
        """A frame to run; ignored while this device holds no layers."""
        if self._runner is not None:
            self._runner.put(frame)

    def link_lost(self, peer_id: str) -> None:
        """A link closed, perhaps the one to the next device."""
        self._next.lost(peer_id)

    def release(self) -> None:
        """Free the layers and stop whatever was going on with them."""
        self._part, self._runner = None, None
        self._next.close()
        self._start(self._free, "release layers")

    async def close(self) -> None:
        """Release, and wait until that is done; the tasks of this device are over."""
        self._part, self._runner = None, None
        await self._free()

    # ---- inside --------------------------------------------------------------------------------

    def _start(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Run ``work`` once everything that went on with the old layers has ended."""
        previous, self._work = self._work, []

        async def after_what_ran() -> None:
            for task in previous:
                task.cancel()
            await asyncio.gather(*previous, return_exceptions=True)
            await work()

        self._work.append(self.tasks.spawn(after_what_ran(), name))

    async def _take_up(self, part: ModelPart) -> None:
        """Have the layers and the link to the next device, then say ready and run frames."""
        self._percent = -1
        self.loading_changed(True)
        try:
            shard = await self._layers_of(part)
            await self._next.stand()
        except (ShardError, LinkFailed) as error:
            self._part = None
            if isinstance(error, BeyondPledge):  # first: whoever deals again at once must know
                self.beyond_pledge(error.needed_bytes)
            self.tell_host(ErrorReport(message=str(error), load=1))
            return
        finally:
            self.loading_changed(False)
        self._run_frames(shard)
        keeps = shard.saved_states >= SAVED_STATES_NEEDED
        self.tell_host(Ready(slots=[], ckpt=1 if keeps else 0))

    def _run_frames(self, shard: Shard) -> None:
        runner = FrameRunner(
            shard=shard,
            compute=self.compute,
            forward=self._forward,
            report=lambda message: self.tell_host(ErrorReport(message=message)),
            returns_to_host=lambda: self._next.target == HOST,
        )
        self._runner = runner
        self._work.append(self.tasks.spawn(runner.work(), "frames"))

    async def _layers_of(self, part: ModelPart) -> Shard:
        """The layers: those held already with nothing in them, or loaded."""
        if self._shard is not None and self._shard_is == part:
            await self.compute.run(self._shard.reset)
            await self.compute.run(self._shard.drop_all)
            return self._shard
        await self._free()
        self._shard = await self.loader.load(
            part.model,
            part.layers,
            context_size=part.context_size,
            host=False,
            progress=self._progress,
        )
        self._shard_is = part
        return self._shard

    async def _free(self) -> None:
        self._shard_is = None
        if self._shard is not None:  # until it is closed: this may be cancelled, and called again
            await self.compute.run(self._shard.close)
            self._shard = None

    def _progress(self, share: float) -> None:
        percent = int(share * 100)
        if percent != self._percent:
            self._percent = percent
            self.tell_host(Progress(pct=percent))

    def _forward(self, frame: Frame) -> None:
        link = self.host_link() if self._next.target == HOST else self._next.link
        if link is not None:
            link.send_frame(frame)
