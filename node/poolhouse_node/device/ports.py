"""What a device needs from the world: links, and model parts.

Production hands in ``rtc.network.Network`` and an engine; ``tests/sim`` hands in a seeded bad
network, a fake shard and virtual time. Time is ``asyncio``'s own: code here sleeps and waits on
the running loop, whose clock a simulation owns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from poolhouse_node.room.mesh import MeshKey
    from poolhouse_node.shard import Shard
    from poolhouse_node.wire.slices import Frame

__all__ = ["Link", "Network", "NetworkEvents", "ShardLoader"]


class Link(Protocol):
    """Everything between this device and another: main connection, stripes, frame order."""

    peer_id: str
    dialed: bool
    """True when this side dialed the main connection."""

    @property
    def is_open(self) -> bool:
        """Messages can be sent."""
        ...

    @property
    def heard_at(self) -> float:
        """Loop time of the last sign of life: any message, slice or keep-alive byte."""
        ...

    @property
    def path_broke(self) -> bool:
        """It ended because the network carried nothing any more, not by the other side's will."""
        ...

    @property
    def transport(self) -> str:
        """What carries it, for people: ``libdatachannel host/host``."""
        ...

    def binding(self) -> str:
        """What a proof on this link is bound to (joining, section 5); empty when nothing is."""
        ...

    def admit(self) -> None:
        """Both ends are in the room: take frames from now on, dial or accept stripes.

        Before this, frames are neither sent (they wait) nor taken (they are dropped): wire,
        section 4, and decision 4.
        """
        ...

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message on the data channel. On a closed link it is dropped."""
        ...

    def send_frame(self, frame: Frame) -> None:
        """Send a compute frame in order (wire, section 6). On a closed link it is dropped."""
        ...

    def close(self) -> None:
        """Close without a departure notice from this side's ``link_closed``."""
        ...


class NetworkEvents(Protocol):
    """What a network tells its device. Called on the loop; must not block."""

    def link_opened(self, link: Link) -> None:
        """A link stands (``link.dialed`` says who dialed). The device says hello first."""
        ...

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        """A map with a text ``t`` came in. Its other fields are unchecked."""
        ...

    def frame(self, link: Link, frame: Frame) -> None:
        """A compute frame, in send order, on an admitted link."""
        ...

    def link_closed(self, link: Link, reason: str) -> None:
        """The link ended and this side did not close it."""
        ...

    def signaling_changed(self, *, connected: bool) -> None:
        """The signaling server was lost or is back; open links keep working."""
        ...


class Network(Protocol):
    """This device's links, by peer id, and the way to make new ones."""

    @property
    def peer_id(self) -> str:
        """The id under which others dial this device."""
        ...

    @property
    def links(self) -> Mapping[str, Link]:
        """Open links by peer id."""
        ...

    mesh: MeshKey
    """The room's key, with which stripes and links between devices prove themselves."""

    def roster_changed(self) -> None:
        """What the roster says of a device's proofs may be new: judge again who waits."""
        ...

    def hurry(self) -> None:
        """Others will want to reach this device: find a lost signaling server soon."""
        ...

    def listen(self, events: NetworkEvents) -> None:
        """Name the receiver of events, once, before :meth:`dial`."""
        ...

    async def dial(self, peer_id: str, *, timeout_s: float) -> Link:
        """Open a link (``link_opened`` is also called for it).

        Raises :class:`LinkFailed <poolhouse_node.room.links.LinkFailed>` with ``kind``
        ``no-such-peer``, ``no-path`` or ``timeout``.
        """
        ...

    async def close(self) -> None:
        """Flush what was sent, close every link, leave the signaling server."""
        ...


class ShardLoader(Protocol):
    """Makes model parts. The work itself is done in a thread of the loader's own."""

    async def load(
        self,
        model: str,
        layers: tuple[int, int],
        *,
        context_size: int,
        host: bool,
        progress: Callable[[float], None],
    ) -> Shard:
        """Load layers ``[lo, hi)`` of ``model``; with ``host`` the embedding and head as well.

        ``progress`` gets 0..1, on the loop. Cancelling the call ends the load at the next tensor.
        Raises ``ShardError`` with a sentence for a person.
        """
        ...
