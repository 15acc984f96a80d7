"""What a joined device says it lends, while its person, other rooms and the host change it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from poolhouse_node.device.load_notes import lower_share
from poolhouse_node.room.pledge import count_gb
from poolhouse_node.wire.messages.joining import Pledge

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.device import Identity
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.messages.loading import ShareLimit

__all__ = ["LentShare"]

_TOLD_TO_GB = 0.001
"""Hosts round what they count (dealing, section 11)."""


@dataclass(slots=True)
class LentShare:
    """Keeps the device's ``identity`` true, and tells a host that let it in when it changes."""

    identity: Callable[[], Identity]
    renew: Callable[[Identity], None]
    tell_host: Callable[[Message], None]
    is_inside: Callable[[], bool]
    _most_gb: float | None = None
    """What the host lowered it to, which other rooms' giving back does not raise."""
    _offered_gb: float = field(init=False)
    """What other rooms leave for this one."""
    _host_counts: float = 1.0
    """GB as the host counts layers, for a GB that they take here; at most 1."""
    _counted_gb: float = 0.0
    _needed_gb: float = 0.0
    """Of the last deal, as far as is known."""
    _told: object = None
    """What the host knows."""

    def __post_init__(self) -> None:
        self._offered_gb = count_gb(self.identity().meta.get("contribGB"))

    @property
    def lends_gb(self) -> float:
        """What may be taken here, whatever the host counts it as."""
        return count_gb(self.identity().meta.get("contribGB")) / self._host_counts

    def greeted(self) -> None:
        """A hello went out, with what the device says of itself now."""
        self._told = self.identity().meta.get("contribGB")

    def offer(self, gb: float) -> None:
        """So much is left for this room; the next deal counts with it (joining, section 7)."""
        self._offered_gb = gb
        counted_gb = gb * self._host_counts
        most_gb = counted_gb if self._most_gb is None else min(counted_gb, self._most_gb)
        self._change({**self.identity().meta, "contribGB": most_gb})
        self.catch_up()

    def dealt(self) -> None:
        """Layers were dealt to this device; whatever was said of others counts no more."""
        self._counted_gb = self._needed_gb = 0.0

    def counted(self, gb: float) -> None:
        """The host says what it counts the dealt layers as."""
        self._counted_gb = gb
        self._compare()

    def refused(self, needed_gb: float) -> None:
        """The dealt layers take so much here, which is more than this device lends."""
        self._needed_gb = needed_gb
        self._compare()

    def _compare(self) -> None:
        """The host hears in its own measure what this device lends, and deals what that holds.

        It may hold weights in less memory, or not count all of a state.
        """
        counted_gb = max(0.0, self._counted_gb - _TOLD_TO_GB)
        if not (counted_gb and self._needed_gb):
            return
        if counted_gb > count_gb(self.identity().meta.get("contribGB")):
            return  # it dealt by hand, or had not heard yet what other rooms took
        self._host_counts = min(self._host_counts, counted_gb / self._needed_gb)
        self.offer(self._offered_gb)

    def catch_up(self) -> None:
        """Tell the host what changed since it was told; nothing before it let this device in."""
        if self.is_inside() and self.identity().meta.get("contribGB") != self._told:
            self._tell()

    def limited(self, limit: ShareLimit) -> None:
        """The host deals this device less: it was killed while it loaded (liveness, section 9)."""
        self._change(lower_share(self.identity().meta, limit))
        if not limit.drop and limit.gb is not None:
            self._most_gb = count_gb(self.identity().meta.get("contribGB"))
        self._tell()

    def _change(self, meta: dict[str, object]) -> None:
        self.renew(replace(self.identity(), meta=meta))

    def _tell(self) -> None:
        meta = self.identity().meta
        gb = count_gb(meta.get("contribGB"))
        if gb and meta.get("webgpu"):
            self.tell_host(Pledge(gb=gb))
            self.greeted()
