"""What a joined device says it lends, while its person, other rooms and the host change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
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


@dataclass(slots=True)
class LentShare:
    """Keeps the device's ``identity`` true, and tells a host that let it in when it changes."""

    identity: Callable[[], Identity]
    renew: Callable[[Identity], None]
    tell_host: Callable[[Message], None]
    is_inside: Callable[[], bool]
    _most_gb: float | None = None
    """What the host lowered it to, which other rooms' giving back does not raise."""
    _told: object = None
    """What the host knows."""

    def greeted(self) -> None:
        """A hello went out, with what the device says of itself now."""
        self._told = self.identity().meta.get("contribGB")

    def offer(self, gb: float) -> None:
        """So much is left for this room; the next deal counts with it (joining, section 7)."""
        most_gb = gb if self._most_gb is None else min(gb, self._most_gb)
        self._change({**self.identity().meta, "contribGB": most_gb})
        self.catch_up()

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
