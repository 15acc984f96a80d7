"""The rules of signaling, without sockets or a clock.

Drive it with what happened and the time it happened; perform the commands it returns in order.
Commands that ask the presence store are answered through ``claimed``, ``routed`` and ``expired``.
The hub knows the sockets of its own process; the store knows who owns an id anywhere.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from poolhouse_control.errors import BadFrame, IgnoredFrame
from poolhouse_control.signaling import messages
from poolhouse_control.signaling.commands import (
    Claim,
    Close,
    Command,
    Commands,
    Expire,
    Release,
    Route,
    Send,
    SocketId,
)
from poolhouse_control.signaling.limits import MAX_PEER_ID_CHARS
from poolhouse_control.signaling.messages import Heartbeat, Leave, Relayable
from poolhouse_control.signaling.origins import is_listed
from poolhouse_control.signaling.presence import Claimed, Parcel, Queued, QueueFull, Taken
from poolhouse_control.signaling.tally import (
    ConnectOutcome,
    Direction,
    DisconnectReason,
    DroppedFrame,
    RelayKind,
    RelayRoute,
    TakeoverKind,
    Tally,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from poolhouse_control.signaling.limits import Limits
    from poolhouse_control.signaling.messages import ConnectParams
    from poolhouse_control.signaling.presence import RouteResult

__all__ = ["CLOSE_REPLACED", "Hub"]

# Clients ignore close codes (signaling, 2.1); they are for people who read traces.
_CLOSE_NORMAL: Final = 1000
_CLOSE_POLICY: Final = 1008
_CLOSE_FULL: Final = 1013
CLOSE_REPLACED: Final = 4001
"""Another socket with the same token took the id over."""


@dataclass(slots=True)
class _Peer:
    """A registered socket."""

    socket: SocketId
    peer_id: str
    epoch: int
    heard_at: float
    bad_frames: int = 0


@dataclass(slots=True)
class _Wait:
    """Parcels from here that wait in one life of an absent peer's queue."""

    queue: int
    due_at: float
    senders: dict[int, str] = field(default_factory=dict)


