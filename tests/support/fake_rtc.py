"""Connections in memory over a seeded bad network, for links, networks and whole rooms.

``FakeNet`` stands for everything between devices: signaling and paths. Each device takes a
``FakeDialer`` from it. Messages on an ordered channel arrive in order and exactly once, each after
its own delay; different channels overtake each other. Loss costs a retransmission, which holds up
everything behind it on that channel; keep-alive bytes are simply lost. Works on any loop and is
meant for :mod:`tests.support.virtual_time`: nothing here takes real time.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from poolhouse_node.room.links import LinkFailed
from poolhouse_node.rtc.peer import CandidatePair, ChannelClosed
from poolhouse_node.wire.binarypack import pack, unpack
from poolhouse_node.wire.chunks import MAX_MESSAGE_BYTES
from poolhouse_node.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextvars import Context

    from poolhouse_node.rtc.connection import ConnectionListener, ConnectionPort

__all__ = ["FakeChannel", "FakeConnection", "FakeDialer", "FakeNet", "Weather"]


@dataclass(frozen=True, slots=True)
class Weather:
    """How bad the network is."""

    delay_s: tuple[float, float] = (0.001, 0.010)
    """Bounds of the delay of one message."""
    loss: float = 0.0
    """Share of messages that need another try."""
    retry_s: float = 0.2
    dial_s: tuple[float, float] = (0.05, 0.5)
    """Time an introduction takes."""
    expire_s: float = 5.0
    """When the signaling server gives up on a peer that is not there (signaling, 4.3)."""


APART = CandidatePair("host", "host")
CALM = Weather()
ENGINE_GIVES_UP_S = (15.0, 20.0)
"""When an engine calls an association failed through which nothing comes (liveness, section 5)."""


def _ignore(*_: Any) -> None:
    """The callback of those who set none."""


class FakeChannel:
    """One end of a data channel."""

    def __init__(
        self,
        net: FakeNet,
        label: str,
        *,
        ordered: bool,
        is_held_up: Callable[[], bool] = lambda: False,
        within: Callable[..., None] = lambda call, *args: call(*args),
    ) -> None:
        self.label = label
        self._within = within
        self._is_held_up = is_held_up
        self.is_open = True
        self.on_open: Callable[[], None] = _ignore
        self.on_message: Callable[[bytes], None] = _ignore
        self.on_close: Callable[[], None] = _ignore
        self.refuses = False
        """Set by a test: looks open but takes nothing."""
        self.sent = 0
        self.other: FakeChannel
        self._net = net
        self._ordered = ordered
        self._under_way: deque[Any] = deque()
        self._arrives_at = 0.0
        self._overdue = 0
        self._in_flight_bytes = 0
        self._silent = False
        self._low: Callable[[], None] = _ignore
        self._low_bytes = 0

    def send(self, data: bytes) -> None:
        if not self.is_open or self.refuses:
            raise ChannelClosed(f"the channel {self.label} takes nothing")
        self.sent += 1
        if self._silent:
            return
        now = self._net.now()
        if not self._ordered:
            if not self._net.loses() and not self._is_held_up():
                self._net.call_at(now + self._net.delay(), self.other.deliver, data)
            return
        self._in_flight_bytes += len(data)
        self.later(data)

    def later(self, item: Any) -> None:
        """Put something behind all that is under way: bytes, or a call for the end."""
        now = self._net.now()
        self._arrives_at = max(self._arrives_at, now + self._net.ordered_delay())
        self._under_way.append(item)
        # The queue keeps the order, whichever of two timers for one moment fires first.
        self._net.call_at(self._arrives_at, self._arrive)

    def _arrive(self) -> None:
        if self._overdue or self._waits():
            # Sent again and again until the path or the process at either end is back.
            self._overdue += 1
            if self._overdue == 1:
                self._net.call_at(self._net.now() + self._net.weather.retry_s, self._try_again)
        else:
            self._hand_over()

    def _try_again(self) -> None:
        if self._waits():
            self._net.call_at(self._net.now() + self._net.weather.retry_s, self._try_again)
            return
        overdue, self._overdue = self._overdue, 0
        for _ in range(overdue):
            self._hand_over()

    def _waits(self) -> bool:
        return not self._silent and self._is_held_up()

    def _hand_over(self) -> None:
        item = self._under_way.popleft()
        if not isinstance(item, bytes):
            if not self._silent:
                item()
            return
        before, self._in_flight_bytes = self._in_flight_bytes, self._in_flight_bytes - len(item)
        if not self._silent:
            self.other.deliver(item)
        if before > self._low_bytes >= self._in_flight_bytes:
            self._within(self._low)

    def deliver(self, data: bytes) -> None:
        if self.is_open:
            self._within(self.on_message, data)

    def buffered(self) -> int:
        return self._in_flight_bytes if self.is_open else 0

    def on_low(self, threshold_bytes: int, callback: Callable[[], None]) -> None:
        self._low_bytes, self._low = threshold_bytes, callback

    def close(self) -> None:
        """Close this channel only; the other end sees it after what is under way."""
        if self.is_open:
            self.is_open = False
            self.later(self.other.end)

    def end(self) -> None:
        """The other end closed it, or the whole connection went."""
        if self.is_open:
            self.is_open = False
            self._within(self.on_close)

    def silence(self) -> None:
        """From now on nothing passes, and nobody is told."""
        self._silent = True


class FakeConnection:
    """One end of a connection. Satisfies ``ConnectionPort``."""

    engine = "fake"

    def __init__(
        self, net: FakeNet, owner: FakeDialer, *, peer_id: str, label: str, dialed: bool
    ) -> None:
        self.net, self.owner = net, owner
        self.peer_id = peer_id
        self.label = label
        self.dialed = dialed
        self.wire = self._channel("swarm-wire", ordered=True)
        self.keepalive = self._channel("swarm-ka", ordered=False)
        self.main = self._channel(label, ordered=True)
        self.main.on_message = self._received
        self.main.on_close = lambda: self.lose("The other device closed the connection.")
        self.other: FakeConnection
        self._listener: ConnectionListener | None = None
        self._early: list[Any] = []
        self._lost_because: str | None = None
        self.path_broke = False
        self.binding_text = ""
        """What both ends' fingerprints would make; a test sets two for somebody in the middle."""

    @property
    def is_open(self) -> bool:
        return self.main.is_open

    def _channel(self, label: str, *, ordered: bool) -> FakeChannel:
        return FakeChannel(
            self.net,
            label,
            ordered=ordered,
            is_held_up=lambda: self.is_held_up,
            within=self.owner.within,
        )

    @property
    def is_held_up(self) -> bool:
        """Nothing gets through now: the path is cut, or the process at either end is frozen."""
        return (
            self.owner.frozen
            or self.other.owner.frozen
            or self.net.is_cut(self.peer_id, self.owner.peer_id)
        )

    def listen(self, listener: ConnectionListener) -> None:
        self._listener = listener
        early, self._early = self._early, []
        for value in early:
            listener.message(value)
        if self._lost_because is not None:
            listener.closed(self._lost_because)

    def send(self, message: Mapping[str, Any]) -> None:
        packed = pack(message)
        if len(packed) > MAX_MESSAGE_BYTES:
            raise WireError(f"a message of {len(packed)} bytes is longer than peers take")
        self.main.send(packed)

    async def drain(self) -> None:
        while self.main.buffered() > 0:
            await asyncio.sleep(0.01)
        if not self.is_open:
            raise ChannelClosed("the connection is closed")

    def binding(self) -> str:
        return self.binding_text

    def pair(self) -> CandidatePair | None:
        return self.net.path

    def close(self) -> None:
        self._listener = None
        self.main.close()
        self.wire.is_open = self.keepalive.is_open = False

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)

    def lose(self, reason: str, *, path_broke: bool = False) -> None:
        """The connection ends at this end, which did not ask for it."""
        if self._lost_because is not None or self.owner.gone:
            return
        if self.owner.frozen:
            self.net.call_at(
                self.net.now() + self.net.weather.retry_s,
                lambda: self.lose(reason, path_broke=path_broke),
            )
            return
        self._lost_because, self.path_broke = reason, path_broke
        self.main.is_open = False
        self.keepalive.is_open = False
        self.wire.end()
        listener, self._listener = self._listener, None
        if listener is not None:
            self.owner.within(listener.closed, reason)

    def die(self) -> None:
        """The engine notices that nothing comes through any more; soon the other one does."""
        at = self.net.now() + self.net.between(ENGINE_GIVES_UP_S)
        self.net.call_at(at, partial(self.other.lose, "The path broke.", path_broke=True))
        self.lose("The path to the other device broke.", path_broke=True)

    def cut(self) -> None:
        """Nothing passes any more, both ways; both ends still look open."""
        for end in (self, self.other):
            for channel in (end.main, end.wire, end.keepalive):
                channel.silence()

    def _received(self, data: bytes) -> None:
        value = unpack(data)
        if self._listener is None:
            self._early.append(value)
        else:
            self._listener.heard()
            self._listener.message(value)


