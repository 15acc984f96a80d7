"""Everything between this device and another (wire, sections 1, 4, 6 and 7).

A link is one main connection, up to seven stripes and one frame counter each way. Messages go on
the main connection; frames are sliced over the wire channels of all connections and handed over
in send order, or travel as messages when no wire channel is open. Knows connections only as
:class:`~poolhouse_node.rtc.connection.ConnectionPort`; time is the loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from poolhouse_node.rtc.counts import LinkCounts
from poolhouse_node.rtc.keepalive import Keepalive
from poolhouse_node.rtc.peer import ChannelClosed
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.frame_messages import FRAME_TYPES, frame_from_message, frame_to_message
from poolhouse_node.wire.receiving import OrderedReceiver
from poolhouse_node.wire.sending import SliceSender

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.rtc.connection import ConnectionPort
    from poolhouse_node.rtc.peer import Channel
    from poolhouse_node.wire.slices import Frame

__all__ = ["Link", "LinkOwner", "LinkSettings"]

MAX_WAITING_FRAMES: Final = 256
"""Frames sent before the link is admitted that wait; later ones are dropped and counted."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How links of this device carry frames."""

    associations: int = 4
    """Main connection and stripes in all, 1..8; 0 turns the wire off (frames go as messages)."""
    duplicate_slices: int = 3
    """Frames of up to this many slices go twice, on two channels; 0 turns that off."""
    once_within_machine: bool = True
    """Between devices of one machine, where no packet is lost, they go once all the same."""
    keepalive_s: float = 0.010
    """Period of the keep-alive while frames flow; 0 turns it off."""

    def __post_init__(self) -> None:
        if not 0 <= self.associations <= 8:
            raise ValueError(f"{self.associations} associations are outside 0..8")


class LinkOwner(Protocol):
    """Who holds the links of a device. Called on the loop."""

    def admitted(self, link: Link) -> None:
        """Stripes may be dialed and taken."""
        ...

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        """A map with a text ``t``."""
        ...

    def frame(self, link: Link, frame: Frame) -> None:
        """A frame, in order, after admission."""
        ...

    def closed(self, link: Link, reason: str | None) -> None:
        """The link ended; without a reason this side closed it. Called once."""
        ...


