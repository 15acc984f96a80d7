"""One WebRTC association behind one small interface, whichever engine makes it.

Everything above this file (connections, links, networks) knows associations only as
:class:`Peer` and :class:`Channel`. All callbacks run on the event loop that made the peer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, assert_never

from poolhouse_node.wire.errors import ChannelRefused

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CLOSING_TIMEOUT_S",
    "GATHERING_TIMEOUT_S",
    "MAX_WAITING_MESSAGES",
    "OPENING_LONGEST_S",
    "OPENING_TIMEOUT_S",
    "CandidatePair",
    "Channel",
    "ChannelClosed",
    "Engine",
    "IceSettings",
    "IceState",
    "MessageRefused",
    "Peer",
    "PeerState",
    "RtcError",
    "TurnServer",
    "make_peer",
]

type Engine = Literal["libdatachannel", "aiortc"]
type PeerState = Literal["new", "connecting", "connected", "disconnected", "failed", "closed"]
type IceState = Literal[
    "new", "checking", "connected", "completed", "failed", "disconnected", "closed"
]

GATHERING_TIMEOUT_S: Final = 15.0
"""Relay-only without a relay would gather for ever."""
OPENING_TIMEOUT_S: Final = 15.0
OPENING_LONGEST_S: Final = 40.0
"""While ICE still tries paths (relay, section 6)."""
CLOSING_TIMEOUT_S: Final = 8.0
MAX_WAITING_MESSAGES: Final = 16384
"""Messages that may wait between an engine and a busy loop. A peer that sends more than this
ahead of its reader loses the association: dropping one message of a reliable channel in silence
would be worse."""


class RtcError(Exception):
    """A WebRTC or signaling operation failed. The text is a sentence for a person."""


class ChannelClosed(RtcError, ChannelRefused):
    """The channel or connection is closed, or is not open yet where it must be."""


class MessageRefused(RtcError, ChannelRefused):
    """An open channel did not take a message."""


@dataclass(frozen=True, slots=True)
class TurnServer:
    """A relay: ``turn:`` or ``turns:`` URL with its credentials."""

    url: str
    username: str = field(repr=False)
    credential: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class IceSettings:
    """How associations look for a path. The default finds paths on the local network only."""

    stun: tuple[str, ...] = ()
    turn: tuple[TurnServer, ...] = ()
    relay_only: bool = False
    port_range: tuple[int, int] | None = None
    """First and last local UDP port."""
    bind: str | None = None
    """Local address to use instead of those of all interfaces."""

    def no_address_sentence(self) -> str:
        """What to say when gathering found nothing to connect from."""
        if self.relay_only:
            return "The relay gave this device no address: check its own, and its password."
        return "No local address was found to connect from."


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Candidate types (``host``, ``srflx``, ``prflx``, ``relay``) of the path in use."""

    local: str
    remote: str
    same_address: bool = False
    """Both ends use one address."""

    @property
    def within_machine(self) -> bool:
        """No packet leaves the machine: behind a relay or a NAT two may share an address."""
        return self.same_address and {self.local, self.remote} <= {"host", "prflx"}

    @property
    def relayed(self) -> bool:
        """Either side goes through a relay; ``prflx`` is a direct path (relay, section 4)."""
        return "relay" in (self.local, self.remote)


class Channel(Protocol):
    """One data channel; a :class:`~poolhouse_node.wire.sending.WireChannel` as it stands.

    Set the callbacks right after creation: what comes while none is set is dropped.
    """

    on_open: Callable[[], None]
    on_message: Callable[[bytes], None]
    on_close: Callable[[], None]

    def __hash__(self) -> int:
        """By identity."""
        ...

    @property
    def label(self) -> str:
        """The label it was made with, at either end."""
        ...

    @property
    def is_open(self) -> bool:
        """Messages can be sent."""
        ...

    def send(self, data: bytes) -> None:
        """Queue one message, without limit.

        Raises :class:`ChannelClosed` or :class:`MessageRefused`.
        """
        ...

    def buffered(self) -> int:
        """Bytes queued and not sent yet; 0 once closed."""
        ...

    def on_low(self, threshold_bytes: int, callback: Callable[[], None]) -> None:
        """Call back each time the queue falls to the threshold or below."""
        ...

    def close(self) -> None:
        """Close this channel only."""
        ...


class Peer(Protocol):
    """One association. Descriptions go out whole, candidates come in one by one."""

    engine: Engine
    on_channel: Callable[[Channel], None]
    on_state: Callable[[PeerState], None]

    @property
    def state(self) -> PeerState:
        """State of the whole association."""
        ...

    @property
    def ice_state(self) -> IceState:
        """State of the search for a path."""
        ...

    def channel(
        self,
        label: str,
        *,
        stream_id: int | None = None,
        ordered: bool = True,
        max_retransmits: int | None = None,
    ) -> Channel:
        """Make a channel; with ``stream_id`` a negotiated one, which both ends make."""
        ...

    async def offer(self) -> str:
        """Gather, then return the offer. Raises :class:`RtcError`, also on the deadline."""
        ...

    async def answer(self, sdp: str) -> str:
        """Take an offer, gather, return the answer. Raises :class:`RtcError`."""
        ...

    async def accept(self, sdp: str) -> None:
        """Take the answer to our offer. Raises :class:`RtcError`."""
        ...

    async def add_candidate(self, candidate: str, mid: str) -> None:
        """Take one remote candidate, after the description. Raises :class:`RtcError`."""
        ...

    def descriptions(self) -> tuple[str | None, str | None]:
        """Local and remote description as they stand, for the binding of proofs."""
        ...

    def pair(self) -> CandidatePair | None:
        """The path in use, once known."""
        ...

    async def close(self) -> None:
        """Close everything within :data:`CLOSING_TIMEOUT_S`. May be called again."""
        ...


def make_peer(engine: Engine, ice: IceSettings) -> Peer:
    """Make an association on the running loop. Raises :class:`RtcError`.

    The engines are imported here, on first use: either may be missing on a machine.
    """
    try:
        match engine:
            case "libdatachannel":
                from poolhouse_node.rtc.libdatachannel import LibdatachannelPeer

                return LibdatachannelPeer(ice)
            case "aiortc":
                from poolhouse_node.rtc.aiortc import AiortcPeer

                return AiortcPeer(ice)
            case _:
                assert_never(engine)
    except ImportError as error:
        raise RtcError(
            f"The WebRTC engine {engine} is not installed: pip install 'poolhouse[node]'."
        ) from error