class FakeDialer:
    """The introductions of one device. Satisfies ``Dialer``."""

    def __init__(self, net: FakeNet, peer_id: str) -> None:
        self.peer_id = peer_id
        self.on_incoming: Callable[[ConnectionPort], None] = _ignore
        self.on_signaling: Callable[[bool], None] = _ignore
        self.frozen = False
        """Its process is stopped: nothing comes in or goes out, and nothing is lost."""
        self.gone = False
        """Its process is dead."""
        self.connections: list[FakeConnection] = []
        """This device's ends, in the order they were made."""
        self.context: Context | None = None
        """Of its process, when the test has several: what comes in runs within it."""
        self.dials: list[tuple[str, str | None]] = []
        self._net = net

    def within(self, call: Callable[..., None], *args: Any) -> None:
        """Call as a part of this device's process."""
        if self.context is None:
            call(*args)
        else:
            self.context.copy().run(call, *args)  # a copy: it may be inside already

    def arrived(self, connection: FakeConnection) -> None:
        """A connection that another device dialed stands; a stopped process sees it later."""
        if self.frozen:
            self._net.call_at(self._net.now() + self._net.weather.retry_s, self.arrived, connection)
        else:
            self.within(self.on_incoming, connection)

    def signaling_is(self, up: bool) -> None:
        """The signaling server was lost or is back; a stopped process learns the last of it."""
        if self.frozen:
            now = self._net.now()
            self._net.call_at(
                now + self._net.weather.retry_s,
                lambda: self.signaling_is(self._net.signaling_is_up),
            )
        else:
            self.within(self.on_signaling, up)

    async def connect(
        self, peer_id: str, *, label: str | None = None, timeout_s: float
    ) -> FakeConnection:
        self.dials.append((peer_id, label))
        try:
            async with asyncio.timeout(timeout_s):
                return await self._net.introduce(self, peer_id, label)
        except TimeoutError as error:
            raise LinkFailed("timeout", "The other device did not answer in time.") from error

    def hurry(self) -> None:
        """A server that is back is noticed at once here."""

    async def close(self) -> None:
        if self._net.devices.get(self.peer_id) is self:
            del self._net.devices[self.peer_id]

    def vanish(self, noticed_after_s: float = 0.0) -> None:
        """The process dies without a word; its peers' engines notice after a while."""
        self.gone = True
        if self._net.devices.get(self.peer_id) is self:
            del self._net.devices[self.peer_id]
        for connection in self.connections:
            connection.cut()
            self._net.call_at(
                self._net.now() + noticed_after_s,
                connection.other.die,
            )


