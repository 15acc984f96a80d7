"""Metrics of a command, or none: what rooms hand over is measured only with ``--metrics-port``."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node import __version__
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.loading import describe_shard
from poolhouse_node.cli.options import DEFAULT_METRICS_BIND
from poolhouse_node.device.joined import JoinFailed, JoinRefused
from poolhouse_node.room.versions import PROTOCOL
from poolhouse_node.rtc.signaling import SignalingError
from poolhouse_node.shard import OutOfMemory, ShardError
from poolhouse_node.weights.errors import WeightsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractContextManager

    from poolhouse_node.cli.loading import PlacedLoader
    from poolhouse_node.device.events import Event, Notify
    from poolhouse_node.device.host import Host
    from poolhouse_node.device.joined import JoinedDevice
    from poolhouse_node.ops.measured import MeasuredShard
    from poolhouse_node.ops.registry import NodeRegistry
    from poolhouse_node.shard import Shard
    from poolhouse_node.weights.source import FoundAt

__all__ = [
    "MeasuredRoom",
    "Measuring",
    "MetricsOptions",
    "NodeMeasuring",
    "RoomWatch",
    "measuring",
]


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """What the person said about metrics."""

    port: int | None = None
    """``None``: no metrics at all. 0 takes a free port."""
    bind: str = DEFAULT_METRICS_BIND
    names_room: bool = False
    """Each series says which room it is about."""

    def arguments(self, offset: int) -> list[str]:
        """The same for the ``offset``-th process beside this one; of a free port nobody knows."""
        if not self.port:
            return []
        label = ["--metrics-room-label"] if self.names_room else []
        port = str(self.port + offset)
        return ["--metrics-port", port, "--metrics-bind", self.bind, *label]


class RoomWatch:
    """One room, not measured: its events go where they would go without this."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify

    def __call__(self, event: Event) -> None:
        """Hear an event: this is a device's ``notify``."""
        self._notify(event)

    def hosting(self, host: Host, code: str) -> AbstractContextManager[None]:
        """Read this host's state while the context is open."""
        del host, code
        return contextlib.nullcontext()

    def joining(self, device: JoinedDevice, code: str) -> AbstractContextManager[None]:
        """Read this device's state while the context is open."""
        del device, code
        return contextlib.nullcontext()

    def trying(self) -> AbstractContextManager[None]:
        """Count how an attempt to get into the room ends."""
        return contextlib.nullcontext()


class Measuring:
    """Measures nothing: everything is given back as it came."""

    def room(self, notify: Notify) -> RoomWatch:
        """What to give a device in the place of ``notify``."""
        return RoomWatch(notify)

    def loader(self, loader: PlacedLoader) -> PlacedLoader:
        """What to use in the place of ``loader``."""
        return loader

    def found(self, where: FoundAt, size_bytes: int) -> None:
        """A file of a model is here."""


class NodeMeasuring(Measuring):
    """Measures into one registry."""

    def __init__(self, registry: NodeRegistry, *, names_room: bool = False) -> None:
        from poolhouse_node.ops.measured import memory_of
        from poolhouse_node.ops.metrics import NodeMetrics
        from poolhouse_node.ops.readings import RoomReadings
        from poolhouse_node.rtc.counts import LinkCounts

        self.registry, self.names_room = registry, names_room
        self.metrics = NodeMetrics(registry)
        self.shards: list[MeasuredShard] = []
        self.readings = RoomReadings(LinkCounts(), lambda: memory_of(self.shards))
        registry.register(self.readings)

    def room(self, notify: Notify) -> RoomWatch:
        return MeasuredRoom(self, notify)

    def loader(self, loader: PlacedLoader) -> PlacedLoader:
        return _MeasuredLoader(self, loader)

    def found(self, where: FoundAt, size_bytes: int) -> None:
        self.metrics.fetch_bytes[where].inc(size_bytes)