class Hub:
    """Registration, relay, expiry and liveness for the sockets of one process."""

    def __init__(
        self, limits: Limits, *, key: str, origins: tuple[str, ...] = (), tally: Tally | None = None
    ) -> None:
        self._limits = limits
        self._key = key
        self._origins = origins
        self.tally = tally or Tally()
        self._owners: dict[str, _Peer] = {}
        # In the order of their last sign of life: a sweep looks at the quiet end only.
        self._peers: OrderedDict[SocketId, _Peer] = OrderedDict()
        self._claiming: set[SocketId] = set()
        self._waits: dict[str, _Wait] = {}
        self._due: list[tuple[float, str, int]] = []
        self._waiting_of: Counter[str] = Counter()

    @property
    def peer_count(self) -> int:
        """Registered ids."""
        return len(self._owners)

    def peer_ids(self) -> list[str]:
        """Registered ids, oldest registration first."""
        return list(self._owners)

    def is_registered(self, socket: SocketId) -> bool:
        """Tell whether the socket owns an id now."""
        return socket in self._peers

    def owned(self) -> list[tuple[str, int]]:
        """Ids and epochs, to confirm with the store."""
        return [(peer.peer_id, peer.epoch) for peer in self._peers.values()]

    # Opening (signaling, 2)

    def connect(self, socket: SocketId, params: ConnectParams) -> Commands:
        """Check what a new socket says of itself: a refusal, or a claim to put to the store."""
        if not is_listed(params.origin, self._origins):
            return self._refuse(socket, ConnectOutcome.ORIGIN, "Origin not allowed")
        if not (params.peer_id and params.token and params.key):
            sentence = "No id, token, or key supplied to websocket server"
            return self._refuse(socket, ConnectOutcome.BAD_PARAMS, sentence)
        if params.key != self._key:
            return self._refuse(socket, ConnectOutcome.BAD_KEY, "Invalid key provided")
        if not messages.is_peer_id(params.peer_id) or not messages.is_token(params.token):
            sentence = (
                "An id is letters and digits, joined by single spaces, hyphens or underscores, "
                f"at most {MAX_PEER_ID_CHARS} characters; a token is not empty and not huge"
            )
            return self._refuse(socket, ConnectOutcome.BAD_PARAMS, sentence)
        if self.peer_count >= self._limits.max_peers and params.peer_id not in self._owners:
            sentence = "Server has reached its concurrent user limit"
            return self._refuse(socket, ConnectOutcome.LIMIT, sentence, _CLOSE_FULL)
        self._claiming.add(socket)
        return (Claim(socket, params.peer_id, params.token),)

    def claimed(self, claim: Claim, result: Claimed | Taken, now: float) -> Commands:
        """Answer of the store to a ``Claim``."""
        socket, peer_id = claim.socket, claim.peer_id
        vanished = socket not in self._claiming
        self._claiming.discard(socket)
        if isinstance(result, Taken):
            return () if vanished else self._refuse_taken(socket)
        if vanished:  # closed while the store was asked: hand back what it gave
            back = [Route(parcel, may_wait=True) for parcel in result.waiting]
            return [Release(peer_id, result.epoch), *back]
        return self._open(_Peer(socket, peer_id, result.epoch, heard_at=now), result)

    def _open(self, peer: _Peer, claimed: Claimed) -> Commands:
        commands: list[Command] = []
        former = self._owners.get(peer.peer_id)
        if former is not None:
            self._forget(former, DisconnectReason.REPLACED)
            commands.append(Close(former.socket, CLOSE_REPLACED, DisconnectReason.REPLACED))
        if claimed.took_over:
            self.tally.takeovers[TakeoverKind.SAME_TOKEN] += 1
        self._owners[peer.peer_id] = peer
        self._peers[peer.socket] = peer
        self.tally.connects[ConnectOutcome.OPENED] += 1
        # OPEN comes first and also after a take-over, else the client never opens (2.2).
        commands.append(self._send(peer.socket, messages.OPEN_TEXT))
        self._end_wait(peer.peer_id)
        commands += [self._send(peer.socket, parcel.text) for parcel in claimed.waiting]
        return commands

    def _refuse(
        self, socket: SocketId, outcome: ConnectOutcome, sentence: str, code: int = _CLOSE_POLICY
    ) -> Commands:
        # A message, then the close: a bare close looks like an outage to clients (2).
        self.tally.connects[outcome] += 1
        return self._send(socket, messages.error_text(sentence)), Close(socket, code)

    def _refuse_taken(self, socket: SocketId) -> Commands:
        self.tally.connects[ConnectOutcome.ID_TAKEN] += 1
        return self._send(socket, messages.ID_TAKEN_TEXT), Close(socket, _CLOSE_POLICY)

    # Frames (signaling, 3 and 4)

    def frame(self, socket: SocketId, data: str | bytes, now: float) -> Commands:
        """Act on a frame of a registered socket. Anything from another socket is dropped."""
        peer = self._peers.get(socket)
        if peer is None:
            return ()
        peer.heard_at = now
        self._peers.move_to_end(socket)
        self.tally.message_bytes[Direction.IN] += messages.wire_size(data)
        try:
            message = messages.parse_frame(data)
        except IgnoredFrame:
            self.tally.dropped_frames[DroppedFrame.IGNORED] += 1
            return ()
        except BadFrame:
            return self._bad_frame(peer)
        if isinstance(message, Heartbeat):
            self.tally.heartbeats += 1
            return ()
        return self._relay(peer, message)

    def _bad_frame(self, peer: _Peer) -> Commands:
        self.tally.dropped_frames[DroppedFrame.BAD] += 1
        peer.bad_frames += 1
        if peer.bad_frames < self._limits.max_bad_frames:
            return ()
        return self._cut(peer, DisconnectReason.BAD_FRAMES, _CLOSE_POLICY)

    def _relay(self, peer: _Peer, message: Relayable) -> Commands:
        dst = message.dst
        if not dst:
            if isinstance(message, Leave):  # signs off: the id is free and the socket ends (4.2)
                return self._cut(peer, DisconnectReason.LEFT, _CLOSE_NORMAL)
            return self._drop(message.kind)
        text = messages.relay_text(message, src=peer.peer_id, dst=dst)
        receiver = self._owners.get(dst)
        if receiver is not None:
            self.tally.messages[message.kind, RelayRoute.LOCAL] += 1
            return (self._send(receiver.socket, text),)
        return self._to_absent(Parcel(message.kind, peer.peer_id, dst, text))

    def _to_absent(self, parcel: Parcel) -> Commands:
        if len(parcel.dst) > MAX_PEER_ID_CHARS:
            return self._drop(parcel.kind)
        may_wait = parcel.kind is not RelayKind.LEAVE
        if may_wait and not self._may_queue(parcel):
            return self._undelivered(parcel)
        return (Route(parcel, may_wait=may_wait),)

    def _may_queue(self, parcel: Parcel) -> bool:
        """Nobody can ever register an id against the rule; and each sender has a share."""
        has_share = self._waiting_of[parcel.src] < self._limits.max_queued_per_sender
        return has_share and messages.is_peer_id(parcel.dst)

    def routed(self, route: Route, result: RouteResult, now: float) -> Commands:
        """Answer of the store to a ``Route``."""
        parcel = route.parcel
        if isinstance(result, Queued):
            self.tally.messages[parcel.kind, RelayRoute.QUEUED] += 1
            self._await_receiver(parcel, result, now)
            return ()
        if isinstance(result, QueueFull):
            return self._undelivered(parcel)
        return self._drop(parcel.kind)

    def _undelivered(self, parcel: Parcel) -> Commands:
        """No room to wait: better told at once than never (4.3)."""
        self._drop(parcel.kind)
        return self._notify_expired(parcel.dst, (parcel.src,))

    def _drop(self, kind: RelayKind) -> Commands:
        self.tally.messages[kind, RelayRoute.DROPPED] += 1
        return ()

    def _send(self, socket: SocketId, text: str) -> Send:
        self.tally.message_bytes[Direction.OUT] += messages.wire_size(text)
        return Send(socket, text)

    # Waiting for absent peers (signaling, 4.3)

    def _await_receiver(self, parcel: Parcel, queued: Queued, now: float) -> None:
        wait = self._waits.get(parcel.dst)
        if wait is None or wait.queue != queued.queue:
            self._end_wait(parcel.dst)  # an earlier queue was delivered elsewhere
            due_at = now - queued.waited_s + self._limits.expire_after_s
            wait = self._waits[parcel.dst] = _Wait(queued.queue, due_at)
            heapq.heappush(self._due, (due_at, parcel.dst, queued.queue))
        wait.senders[queued.ticket] = parcel.src
        self._waiting_of[parcel.src] += 1

    def _end_wait(self, peer_id: str) -> _Wait | None:
        wait = self._waits.pop(peer_id, None)
        if wait is not None:
            for sender in wait.senders.values():
                self._waiting_of[sender] -= 1
                if not self._waiting_of[sender]:
                    del self._waiting_of[sender]
        return wait

    def _due_waits(self, now: float) -> Iterable[Command]:
        while self._due and self._due[0][0] <= now:
            _, peer_id, queue = heapq.heappop(self._due)
            wait = self._waits.get(peer_id)
            if wait is not None and wait.queue == queue:
                self._end_wait(peer_id)
                yield Expire(peer_id, wait.senders)

    def expired(self, expire: Expire, still_waiting: Iterable[int]) -> Commands:
        """Answer of the store to an ``Expire``: each sender hears of it once."""
        senders = dict.fromkeys(expire.senders[ticket] for ticket in still_waiting)
        return self._notify_expired(expire.peer_id, senders)

    def _notify_expired(self, absent: str, senders: Iterable[str]) -> Commands:
        here = [peer for sender in senders if (peer := self._owners.get(sender)) is not None]
        self.tally.expired += len(here)
        return [
            self._send(peer.socket, messages.expire_text(src=absent, dst=peer.peer_id))
            for peer in here
        ]

    # Liveness and endings (signaling, 5)

    def tick(self, now: float) -> Commands:
        """Cut silent sockets and end waits that are due. Call it every second or oftener."""
        return [*self._cut_silent(now), *self._due_waits(now)]

    def _cut_silent(self, now: float) -> Iterable[Command]:
        while self._peers:
            peer = next(iter(self._peers.values()))
            if now - peer.heard_at < self._limits.alive_timeout_s:
                return
            yield from self._cut(peer, DisconnectReason.SILENT, _CLOSE_POLICY)

    def overflowed(self, socket: SocketId) -> Commands:
        """Cut a socket whose client reads too slowly: what was to be sent is lost."""
        self.tally.outbox_dropped += 1
        peer = self._peers.get(socket)
        return self._cut(peer, DisconnectReason.SLOW_READER, _CLOSE_FULL) if peer else ()

    def lost(self, peer_ids: Iterable[str]) -> Commands:
        """Cut the sockets of ids that, says the store, are somebody else's now."""
        peers = [peer for peer_id in peer_ids if (peer := self._owners.get(peer_id))]
        cut = [self._cut(peer, DisconnectReason.LOST_ID, CLOSE_REPLACED) for peer in peers]
        return [command for commands in cut for command in commands]

    def closed(self, socket: SocketId, reason: DisconnectReason) -> Commands:
        """Take notice that a socket ended. Others are never told: links outlive it (3.2)."""
        self._claiming.discard(socket)
        peer = self._peers.get(socket)
        if peer is None:  # refused, replaced or cut before
            return ()
        self._forget(peer, reason)
        return (Release(peer.peer_id, peer.epoch),)

    def _cut(self, peer: _Peer, reason: DisconnectReason, code: int) -> Commands:
        self._forget(peer, reason)
        return Release(peer.peer_id, peer.epoch), Close(peer.socket, code, reason)

    def _forget(self, peer: _Peer, reason: DisconnectReason) -> None:
        self.tally.disconnects[reason] += 1
        del self._peers[peer.socket]
        del self._owners[peer.peer_id]
