"""What every device does on every link: hello, versions, pings, goodbyes, silence."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from poolhouse_node.device.events import Notice, PingAnswered, SignalingChanged
from poolhouse_node.device.tasks import Tasks
from poolhouse_node.room.liveness import (
    AFTER_AWAY_S,
    PING_S,
    PingCount,
    PingLoop,
    is_phone,
    silent_limit_s,
    was_away,
)
from poolhouse_node.room.versions import PROTOCOL, advice_for_them, advice_for_us
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.messages import Message, parse, to_map
from poolhouse_node.wire.messages.joining import Bye, Hello, Leaving, Ping, Pong

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.ports import Link, Network
    from poolhouse_node.wire.slices import Frame

__all__ = ["Device", "Identity", "Peer"]

log = logging.getLogger(__name__)

HELD_MESSAGES_MAX = 64
HELLO_S = 30.0
"""More than a joiner waits for its host's hello, or a slow engine for its first message."""
BYE_LINGER_S = 0.35
"""A refused device gets its reason before the link closes (joining, section 3: 300 to 400 ms)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """This device's name and what it says about itself."""

    name: str
    meta: dict[str, object]


@dataclass(slots=True)
class Peer:
    """What this device knows about the other end of a link."""

    link: Link
    hello: Hello | None = None
    meta: dict[str, object] = field(default_factory=dict)
    admitted: bool = False
    rtt_s: float | None = None
    held: list[Message] = field(default_factory=list)
    """Messages that came before the device was let in."""
    unreadable: int = 0
    pings: PingCount = field(default_factory=PingCount)

    @property
    def is_api_client(self) -> bool:
        """By its own word. Only a host keeps that word: to others nobody is one."""
        return bool(self.meta.get("api"))