class MeasuredRoom(RoomWatch):
    """One room of a device that is measured."""

    def __init__(self, node: NodeMeasuring, notify: Notify) -> None:
        from poolhouse_node.cli.metrics_feed import RoomFeed

        super().__init__(notify)
        self._node, self._feed = node, RoomFeed(node.metrics)
        self._is_host = False

    def __call__(self, event: Event) -> None:
        self._feed.count(event, is_host=self._is_host)
        super().__call__(event)

    def hosting(self, host: Host, code: str) -> AbstractContextManager[None]:
        from poolhouse_node.cli.metrics_feed import read_host

        self._is_host = True
        self._node.metrics.joins["joined"].inc()
        self._name(code)
        return self._node.readings.watching(lambda: read_host(host, self._feed))

    def joining(self, device: JoinedDevice, code: str) -> AbstractContextManager[None]:
        from poolhouse_node.cli.metrics_feed import read_joined

        self._name(code)
        return self._node.readings.watching(lambda: read_joined(device, self._feed))

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        joins = self._node.metrics.joins
        try:
            yield
        except (JoinFailed, SignalingError) as error:
            joins["refused" if isinstance(error, JoinRefused) else "failed"].inc()
            raise
        joins["joined"].inc()

    def _name(self, code: str) -> None:
        from poolhouse_node.ops.registry import room_label

        if self._node.names_room:
            self._node.registry.room = room_label(code)


class _MeasuredLoader:
    """Satisfies :class:`PlacedLoader`."""

    def __init__(self, node: NodeMeasuring, loader: PlacedLoader) -> None:
        self._node, self._loader = node, loader

    @property
    def device(self) -> str:
        """Where the measured loader computes."""
        return self._loader.device

    async def load(
        self,
        model: str,
        layers: tuple[int, int],
        *,
        context_size: int,
        host: bool,
        progress: Callable[[float], None],
    ) -> Shard:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            shard = await self._loader.load(
                model, layers, context_size=context_size, host=host, progress=progress
            )
        except ShardError as error:
            self._failed(error)
            raise
        self._node.metrics.load_s.observe(loop.time() - began_at)
        self._node.metrics.describe_node(*describe_shard(shard))
        return self._measured(shard)

    def _failed(self, error: ShardError) -> None:
        metrics = self._node.metrics
        metrics.load_errors.inc()
        if isinstance(error.__cause__, WeightsError):
            metrics.fetch_errors.inc()
        elif isinstance(error, OutOfMemory):
            metrics.engine_errors["oom"].inc()

    def _measured(self, shard: Shard) -> Shard:
        from poolhouse_node.ops.measured import MeasuredShard

        measured = MeasuredShard(shard, self._node.metrics, when_closed=self._closed)
        self._node.shards.append(measured)
        return measured

    def _closed(self, shard: MeasuredShard) -> None:
        if shard in self._node.shards:  # a part may be closed twice
            self._node.shards.remove(shard)


@contextlib.asynccontextmanager
async def measuring(
    options: MetricsOptions, say: Callable[[str], None]
) -> AsyncIterator[Measuring]:
    """Serve metrics while the context is open, if they are wanted; say where.

    Raises :class:`CommandFailed` when they cannot be had.
    """
    if options.port is None:
        yield Measuring()
        return
    try:
        from poolhouse_node.ops.lag import measure_lag
        from poolhouse_node.ops.registry import make_registry
        from poolhouse_node.ops.server import CannotListen, serve_metrics
    except ModuleNotFoundError as error:
        raise CommandFailed(
            f"Metrics need the Python package {error.name}: pip install 'poolhouse[node]'."
        ) from error
    node = NodeMeasuring(make_registry(__version__, PROTOCOL), names_room=options.names_room)
    async with contextlib.AsyncExitStack() as stack:
        try:
            served = serve_metrics(
                node.registry,
                lambda: node.readings.has_signaling,
                host=options.bind,
                port=options.port,
            )
            bound = await stack.enter_async_context(served)
        except CannotListen as error:
            raise CommandFailed(str(error)) from error
        say(f"Metrics: {bound.url}")
        lag = asyncio.ensure_future(measure_lag(node.metrics.loop_lag_s.observe))
        try:
            yield node
        finally:
            lag.cancel()
            await asyncio.gather(lag, return_exceptions=True)
