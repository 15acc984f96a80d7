"""What the keeper of a chain needs of the host whose chain it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.events import Event
    from poolhouse_node.device.tasks import Tasks
    from poolhouse_node.room.roster import Member
    from poolhouse_node.shard import Shard
    from poolhouse_node.wire.messages import Message

__all__ = ["Room"]


class Room(Protocol):
    """Who is here, ways to tell them something, and what a deal means to the host."""

    tasks: Tasks

    def candidates(self, seated: Sequence[str]) -> list[Member]:
        """Devices that may hold layers, the host first, those of ``seated`` names in order."""
        ...

    def admitted_peer(self, peer_id: str) -> Peer | None:
        """A device that is in, with its link."""
        ...

    def name_of(self, peer_id: str) -> str:
        """The name to show."""
        ...

    def tell(self, peer_id: str, message: Message) -> None:
        """Send to one device, if it is here."""
        ...

    def broadcast(self, message: Message) -> None:
        """Send to every device."""
        ...

    def ping(self, peer: Peer) -> None:
        """Ask a device for a sign of life."""
        ...

    def notify(self, event: Event) -> None:
        """Tell the person."""
        ...

    def hurry(self) -> None:
        """Somebody is missing: be found as soon as signaling works."""
        ...

    def dealing(self, *, now: bool) -> None:
        """Layers are being loaded, or not any more."""
        ...

    def dealt(self, shard: Shard) -> None:
        """Everyone holds its layers; the host's own part is ``shard``."""
        ...

    def say_ready(self) -> None:
        """``ai-ready-all`` to everyone."""
        ...

    def forget_caches(self, why: str) -> None:
        """What the devices' caches hold is unknown, also when no lap was in flight."""
        ...