class Device(ABC):
    """The part that host and joined devices share. Use it as an async context manager.

    Subclasses say what a hello means (:meth:`hello_came`), act on messages of admitted links
    (:meth:`act_on`) and on devices that are gone (:meth:`peer_gone`).
    """

    def __init__(self, network: Network, identity: Identity, notify: Notify) -> None:
        self.network = network
        self.identity = identity
        self.notify = notify
        self.peers: dict[str, Peer] = {}
        self.loading = False
        """While this device loads its layers it judges nobody (liveness, section 2)."""
        self._ping_loop = PingLoop()
        self._leaving = False

    async def __aenter__(self) -> Self:
        self.tasks = Tasks()
        self.network.listen(self)
        self.tasks.spawn(self._keep_pinging(), "pings")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.broadcast(Leaving())
        self._leaving = True
        await self.tasks.close()
        await self.network.close()

    # ---- what subclasses say -------------------------------------------------------------------

    @abstractmethod
    def greet(self, peer: Peer) -> None:
        """A link has just opened: say hello, and what goes with it on this kind of link."""

    @abstractmethod
    def hello_came(self, peer: Peer, hello: Hello) -> None:
        """A hello of our own protocol version, the first on this link."""

    @abstractmethod
    def act_on(self, peer: Peer, message: Message) -> None:
        """A message on an admitted link, or one of the few that pass a held one."""

    @abstractmethod
    def frame_came(self, peer: Peer, frame: Frame) -> None:
        """A compute frame on an admitted link."""

    @abstractmethod
    def peer_gone(self, peer: Peer, verb: str) -> None:
        """The link is gone; ``verb`` is what to say of the device: ``left``, ..."""

    @abstractmethod
    def bye_came(self, peer: Peer, reason: str, *, closed: bool) -> None:
        """The other side ends this link and says why."""

    @abstractmethod
    def is_host(self, peer: Peer) -> bool:
        """True when the peer is the room's host, which gets more patience."""

    @abstractmethod
    def may_be_loading(self, peer: Peer) -> bool:
        """True while the peer loads its layers: it is never dropped for silence."""

    def link_replaced(self, older: Peer) -> None:  # noqa: B027 - a hook, nothing is owed
        """A new link to the same device stands; the older one is over."""

    def link_died(self, peer: Peer) -> None:
        """The network broke a link; the side that dialed it dials again (liveness, section 5)."""
        self.forget(peer, "stopped responding")

    def passes_held(self, message: Message) -> bool:
        """Messages that are acted on before a link is admitted."""
        return False

    # ---- sending -------------------------------------------------------------------------------

    def send(self, peer: Peer, message: Message) -> None:
        """Send one message."""
        peer.link.send(to_map(message))

    def broadcast(self, message: Message) -> None:
        """Send to every admitted device."""
        as_map = to_map(message)
        for peer in self.admitted():
            peer.link.send(as_map)

    def admitted(self) -> Iterator[Peer]:
        """The devices that are in."""
        return (peer for peer in list(self.peers.values()) if peer.admitted)

    def admit(self, peer: Peer) -> None:
        """Both ends are in: frames may flow, held messages are acted on now."""
        peer.admitted = True
        peer.link.admit()
        held, peer.held = peer.held, []
        for message in held:
            self.act_on(peer, message)

    def refuse(self, peer: Peer, reason: str) -> None:
        """Say why, then close the link a moment later."""
        self.send(peer, Bye(reason=reason))
        self.peers.pop(peer.link.peer_id, None)
        asyncio.get_running_loop().call_later(BYE_LINGER_S, peer.link.close)

    def drop(self, peer: Peer, verb: str) -> None:
        """Close a link and treat the device as gone."""
        peer.link.close()
        self.forget(peer, verb)

    def forget(self, peer: Peer, verb: str) -> None:
        """The device is gone, unless a newer link to it stands."""
        if self.peers.get(peer.link.peer_id) is peer:
            del self.peers[peer.link.peer_id]
            if not self._leaving:  # the others go because we do: nobody needs to hear of it
                self.peer_gone(peer, verb)

    # ---- NetworkEvents -------------------------------------------------------------------------

    def link_opened(self, link: Link) -> None:
        """A fresh link: whatever was known of this peer is old."""
        older = self.peers.get(link.peer_id)
        self.peers[link.peer_id] = peer = Peer(link)
        if older is not None:
            self.link_replaced(older)
        self.greet(peer)
        asyncio.get_running_loop().call_later(HELLO_S, self._still_nameless, peer)

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        """Read a message and act on it; what cannot be read is counted and ignored."""
        peer = self.peers.get(link.peer_id)
        if peer is None or peer.link is not link:
            return
        try:
            parsed = parse(message)
        except WireError as error:
            peer.unreadable += 1
            log.debug("unreadable message from %s: %s", link.peer_id[:8], error)
            return
        if parsed is not None:
            self._dispatch(peer, parsed)

    def frame(self, link: Link, frame: Frame) -> None:
        """A compute frame; only admitted links carry them."""
        peer = self.peers.get(link.peer_id)
        if peer is not None and peer.link is link and peer.admitted:
            self.frame_came(peer, frame)

    def link_closed(self, link: Link, reason: str) -> None:
        """The other side or the network closed a link."""
        peer = self.peers.get(link.peer_id)
        if peer is not None and peer.link is link:
            log.info("link to %s closed: %s", link.peer_id[:8], reason)
            if link.path_broke:
                self.link_died(peer)
            else:
                # An engine may notice a dead process before our own limits do.
                silent_s = asyncio.get_running_loop().time() - link.heard_at
                self.forget(peer, "stopped responding" if silent_s > PING_S else "left")

    def signaling_changed(self, *, connected: bool) -> None:
        """Open links keep working without signaling; only new devices cannot join."""
        self.notify(SignalingChanged(connected))

    # ---- inside --------------------------------------------------------------------------------

    def _dispatch(self, peer: Peer, message: Message) -> None:
        match message:
            case Ping(ts=ts):
                self.send(peer, Pong(ts=ts))
            case Pong(ts=ts):
                peer.pings.answered()
                self._pong(peer, ts)
            case Leaving():
                self.drop(peer, "left")
            case Bye(reason=reason, closed=closed):
                self.bye_came(peer, reason, closed=bool(closed))
            case Hello():
                self._hello(peer, message)
            case _ if peer.admitted or self.passes_held(message):
                self.act_on(peer, message)
            case _ if len(peer.held) < HELD_MESSAGES_MAX:
                peer.held.append(message)

    def _still_nameless(self, peer: Peer) -> None:
        """A link takes one of few places: whoever does not even say hello loses it."""
        if peer.hello is None and self.peers.get(peer.link.peer_id) is peer:
            self.drop(peer, "said nothing")

    def _hello(self, peer: Peer, hello: Hello) -> None:
        if peer.hello is not None:
            return
        if hello.v != PROTOCOL:
            self.notify(Notice(advice_for_us(hello.v)))
            self.refuse(peer, advice_for_them(hello.v))
            self.version_refused(peer, hello.v)
            return
        peer.hello = hello
        self.hello_came(peer, hello)

    def version_refused(self, peer: Peer, version: int | None) -> None:  # noqa: B027 - a hook, nothing is owed
        """The other side speaks another protocol version and was told so."""

    def _pong(self, peer: Peer, ts: float | None) -> None:
        now = asyncio.get_running_loop().time()
        if ts is None:
            return
        sent_at = ts / 1000
        if 0 <= now - sent_at < 3600:
            peer.rtt_s = now - sent_at
            self.notify(PingAnswered(peer.rtt_s))
            self.answered(peer, sent_at)

    def answered(self, peer: Peer, sent_at: float) -> None:  # noqa: B027 - a hook, nothing is owed
        """A ping of ours that went out at ``sent_at`` came back."""

    def ping(self, peer: Peer) -> None:
        """Ask a device for a sign of life."""
        self.send(peer, Ping(ts=asyncio.get_running_loop().time() * 1000))

    async def _keep_pinging(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PING_S
            await asyncio.sleep(PING_S)
            self._ping_loop.tick(loop.time())
            if was_away(due, loop.time()):
                loop.call_later(AFTER_AWAY_S, self._drop_unheard, loop.time())
            for peer in list(self.peers.values()):
                if not peer.link.is_open:
                    continue  # it is waited for already
                if self._is_silent(peer, loop.time()):
                    self.drop(peer, "stopped responding")
                else:
                    self.ping(peer)

    def _drop_unheard(self, since: float) -> None:
        """This process was stopped, or its machine slept: who has not noticed that it is back
        has given it up, and a fresh link is the way in again.
        """
        for peer in list(self.peers.values()):
            loads = self.loading or self.may_be_loading(peer)
            if peer.link.is_open and peer.link.heard_at < since and not loads:
                self.drop(peer, "stopped responding")

    def _is_silent(self, peer: Peer, now: float) -> bool:
        """Asked once a tick, which counts the pings."""
        too_many = peer.pings.tick()
        if peer.is_api_client:
            return too_many and not self.loading
        limit_s = silent_limit_s(
            to_host=self.is_host(peer),
            phone=is_phone(peer.meta),
            loading=self.loading or self.may_be_loading(peer),
        )
        return self._ping_loop.is_silent(peer.link.heard_at, limit_s, now)
