"""The rules of signaling, without sockets or a clock.

Drive it with what happened and the time it happened; perform the commands it returns in order.
Commands that ask the presence store are answered through ``claimed``, ``routed`` and ``expired``.
The hub knows the sockets of its own process; the store knows who owns an id anywhere, and what
other replicas say comes in through ``arrived``, ``kicked`` and ``lost``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_control.errors import BadFrame, IgnoredFrame
from poolhouse_control.signaling import messages
from poolhouse_control.signaling.admission import objection
from poolhouse_control.signaling.claims import Claims
from poolhouse_control.signaling.commands import (
    Claim,
    Close,
    CloseCode,
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
from poolhouse_control.signaling.presence import (
    Away,
    Claimed,
    Forwarded,
    Here,
    Parcel,
    Queued,
    QueueFull,
    Taken,
)
from poolhouse_control.signaling.roster import Peer, Roster
from poolhouse_control.signaling.tally import (
    ConnectOutcome,
    Direction,
    DisconnectReason,
    DroppedFrame,
    RelayKind,
    RelayRoute,
    Tally,
)
from poolhouse_control.signaling.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from poolhouse_control.signaling.limits import Limits
    from poolhouse_control.signaling.messages import ConnectParams
    from poolhouse_control.signaling.presence import Owned, RouteResult

__all__ = ["Hub"]


class Hub:
    """Registration, relay, expiry and liveness for the sockets of one process."""

    def __init__(
        self, limits: Limits, *, key: str, origins: tuple[str, ...] = (), tally: Tally | None = None
    ) -> None:
        self._limits = limits
        self._key = key
        self._origins = origins
        self.tally = tally or Tally()
        self._roster = Roster()
        self._claims = Claims(limits.max_queued_per_peer)
        self._waits = Waits(limits.expire_after_s)

    @property
    def peer_count(self) -> int:
        """Registered ids."""
        return len(self._roster)

    @property
    def waiting_count(self) -> int:
        """Messages of peers here that wait for an absent one."""
        return self._waits.count

    def peer_ids(self) -> list[str]:
        """Registered ids, oldest registration first."""
        return self._roster.ids()

    def is_registered(self, socket: SocketId) -> bool:
        """Tell whether the socket owns an id now."""
        return self._roster.at(socket) is not None

    def owned(self) -> list[Owned]:
        """Ids and epochs, to confirm with the store."""
        return self._roster.owned()

    def sockets(self) -> list[SocketId]:
        """Registered sockets that were not dismissed."""
        return self._roster.sockets()

    # Opening (signaling, 2)

    def connect(self, socket: SocketId, params: ConnectParams) -> Commands:
        """Check what a new socket says of itself: a refusal, or a claim to put to the store."""
        fault = objection(params, key=self._key, origins=self._origins)
        if fault is not None:
            return self._refuse(socket, fault.outcome, fault.sentence)
        if self.peer_count >= self._limits.max_peers and params.peer_id not in self._roster:
            sentence = "Server has reached its concurrent user limit"
            return self._refuse(socket, ConnectOutcome.LIMIT, sentence, CloseCode.FULL)
        claim = Claim(socket, params.peer_id, params.token)
        self._claims.begin(claim)
        return (claim,)

    def turned_away(self, outcome: ConnectOutcome) -> None:
        """Count a socket that was refused before it could say who it is."""
        self.tally.connects[outcome] += 1

    def claimed(self, claim: Claim, result: Claimed | Taken | Away, now: float) -> Commands:
        """Answer of the store to a ``Claim``."""
        settled = self._claims.settle(claim)
        owned = False
        if isinstance(result, Claimed):
            if settled.vanished:  # closed while the store was asked: hand back what it gave
                commands = self._hand_back(claim.peer_id, result)
            elif self._is_void(claim.peer_id, result.epoch, settled.void_to):
                commands = self._taken_meanwhile(claim, result)
            else:
                owned = True
                peer = Peer(claim.socket, claim.peer_id, result.epoch, heard_at=now)
                commands = self._open(peer, result)
        elif settled.vanished:
            commands = []
        elif isinstance(result, Taken):
            commands = self._refuse_taken(claim.socket)
        else:
            commands = self._turn_away(claim.socket)
        held = self._claims.take_held(claim.peer_id, owned=owned)
        return [*commands, *(self._pass_on(parcel) for parcel in held)]

    def _is_void(self, peer_id: str, epoch: int, void_to: int) -> bool:
        """Answers may come in another order than the store decided: the greatest epoch counts."""
        owner = self._roster.owner(peer_id)
        return epoch <= void_to or (owner is not None and owner.epoch > epoch)

    def _hand_back(self, peer_id: str, claimed: Claimed) -> list[Command]:
        return [Release(peer_id, claimed.epoch), *map(self._wait_for, claimed.waiting)]

    def _taken_meanwhile(self, claim: Claim, claimed: Claimed) -> list[Command]:
        self.tally.connects[ConnectOutcome.REPLACED] += 1
        waiting = [self._pass_on(parcel) for parcel in claimed.waiting]
        return [Close(claim.socket, CloseCode.REPLACED), *waiting]

    def _open(self, peer: Peer, claimed: Claimed) -> list[Command]:
        commands: list[Command] = []
        former = self._roster.owner(peer.peer_id)
        if former is not None:
            self._forget(former, DisconnectReason.REPLACED)
            commands.append(Close(former.socket, CloseCode.REPLACED, DisconnectReason.REPLACED))
        if claimed.took_over is not None:
            self.tally.takeovers[claimed.took_over] += 1
        self._roster.add(peer)
        self.tally.connects[ConnectOutcome.OPENED] += 1
        # OPEN comes first and also after a take-over, else the client never opens (2.2).
        commands.append(self._send(peer.socket, messages.OPEN_TEXT))
        self._waits.end(peer.peer_id)
        commands += [self._send(peer.socket, parcel.text) for parcel in claimed.waiting]
        return commands

    def _refuse(
        self,
        socket: SocketId,
        outcome: ConnectOutcome,
        sentence: str,
        code: CloseCode = CloseCode.POLICY,
    ) -> list[Command]:
        # A message, then the close: a bare close looks like an outage to clients (2).
        self.tally.connects[outcome] += 1
        return [self._send(socket, messages.error_text(sentence)), Close(socket, code)]

    def _refuse_taken(self, socket: SocketId) -> list[Command]:
        self.tally.connects[ConnectOutcome.ID_TAKEN] += 1
        return [self._send(socket, messages.ID_TAKEN_TEXT), Close(socket, CloseCode.POLICY)]

    def _turn_away(self, socket: SocketId) -> list[Command]:
        """A bare close on purpose: an outage should look like one, clients then come again."""
        self.tally.connects[ConnectOutcome.STORE_DOWN] += 1
        return [Close(socket, CloseCode.FULL)]

    # Frames (signaling, 3 and 4)

    def frame(self, socket: SocketId, data: str | bytes, now: float) -> Commands:
        """Act on a frame of a registered socket. Anything from another socket is dropped."""
        peer = self._roster.at(socket)
        if peer is None:
            return ()
        self._roster.heard(peer, now)
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

    def _bad_frame(self, peer: Peer) -> Commands:
        self.tally.dropped_frames[DroppedFrame.BAD] += 1
        peer.bad_frames += 1
        if peer.bad_frames < self._limits.max_bad_frames:
            return ()
        return self._cut(peer, DisconnectReason.BAD_FRAMES, CloseCode.POLICY)

    def _relay(self, peer: Peer, message: Relayable) -> Commands:
        dst = message.dst
        if not dst:
            if isinstance(message, Leave):  # signs off: the id is free and the socket ends (4.2)
                return self._cut(peer, DisconnectReason.LEFT, CloseCode.NORMAL)
            return self._drop(message.kind)
        text = messages.relay_text(message, src=peer.peer_id, dst=dst)
        receiver = self._roster.owner(dst)
        if receiver is not None:
            self.tally.messages[message.kind, RelayRoute.LOCAL] += 1
            return (self._send(receiver.socket, text),)
        parcel = Parcel(message.kind, peer.peer_id, dst, text)
        if self._claims.hold(parcel):
            self.tally.messages[message.kind, RelayRoute.LOCAL] += 1
            return ()
        return self._to_absent(parcel)

    def _to_absent(self, parcel: Parcel) -> Commands:
        route = self._wait_for(parcel)
        if route.may_wait and not self._may_queue(parcel):
            return self._undelivered(parcel)
        # Nobody can ever have an id against the rule: the store need not be asked.
        return (route,) if messages.is_peer_id(parcel.dst) else self._drop(parcel.kind)

    def _wait_for(self, parcel: Parcel, hop: int = 0) -> Route:
        """Goodbyes and notices to who is not there are dropped; the rest waits (4.1, rule 7)."""
        may_wait = parcel.kind not in (RelayKind.LEAVE, RelayKind.EXPIRE)
        return Route(parcel, may_wait=may_wait, hop=hop)

    def _may_queue(self, parcel: Parcel) -> bool:
        """Each sender has a share, and the server has one."""
        limits = self._limits
        has_share = self._waits.of_sender(parcel.src) < limits.max_queued_per_sender
        has_room = self._waits.count < limits.max_queued
        return has_share and has_room and messages.is_peer_id(parcel.dst)

    def routed(self, route: Route, result: RouteResult, now: float) -> Commands:
        """Answer of the store to a ``Route``."""
        parcel = route.parcel
        match result:
            case Here():
                return self._found_here(parcel)
            case Forwarded():
                self.tally.messages[parcel.kind, RelayRoute.REMOTE] += 1
            case Queued():
                self.tally.messages[parcel.kind, RelayRoute.QUEUED] += 1
                self._waits.add(parcel, result, now)
            case QueueFull() | Away() if route.may_wait:
                return self._undelivered(parcel)
            case _:
                return self._drop(parcel.kind)
        return ()

    def _found_here(self, parcel: Parcel) -> Commands:
        """It came while the store was asked; or it just went, and then the store must keep it."""
        self.tally.messages[parcel.kind, RelayRoute.LOCAL] += 1
        if parcel.dst not in self._roster and self._claims.hold(parcel):
            return ()
        return (self._pass_on(parcel),)

    def _pass_on(self, parcel: Parcel) -> Command:
        """Give a parcel to its receiver here, or send it on for the first time."""
        receiver = self._roster.owner(parcel.dst)
        return self._send(receiver.socket, parcel.text) if receiver else self._wait_for(parcel, 1)

    def _undelivered(self, parcel: Parcel) -> Commands:
        """Nowhere to wait: better told at once than never (4.3). Monsters are not echoed."""
        self._drop(parcel.kind)
        if len(parcel.dst) > MAX_PEER_ID_CHARS:
            return ()
        return self._notify_expired(parcel.dst, (parcel.src,))

    def _drop(self, kind: RelayKind) -> Commands:
        self.tally.messages[kind, RelayRoute.DROPPED] += 1
        return ()

    def _send(self, socket: SocketId, text: str) -> Send:
        self.tally.message_bytes[Direction.OUT] += messages.wire_size(text)
        return Send(socket, text)

    # Waiting for absent peers (signaling, 4.3)

    def expired(self, expire: Expire, still_waiting: Iterable[int]) -> Commands:
        """Answer of the store to an ``Expire``: each sender hears of it once."""
        senders = dict.fromkeys(expire.senders[ticket] for ticket in still_waiting)
        return self._notify_expired(expire.peer_id, senders)

    def _notify_expired(self, absent: str, senders: Iterable[str]) -> Commands:
        return [self._notice(absent, sender) for sender in senders]

    def _notice(self, absent: str, sender: str) -> Command:
        text = messages.expire_text(src=absent, dst=sender)
        peer = self._roster.owner(sender)
        if peer is None:  # its parcel was sent on by this replica, or it moved since
            return self._wait_for(Parcel(RelayKind.EXPIRE, absent, sender, text))
        self.tally.expired += 1
        return self._send(peer.socket, text)

    # Other replicas

    def arrived(self, parcel: Parcel, hop: int) -> Commands:
        """Take a parcel from another replica, which sent it on ``hop`` times before."""
        receiver = self._roster.owner(parcel.dst)
        if receiver is not None:
            self.tally.expired += parcel.kind is RelayKind.EXPIRE
            return (self._send(receiver.socket, parcel.text),)
        if self._claims.hold(parcel):
            return ()
        self.tally.rerouted += 1
        return (self._wait_for(parcel, hop + 1),)

    def kicked(self, peer_id: str, epoch: int) -> Commands:
        """Another replica took the id over from its claim ``epoch``. A newer one is not meant."""
        self._claims.void(peer_id, epoch)
        peer = self._roster.owner(peer_id)
        return self._evict(peer) if peer is not None and peer.epoch <= epoch else ()

    def lost(self, owned: Iterable[Owned]) -> Commands:
        """Cut the sockets of claims that, says the store, are void."""
        commands: list[Command] = []
        for peer_id, epoch in owned:
            peer = self._roster.owner(peer_id)
            if peer is not None and peer.epoch == epoch:
                commands += self._evict(peer)
        return commands

    def _evict(self, peer: Peer) -> Commands:
        """Cut a socket whose id is somebody else's: there is nothing to release."""
        self._forget(peer, DisconnectReason.LOST_ID)
        return (Close(peer.socket, CloseCode.REPLACED, DisconnectReason.LOST_ID),)

    def dismiss(self, socket: SocketId) -> Commands:
        """Send a client to another replica: hand its id over, ask it to close.

        What it says until it has answered the close is still relayed; what is for it waits.
        """
        peer = self._roster.at(socket)
        if peer is None or peer.is_dismissed:
            return ()
        self._roster.dismiss(peer)
        release = Release(peer.peer_id, peer.epoch, hand_over=True)
        return release, Close(socket, CloseCode.RESTART, DisconnectReason.SHUTDOWN, hear_out=True)

    # Liveness and endings (signaling, 5)

    def tick(self, now: float) -> Commands:
        """Cut silent sockets and end waits that are due. Call it every second or oftener."""
        return [*self._cut_silent(now), *self._waits.due(now)]

    def _cut_silent(self, now: float) -> Iterable[Command]:
        while (peer := self._roster.quietest()) is not None:
            if now - peer.heard_at < self._limits.alive_timeout_s:
                return
            yield from self._cut(peer, DisconnectReason.SILENT, CloseCode.POLICY)

    def overflowed(self, socket: SocketId) -> Commands:
        """Cut a socket whose client reads too slowly: what was to be sent is lost."""
        self.tally.outbox_dropped += 1
        peer = self._roster.at(socket)
        return self._cut(peer, DisconnectReason.SLOW_READER, CloseCode.FULL) if peer else ()

    def closed(self, socket: SocketId, reason: DisconnectReason) -> Commands:
        """Take notice that a socket ended. Others are never told: links outlive it (3.2)."""
        self._claims.vanish(socket)
        peer = self._roster.at(socket)
        if peer is None:  # refused, replaced or cut before
            return ()
        return self._end(peer, reason)

    def _cut(self, peer: Peer, reason: DisconnectReason, code: CloseCode) -> Commands:
        return [*self._end(peer, reason), Close(peer.socket, code, reason)]

    def _end(self, peer: Peer, reason: DisconnectReason) -> Commands:
        self._forget(peer, DisconnectReason.SHUTDOWN if peer.is_dismissed else reason)
        return () if peer.is_dismissed else (Release(peer.peer_id, peer.epoch),)

    def _forget(self, peer: Peer, reason: DisconnectReason) -> None:
        self.tally.disconnects[reason] += 1
        self._roster.remove(peer)