class Link:
    """One link. Satisfies :class:`poolhouse_node.device.ports.Link`.

    A new main connection to the same device is a new ``Link``: frame ids start at 1 again.
    """

    def __init__(self, main: ConnectionPort, owner: LinkOwner, settings: LinkSettings) -> None:
        self.peer_id = main.peer_id
        self.dialed = main.dialed
        self.admitted = False
        self.dropped_frames = 0
        self._frames_sent = self._frames_received = 0
        self._main = main
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._over = False
        self._uses_wire = settings.associations > 0
        self._once_within_machine = settings.once_within_machine
        self._wires: list[Channel] = []
        self._sender = SliceSender(duplicate_slices=settings.duplicate_slices)
        self._receiver = OrderedReceiver()
        self._keepalive = Keepalive(self._loop, settings.keepalive_s)
        self._waiting: deque[Frame] = deque()
        self._gap_timer: asyncio.TimerHandle | None = None
        self._gap_timer_at: float | None = None

    def start(self) -> None:
        """Begin to read. What came before is handed over now."""
        self._main.listen(_MainListener(self))
        self._main.keepalive.on_message = self._kept_alive

    # The port.

    @property
    def is_open(self) -> bool:
        return not self._over and self._main.is_open

    @property
    def heard_at(self) -> float:
        return self._heard_at

    @property
    def path_broke(self) -> bool:
        return self._main.path_broke

    @property
    def transport(self) -> str:
        pair = self._main.pair()
        return f"{self._main.engine} {pair.local}/{pair.remote}" if pair else self._main.engine

    @property
    def is_relayed(self) -> bool:
        """Its main connection goes through a relay."""
        pair = self._main.pair()
        return pair is not None and pair.relayed

    @property
    def _is_within_machine(self) -> bool:
        pair = self._main.pair()
        return pair is not None and pair.within_machine

    @property
    def buffered_bytes(self) -> int:
        """Taken for the wire but not sent yet."""
        return sum(wire.buffered() for wire in self._wires if wire.is_open)

    def counts(self) -> LinkCounts:
        """What it carried so far."""
        sender, receiver = self._sender, self._receiver
        return LinkCounts(
            frames_sent=self._frames_sent,
            frames_received=self._frames_received,
            sent_first_bytes=sender.first_bytes,
            sent_second_bytes=sender.second_bytes,
            received_first_bytes=receiver.received_bytes - receiver.repeated_bytes,
            received_second_bytes=receiver.repeated_bytes,
            frames_delayed=receiver.delayed,
            gaps_passed=receiver.skipped - receiver.skipped_after_wait,
            gaps_waited=receiver.skipped_after_wait,
            keepalives=self._keepalive.sent_bytes,
        )

    def admit(self) -> None:
        if self.admitted or self._over:
            return
        self.admitted = True
        if self._once_within_machine and self._is_within_machine:
            self._sender.duplicate_slices = 0
        if self._uses_wire:
            self._attach_channels(self._main)
        while self._waiting:
            self.send_frame(self._waiting.popleft())
        self._owner.admitted(self)

    def send(self, message: Mapping[str, Any]) -> None:
        if self._over:
            return
        try:
            self._main.send(message)
        except ChannelClosed:
            _log.debug("link.message_dropped: the link is closed")

    def send_frame(self, frame: Frame) -> None:
        if self._over:
            return
        if not self.admitted:
            self._hold(frame)
            return
        self._keepalive.sent(self._loop.time())
        self._frames_sent += 1
        if not self._sender.send(frame, self._wires):
            self.send(frame_to_message(frame))

    def close(self) -> None:
        self._finish(None)
        self.close_main()

    def binding(self) -> str:
        """The text that proofs on the main connection are bound to."""
        return self._main.binding()

    async def drain(self) -> None:
        """Wait until little is queued, before more bulk is sent. Raises ``ChannelClosed``."""
        await self._main.drain()

    # For the owner.

    def attach(self, stripe: ConnectionPort) -> None:
        """A proved stripe joins. Its end must be told with :meth:`detach`."""
        if self._uses_wire and not self._over:
            self._attach_channels(stripe)

    def detach(self, stripe: ConnectionPort) -> None:
        """A stripe is gone, or going."""
        self._channel_gone(stripe.wire)

    def feed(self, stripe: ConnectionPort, data: bytes) -> None:
        """A slice that came on an attached stripe before it was proved."""
        self._slice(stripe.wire, data)

    @property
    def stripes(self) -> int:
        """Wire channels beside that of the main connection."""
        return max(0, len(self._wires) - 1)

    def retire(self) -> None:
        """A newer link to the same device stands: this one is over, but for its connection.

        The owner calls :meth:`close_main` once the other end had time to do so itself.
        """
        self._finish(None)

    def close_main(self) -> None:
        """Close the main connection of a link that is over."""
        self._main.close()

    async def wait_closed(self) -> None:
        """Wait until the main connection is closed."""
        await self._main.wait_closed()

    # Channels.

    def _attach_channels(self, connection: ConnectionPort) -> None:
        wire, keepalive = connection.wire, connection.keepalive
        if wire in self._wires:
            return
        self._wires.append(wire)
        self._keepalive.add(keepalive)
        wire.on_message = partial(self._slice, wire)
        wire.on_close = partial(self._channel_gone, wire)
        wire.on_open = partial(self._channel_opened, wire)
        keepalive.on_message = self._kept_alive
        if wire.is_open:
            self._channel_opened(wire)

    def _channel_opened(self, wire: Channel) -> None:
        self._receiver.opened(wire, self._loop.time())

    def _channel_gone(self, wire: Channel) -> None:
        if wire not in self._wires:
            return
        index = self._wires.index(wire)
        del self._wires[index]
        self._keepalive.remove(index)
        self._take(self._receiver.closed(wire, self._loop.time()))

    # Receiving.

    def _slice(self, wire: Channel, data: bytes) -> None:
        self._heard_at = now = self._loop.time()
        frames = self._receiver.receive(wire, data, now)
        if frames:
            self._take(frames)
        elif self._receiver.next_timer() != self._gap_timer_at:
            self._set_gap_timer()

    def _take(self, frames: list[Frame]) -> None:
        if frames:
            self._keepalive.received(self._loop.time())
            self._frames_received += len(frames)
        if self._receiver.next_timer() != self._gap_timer_at:
            self._set_gap_timer()
        for frame in frames:
            if not self._over:
                self._owner.frame(self, frame)

    def _set_gap_timer(self) -> None:
        if self._gap_timer is not None:
            self._gap_timer.cancel()
        self._gap_timer_at = at = None if self._over else self._receiver.next_timer()
        self._gap_timer = None if at is None else self._loop.call_at(at, self._gap_waited)

    def _gap_waited(self) -> None:
        self._gap_timer = self._gap_timer_at = None
        self._take(self._receiver.on_timer(self._loop.time()))

    def _kept_alive(self, _data: bytes) -> None:
        self._heard_at = self._loop.time()

    def heard(self) -> None:
        """A message came on the main channel of any connection of the link."""
        self._heard_at = self._loop.time()

    def received(self, value: Any) -> None:
        """A message of the main connection."""
        kind = value.get("t") if isinstance(value, dict) else None
        if self._over or not isinstance(kind, str):
            return  # also the byte strings of a bandwidth test (wire, section 2)
        if kind in FRAME_TYPES:
            self._frame_message(value)
        else:
            self._owner.message(self, value)

    def _frame_message(self, message: Mapping[str, Any]) -> None:
        if not self.admitted:
            return
        try:
            frame = frame_from_message(message)
        except WireError as error:
            _log.debug("link.malformed_frame: %s", error)
            return
        self._take([frame])

    # Waiting and ending.

    def _hold(self, frame: Frame) -> None:
        if len(self._waiting) < MAX_WAITING_FRAMES:
            self._waiting.append(frame)
            return
        self.dropped_frames += 1
        if self.dropped_frames == 1:
            _log.warning("link.frames_dropped: %d wait for admission", len(self._waiting))

    def ended(self, reason: str) -> None:
        """The main connection ended by itself."""
        self._finish(reason)
        self.close_main()

    def _finish(self, reason: str | None) -> None:
        if self._over:
            return
        self._over = True
        self._waiting.clear()
        self._keepalive.stop()
        self._set_gap_timer()
        for wire in self._wires:
            wire.on_message = wire.on_close = wire.on_open = _ignore
        self._wires.clear()
        self._owner.closed(self, reason)


class _MainListener:
    """Reads the main connection for its link."""

    __slots__ = ("_link", "closed", "heard", "message")

    def __init__(self, link: Link) -> None:
        self.message = link.received
        self.heard = link.heard
        self.closed = link.ended


def _ignore(*_: Any) -> None:
    """The callback of channels that left the link."""
