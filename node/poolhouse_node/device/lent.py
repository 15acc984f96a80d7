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
    """Keeps the device's ``identity`` true, and tells the host when it changes."""

    identity: Callable[[], Identity]
    renew: Callable[[Identity], None]
    tell_host: Callable[[Message], None]
    _most_gb: float | None = None
    """What the host lowered it to, which other rooms' giving back does not raise."""

    def offer(self, gb: float) -> None:
        """So much is left for this room; the next deal counts with it (joining, section 7)."""
        most_gb = gb if self._most_gb is None else min(gb, self._most_gb)
        meta = {**self.identity().meta, "contribGB": most_gb}
        if meta != self.identity().meta:
            self._say(meta)

    def limited(self, limit: ShareLimit) -> None:
        """The host deals this device less: it was killed while it loaded (liveness, section 9)."""
        meta = lower_share(self.identity().meta, limit)
        if not limit.drop and limit.gb is not None:
            self._most_gb = count_gb(meta.get("contribGB"))
        self._say(meta)

    def _say(self, meta: dict[str, object]) -> None:
        self.renew(replace(self.identity(), meta=meta))
        gb = count_gb(meta.get("contribGB"))
        if gb and meta.get("webgpu"):
            self.tell_host(Pledge(gb=gb))
