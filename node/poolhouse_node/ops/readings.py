"""The series that tell what a device is now, and what its links carried, read at each scrape."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric

__all__ = ["EngineMemory", "LinkTotals", "Role", "RoomReading", "RoomReadings"]


class Role(StrEnum):
    """What a device is in a room."""

    HOST = "host"
    WORKER = "worker"
    GUEST = "guest"


class LinkTotals(Protocol):
    """What links carried so far; it never gets less."""

    @property
    def frames_sent(self) -> int: ...
    @property
    def frames_received(self) -> int: ...
    @property
    def sent_first_bytes(self) -> int: ...
    @property
    def sent_second_bytes(self) -> int: ...
    @property
    def received_first_bytes(self) -> int: ...
    @property
    def received_second_bytes(self) -> int: ...
    @property
    def frames_delayed(self) -> int: ...
    @property
    def gaps_passed(self) -> int: ...
    @property
    def gaps_waited(self) -> int: ...
    @property
    def keepalives(self) -> int: ...
    def __add__(self, other: Self, /) -> Self: ...


@dataclass(frozen=True, slots=True)
class RoomReading:
    """One room as this device sees it now."""

    role: Role
    is_connected: bool
    """Inside the room; of a host: the room is open."""
    has_signaling: bool
    layers: int
    pledge_bytes: int
    links_open: int
    links_held: int
    links_relayed: int
    """Of those that are open."""
    buffered_bytes: int
    carried: LinkTotals
    queue_length: int = 0
    queue_limit: int = 0


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Memory of the layers held here."""

    weights_bytes: int = 0
    state_bytes: int = 0


@dataclass(slots=True, eq=False)
class RoomReadings(Collector):
    """Asks each room that is watched, and adds up: a device may be in several."""

    nothing_carried: LinkTotals
    memory: Callable[[], EngineMemory] = EngineMemory
    _rooms: list[Callable[[], RoomReading]] = field(default_factory=list)
    _ended: LinkTotals = field(init=False)

    def __post_init__(self) -> None:
        self._ended = self.nothing_carried

    @contextlib.contextmanager
    def watching(self, read: Callable[[], RoomReading]) -> Iterator[None]:
        """Read this room while the context is open; what its links carried stays counted."""
        self._rooms.append(read)
        try:
            yield
        finally:
            self._rooms.remove(read)
            self._ended += read().carried

    @property
    def has_signaling(self) -> bool:
        """Others can find this device: it is in a room, and every signaling server answers."""
        return bool(self._rooms) and all(read().has_signaling for read in self._rooms)

    def collect(self) -> Iterator[Metric]:
        """Yield every series."""
        rooms = [read() for read in self._rooms]
        yield from _of_rooms(rooms)
        yield from _of_the_engine(rooms, self.memory())
        yield from _of_links(rooms, sum((room.carried for room in rooms), self._ended))


def _of_rooms(rooms: list[RoomReading]) -> Iterator[Metric]:
    values = {
        "room_connected": (
            "Rooms this device is inside of, hosted ones among them.",
            sum(room.is_connected for room in rooms),
        ),
        "room_signaling_connected": (
            "1 while every room's signaling server is connected, else 0.",
            int(bool(rooms) and all(room.has_signaling for room in rooms)),
        ),
        "room_seat_layers": (
            "Layers this device holds, or loads.",
            sum(room.layers for room in rooms),
        ),
        "gen_queue_length": (
            "Questions that wait here for their turn.",
            sum(room.queue_length for room in rooms),
        ),
        "gen_queue_limit": (
            "Questions that may wait here; a host has such a queue.",
            sum(room.queue_limit for room in rooms),
        ),
        "link_send_buffered_bytes": (
            "Taken for the links of this device but not sent yet.",
            sum(room.buffered_bytes for room in rooms),
        ),
    }
    for name, (text, value) in values.items():
        yield GaugeMetricFamily(f"poolhouse_{name}", text, value=value)
    roles = {role.value: sum(room.role is role for room in rooms) for role in Role}
    yield _gauge("room_role", "Rooms in which this device has the role.", "role", roles)


def _of_the_engine(rooms: list[RoomReading], memory: EngineMemory) -> Iterator[Metric]:
    uses = {"weights": memory.weights_bytes, "state": memory.state_bytes}
    yield _gauge(
        "engine_memory_bytes",
        "Memory taken by layers held here: their weights, and states of conversations.",
        "use",
        uses,
    )
    # One device lends one piece of memory, however many rooms it is lent to.
    pledge_bytes = max((room.pledge_bytes for room in rooms), default=0)
    text = "Memory this device lends."
    yield GaugeMetricFamily("poolhouse_engine_pledge_bytes", text, value=pledge_bytes)


def _of_links(rooms: list[RoomReading], carried: LinkTotals) -> Iterator[Metric]:
    states = {
        "open": sum(room.links_open for room in rooms),
        "held": sum(room.links_held for room in rooms),
        "relayed": sum(room.links_relayed for room in rooms),
    }
    yield _gauge(
        "links",
        "Links to other devices: open, held until both ends are let in, and open ones by relay.",
        "state",
        states,
    )
    yield _counter(
        "link_frames",
        "Frames over all links.",
        ("direction",),
        {("sent",): carried.frames_sent, ("received",): carried.frames_received},
    )
    yield _counter(
        "link_bytes",
        "Bytes of slices with their headers; small frames go twice.",
        ("direction", "copy"),
        {
            ("sent", "first"): carried.sent_first_bytes,
            ("sent", "second"): carried.sent_second_bytes,
            ("received", "first"): carried.received_first_bytes,
            ("received", "second"): carried.received_second_bytes,
        },
    )
    yield _counter(
        "link_gaps_skipped",
        "Frames given up as lost: every channel was past them, or nothing came for long.",
        ("cause",),
        {("passed",): carried.gaps_passed, ("waited",): carried.gaps_waited},
    )
    late = "Frames that had to wait for one that was sent before them."
    yield CounterMetricFamily("poolhouse_link_frames_late", late, value=carried.frames_delayed)
    kept = "Bytes sent to keep quiet links awake."
    yield CounterMetricFamily("poolhouse_link_keepalives", kept, value=carried.keepalives)


def _gauge(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"poolhouse_{name}", text, labels=(label,))
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _counter(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], int]
) -> Metric:
    family = CounterMetricFamily(f"poolhouse_{name}", text, labels=labels)
    for key, count in values.items():
        family.add_metric(key, count)
    return family
