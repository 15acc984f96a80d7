"""From what a device tells to its counts: one room's events, and one room's present state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from poolhouse_node.device import events as ev
from poolhouse_node.ops import metrics as count
from poolhouse_node.ops.readings import Role, RoomReading
from poolhouse_node.room.asks import WAITING_MAX
from poolhouse_node.room.pledge import GIB, count_gb

if TYPE_CHECKING:
    from poolhouse_node.device.device import Device
    from poolhouse_node.device.events import Event
    from poolhouse_node.device.host import Host
    from poolhouse_node.device.joined import JoinedDevice
    from poolhouse_node.ops.metrics import NodeMetrics
    from poolhouse_node.room.laps import LapKind
    from poolhouse_node.rtc.network import Network

__all__ = ["RoomFeed", "read_host", "read_joined"]

_LAP_KINDS: Final[dict[LapKind, count.LapKind]] = {
    "token": count.LapKind.DECODE,
    "verify": count.LapKind.VERIFY,
    "prefill": count.LapKind.PREFILL,
}
_LEFT: Final = {
    "left": count.LeaveReason.LEFT,
    "stopped responding": count.LeaveReason.SILENT,
    "lost its connection": count.LeaveReason.LINK_LOST,
}
_HOST_LOST: Final = {
    "left": count.RejoinCause.HOST_LEFT,
    "stopped responding": count.RejoinCause.HOST_SILENT,
}


class RoomFeed:
    """Counts one room's events. What a room is now, :func:`read_host` and its sister tell."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self.has_signaling = True
        self._metrics = metrics
        self._was_dealt = False
        self._host_lost: str | None = None

    def count(self, event: Event, *, is_host: bool) -> None:
        """Count one event; some mean something else at the host."""
        match event:
            case ev.TokenMade() | ev.AnswerMeasured() | ev.AnswerResumed():
                self._answer(event)
            case ev.LapReturned(kind=kind, lap_s=lap_s):
                self._metrics.lap_s[_LAP_KINDS[kind]].observe(lap_s)
            case ev.LapTimedOut(kind=kind):
                self._metrics.lap_timeouts[_LAP_KINDS[kind]].inc()
            case ev.PingAnswered(rtt_s=rtt_s):
                self._metrics.rtt_s.observe(rtt_s)
            case ev.SignalingChanged(connected=connected):
                self.has_signaling = connected
            case _ if is_host:
                self._at_the_host(event)
            case _:
                self._at_a_joined_device(event)

    def _answer(self, event: ev.TokenMade | ev.AnswerMeasured | ev.AnswerResumed) -> None:
        metrics = self._metrics
        match event:
            case ev.TokenMade(gap_s=gap_s):
                metrics.tokens[count.TokenKind.ANSWER].inc()
                if gap_s is not None:
                    metrics.inter_token_s.observe(gap_s)
            case ev.AnswerResumed():
                metrics.resumed.inc()
            case ev.AnswerMeasured():
                self._answer_ended(event)

    def _answer_ended(self, answer: ev.AnswerMeasured) -> None:
        metrics = self._metrics
        metrics.generations[count.GenOutcome(answer.outcome)].inc()
        metrics.tokens[count.TokenKind.PROMPT].inc(answer.prompt_tokens)
        metrics.queue_s.observe(answer.queued_s)
        metrics.generation_s.observe(answer.took_s)
        metrics.prompt_tokens.observe(answer.prompt_tokens)
        metrics.answer_tokens.observe(answer.answer_tokens)
        if answer.ttft_s is not None:
            metrics.first_token_s.observe(answer.ttft_s)

    def _at_the_host(self, event: Event) -> None:
        match event:
            case ev.DeviceJoined():
                self._metrics.devices_joined.inc()
            case ev.DeviceLeft(verb=verb):
                self._metrics.devices_left[_LEFT.get(verb, count.LeaveReason.OTHER)].inc()
            case ev.Dealt():
                cause = count.DealCause.AGAIN if self._was_dealt else count.DealCause.FIRST
                self._metrics.deals[cause].inc()
                self._was_dealt = True

    def _at_a_joined_device(self, event: Event) -> None:
        match event:
            case ev.HostLost(verb=verb):
                self._host_lost = verb
            case ev.HostFound() if self._host_lost is not None:
                cause = _HOST_LOST.get(self._host_lost, count.RejoinCause.LINK_LOST)
                self._metrics.rejoins[cause].inc()
                self._host_lost = None


def read_host(host: Host, feed: RoomFeed) -> RoomReading:
    """A room that this device hosts."""
    own = host.shares[0] if host.shares else None
    return _reading(
        host,
        feed,
        role=Role.HOST,
        is_connected=True,
        pledge_gb=count_gb(host.identity.meta.get("contribGB")),
        layers=own.hi - own.lo if own else 0,
        queue_length=host.questions_waiting,
        queue_limit=WAITING_MAX,
    )


def read_joined(device: JoinedDevice, feed: RoomFeed) -> RoomReading:
    """A room that this device joined."""
    lo, hi = device.worker.layers or (0, 0)
    role = Role.WORKER if hi else Role.GUEST
    return _reading(
        device,
        feed,
        role=role,
        is_connected=device.is_inside,
        pledge_gb=device.lends_gb,
        layers=hi - lo,
    )


def _reading(
    device: Device,
    feed: RoomFeed,
    *,
    role: Role,
    is_connected: bool,
    pledge_gb: float,
    layers: int,
    queue_length: int = 0,
    queue_limit: int = 0,
) -> RoomReading:
    network = cast("Network", device.network)  # the port is for what a device needs
    open_links = [link for link in network.links.values() if link.is_open]
    admitted = [link for link in open_links if link.admitted]
    return RoomReading(
        role=role,
        is_connected=is_connected,
        has_signaling=feed.has_signaling,
        layers=layers,
        pledge_bytes=round(pledge_gb * GIB),
        links_open=len(admitted),
        links_held=len(open_links) - len(admitted),
        links_relayed=sum(link.is_relayed for link in admitted),
        buffered_bytes=sum(link.buffered_bytes for link in open_links),
        carried=network.counts(),
        queue_length=queue_length,
        queue_limit=queue_limit,
    )
