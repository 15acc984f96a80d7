"""Holding layers for a host: load them, keep the link to the next device, run frames."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.layers import FrameRunner
from poolhouse_node.room.links import LinkFailed
from poolhouse_node.room.versions import PROTOCOL
from poolhouse_node.shard import ShardError
from poolhouse_node.wire.messages.loading import ErrorReport, Load, Progress, Ready

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from poolhouse_node.device.ports import Link, ShardLoader
    from poolhouse_node.device.tasks import Tasks
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.shard import Shard
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.slices import Frame

__all__ = ["HOST", "Worker"]

HOST = "host"
"""``next`` of the last device in the chain."""
NEXT_LINK_S = 60.0
DEFAULT_CONTEXT = 2048
"""For a host that does not say (dealing, section 1)."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What must be equal for a worker to keep its layers (decision 10)."""

    model: str
    layers: tuple[int, int]
    context_size: int
    kv_format: str

    @classmethod
    def of(cls, load: Load) -> _Part:
        return cls(load.model, load.range, load.ctx or DEFAULT_CONTEXT, load.kv or "f16")


@dataclass(slots=True)
class Worker:
    """One device's layers. ``link_to_next`` gives a link that frames may use, dialing if needed."""

    loader: ShardLoader
    compute: Compute
    tasks: Tasks
    tell_host: Callable[[Message], None]
    link_to_next: Callable[[str], Awaitable[Link]]
    host_link: Callable[[], Link | None]
    loading_changed: Callable[[bool], None]
    next_id: str = HOST
    _part: _Part | None = None
    _runner: FrameRunner | None = None
    _next_link: Link | None = None
    _work: list[asyncio.Task[None]] = field(default_factory=list)
    _percent: int = -1

    @property
    def layers(self) -> tuple[int, int] | None:
        """The layers held or being loaded, ``[lo, hi)``."""
        return self._part.layers if self._part else None

    def take_load(self, load: Load) -> None:
        """The host dealt: load the layers, or only note where results go now."""
        if load.v is not None and load.v != PROTOCOL:
            self.tell_host(ErrorReport(message=f"this device speaks room protocol {PROTOCOL}"))
            return
        part = _Part.of(load)
        self.next_id = load.next
        if part == self._part and self._runner is None:
            return  # the same load is still running
        keep = self._runner if part == self._part else None
        self._start(lambda: self._take_up(part, keep), "load")

    def put(self, frame: Frame) -> None:
        """A frame to run; ignored while this device holds no layers."""
        if self._runner is not None:
            self._runner.put(frame)

    def next_lost(self, peer_id: str) -> bool:
        """A link closed; True when it was the one to the next device."""
        lost = self._part is not None and peer_id == self.next_id
        if lost:
            self._next_link = None
        return lost

    async def release(self) -> None:
        """Free the layers and stop whatever was going on with them."""
        work, self._work = self._work, []
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        runner, self._runner, self._part, self._next_link = self._runner, None, None, None
        self.loading_changed(False)
        if runner is not None:
            await self.compute.run(runner.shard.close)

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

    async def _take_up(self, part: _Part, keep: FrameRunner | None) -> None:
        """Have the layers and the link to the next device, then say ready and run frames."""
        old, self._runner, self._part = self._runner, None, part
        self._percent = -1
        self.loading_changed(True)
        early = self.tasks.spawn(self._link_early(), "link to next")
        try:
            shard = await (self._emptied(keep) if keep else self._loaded(part, old))
            self._next_link = await self._link()
        except (ShardError, LinkFailed) as error:
            self._part = None
            self.tell_host(ErrorReport(message=str(error), load=1))
            return
        finally:
            early.cancel()
            self.loading_changed(False)
        self._run_frames(shard)
        self.tell_host(Ready(slots=[], ckpt=1))

    async def _link_early(self) -> None:
        """Begin with the link while the layers load; whether it stands is found out after."""
        with contextlib.suppress(LinkFailed):
            await self._link()

    def _run_frames(self, shard: Shard) -> None:
        runner = FrameRunner(
            shard=shard,
            compute=self.compute,
            forward=self._forward,
            report=lambda message: self.tell_host(ErrorReport(message=message)),
            returns_to_host=self.next_id == HOST,
        )
        self._runner = runner
        self._work.append(self.tasks.spawn(runner.work(), "frames"))

    async def _emptied(self, keep: FrameRunner) -> Shard:
        """The same layers, with nothing in them: a quick return after a lost link."""
        shard = keep.shard

        def empty() -> None:
            shard.reset()
            shard.drop_all()

        await self.compute.run(empty)
        return shard

    async def _loaded(self, part: _Part, old: FrameRunner | None) -> Shard:
        if old is not None:
            await self.compute.run(old.shard.close)
        return await self.loader.load(
            part.model,
            part.layers,
            context_size=part.context_size,
            host=False,
            progress=self._progress,
        )

    async def _link(self) -> Link | None:
        if self.next_id == HOST:
            return None
        try:
            async with asyncio.timeout(NEXT_LINK_S):
                return await self.link_to_next(self.next_id)
        except TimeoutError:
            raise LinkFailed(
                "timeout", f"the next device of the chain did not answer in {NEXT_LINK_S:.0f} s"
            ) from None

    def _progress(self, share: float) -> None:
        percent = int(share * 100)
        if percent != self._percent:
            self._percent = percent
            self.tell_host(Progress(pct=percent))

    def _forward(self, frame: Frame) -> None:
        link = self.host_link() if self.next_id == HOST else self._next_link
        if link is not None:
            link.send_frame(frame)