@dataclass
class FakeNet:
    """Signaling and paths between all devices of one test."""

    seed: int = 0
    weather: Weather = CALM
    devices: dict[str, FakeDialer] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    """Devices that signaling knows and to which no path leads."""
    signaling_is_up: bool = True
    cuts: set[frozenset[str]] = field(default_factory=set)
    """Pairs of devices between which nothing passes for now."""
    path: CandidatePair | None = APART
    """What every association says of its path."""
    someone_between: bool = False
    """The signaling server swaps fingerprints: each end's association ends at somebody else."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._made = 0

    def dialer(self, peer_id: str | None = None) -> FakeDialer:
        """A new device, with an id of the server unless it brings one."""
        self._made += 1
        dialer = FakeDialer(self, peer_id or f"{self._chance.getrandbits(32):08x}-{self._made}")
        self.devices[dialer.peer_id] = dialer
        return dialer

    def set_signaling(self, up: bool) -> None:
        """Lose the signaling server, or bring it back; open connections stay."""
        self.signaling_is_up = up
        for dialer in list(self.devices.values()):
            dialer.signaling_is(up)

    def cut(self, one: str, two: str) -> None:
        """Let nothing pass between two devices; their engines give up after a while."""
        pair = frozenset({one, two})
        self.cuts.add(pair)
        for dialer in [self.devices.get(one), self.devices.get(two)]:
            for connection in dialer.connections if dialer else ():
                if {connection.peer_id, connection.owner.peer_id} == pair:
                    at = self.now() + self._chance.uniform(*ENGINE_GIVES_UP_S)
                    self.call_at(at, self._die_if_cut, connection)

    def mend(self, one: str, two: str) -> None:
        """Let everything pass again."""
        self.cuts.discard(frozenset({one, two}))

    def is_cut(self, one: str, two: str) -> bool:
        return bool(self.cuts) and frozenset({one, two}) in self.cuts

    def _die_if_cut(self, connection: FakeConnection) -> None:
        if self.is_cut(connection.peer_id, connection.owner.peer_id):
            connection.die()

    async def introduce(
        self, dialer: FakeDialer, peer_id: str, label: str | None
    ) -> FakeConnection:
        """A connection that is open at the dialing end, and soon at the other."""
        if not self.signaling_is_up:
            raise LinkFailed("signaling", "The signaling server is not connected.")
        await asyncio.sleep(self._chance.uniform(*self.weather.dial_s))
        if peer_id in self.unreachable or self.is_cut(dialer.peer_id, peer_id):
            await asyncio.sleep(15.0)
            raise LinkFailed("no-path", "The two devices cannot reach each other.")
        if peer_id not in self.devices:
            await asyncio.sleep(self.weather.expire_s)
            raise LinkFailed("no-such-peer", "No device with that id is there.")
        while self.devices[peer_id].frozen or dialer.frozen:
            await asyncio.sleep(self.weather.retry_s)  # its offer waits at the signaling server
            if peer_id not in self.devices:
                raise LinkFailed("no-such-peer", "No device with that id is there.")
        connection = self._pair(dialer, self.devices[peer_id], label)
        await asyncio.sleep(self.delay())  # either end may see it first
        return connection

    def _pair(self, dialer: FakeDialer, accepter: FakeDialer, label: str | None) -> FakeConnection:
        self._made += 1
        label = label or f"dc_{self._made}"
        near = FakeConnection(self, dialer, peer_id=accepter.peer_id, label=label, dialed=True)
        far = FakeConnection(self, accepter, peer_id=dialer.peer_id, label=label, dialed=False)
        near.other, far.other = far, near
        # Every association has its own two fingerprints; someone between makes two associations.
        near.binding_text = f"sha-256 {self._made:04x}"
        far.binding_text = near.binding_text + (" forged" if self.someone_between else "")
        for name in ("main", "wire", "keepalive"):
            one, two = getattr(near, name), getattr(far, name)
            one.other, two.other = two, one
        dialer.connections.append(near)
        accepter.connections.append(far)
        self.call_at(self.now() + self.delay(), accepter.arrived, far)
        return near

    # Time and chance.

    def now(self) -> float:
        return self._loop.time()

    def call_at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        self._loop.call_at(when, call, *args, context=self._context)

    def between(self, bounds: tuple[float, float]) -> float:
        return self._chance.uniform(*bounds)

    def loses(self) -> bool:
        return self.weather.loss > 0 and self._chance.random() < self.weather.loss

    def delay(self) -> float:
        return self._chance.uniform(*self.weather.delay_s)

    def ordered_delay(self) -> float:
        """The delay of a message of which nothing may be lost."""
        delay = self.delay()
        while self.loses():
            delay += self.weather.retry_s
        return delay
