"""Associations by aiortc: slower, but pure Python and complete.

Limits (engines, pitfall 12): the first STUN and the first TURN server only, no port range, a
minimum SCTP timer of 1 s; keep large frames away from it and run it on uvloop.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

from aiortc import (
    RTCConfiguration,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.exceptions import InvalidStateError
from aiortc.rtcconfiguration import RTCIceTransportPolicy
from aiortc.sdp import candidate_from_sdp

from poolhouse_node.rtc.peer import (
    CLOSING_TIMEOUT_S,
    GATHERING_TIMEOUT_S,
    CandidatePair,
    ChannelClosed,
    MessageRefused,
    RtcError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiortc import RTCDataChannel

    from poolhouse_node.rtc.peer import Channel, Engine, IceSettings, IceState, PeerState

__all__ = ["AiortcPeer"]

_MAX_CHANNELS = 8
_OTHER_HASHES = re.compile(r"^a=fingerprint:(?!sha-256 ).*\r?\n", re.MULTILINE)

_log = logging.getLogger(__name__)


def _ignore(*_: Any) -> None:
    """The callback of those who set none."""


class _Channel:
    """One channel of aiortc. Satisfies :class:`poolhouse_node.rtc.peer.Channel`."""

    def __init__(self, native: RTCDataChannel) -> None:
        self._native = native
        self.label: str = native.label
        self.is_open = native.readyState == "open"
        self.on_open: Callable[[], None] = _ignore
        self.on_message: Callable[[bytes], None] = _ignore
        self.on_close: Callable[[], None] = _ignore
        native.on("open", self._opened)
        native.on("message", self._received)
        native.on("close", self._ended)

    def _opened(self) -> None:
        if not self.is_open:
            self.is_open = True
            self.on_open()

    def _received(self, data: bytes | str) -> None:
        self.on_message(data if isinstance(data, bytes) else data.encode())

    def _ended(self) -> None:
        self.is_open = False
        self.on_close()

    def send(self, data: bytes) -> None:
        if not self.is_open:
            raise ChannelClosed(f"The channel {self.label} is not open.")
        try:
            self._native.send(data)
        except (InvalidStateError, ValueError) as error:
            raise MessageRefused(f"The channel {self.label} refused a message.") from error

    def buffered(self) -> int:
        return int(self._native.bufferedAmount) if self.is_open else 0

    def on_low(self, threshold_bytes: int, callback: Callable[[], None]) -> None:
        self._native.bufferedAmountLowThreshold = threshold_bytes
        self._native.on("bufferedamountlow", callback)

    def close(self) -> None:
        self.is_open = False
        self._native.close()

    def detach(self) -> None:
        """Hear nothing more of the native channel."""
        self.is_open = False
        self._native.remove_all_listeners()


class AiortcPeer:
    """One association of aiortc. Satisfies :class:`poolhouse_node.rtc.peer.Peer`."""

    engine: Engine = "aiortc"

    def __init__(self, ice: IceSettings) -> None:
        if ice.port_range is not None:
            raise RtcError("aiortc cannot keep to a range of ports: use libdatachannel.")
        self.on_channel: Callable[[Channel], None] = _ignore
        self.on_state: Callable[[PeerState], None] = _ignore
        self._ice = ice
        self._channels: list[_Channel] = []
        self._closing: asyncio.Task[None] | None = None
        self._native: Any = RTCPeerConnection(_configuration(ice))
        self._native.on("datachannel", self._announced)
        self._native.on("connectionstatechange", self._state_changed)

    @property
    def state(self) -> PeerState:
        state: PeerState = self._native.connectionState
        return "closed" if self._closing else state

    @property
    def ice_state(self) -> IceState:
        state: IceState = self._native.iceConnectionState
        return state

    def _state_changed(self) -> None:
        if self._closing is None:
            self.on_state(self.state)

    def _announced(self, native: RTCDataChannel) -> None:
        if self._closing is not None or len(self._channels) >= _MAX_CHANNELS:
            native.close()
            return
        channel = _Channel(native)
        self._channels.append(channel)
        self.on_channel(channel)

    def channel(
        self,
        label: str,
        *,
        stream_id: int | None = None,
        ordered: bool = True,
        max_retransmits: int | None = None,
    ) -> Channel:
        if self._closing is not None:
            raise ChannelClosed("The association is closed.")
        channel = _Channel(
            self._native.createDataChannel(
                label,
                ordered=ordered,
                maxRetransmits=max_retransmits,
                negotiated=stream_id is not None,
                id=stream_id,
            )
        )
        self._channels.append(channel)
        return channel

    async def offer(self) -> str:
        async def make() -> None:
            offer = await self._native.createOffer()
            await self._gather(offer)

        await self._bounded(make())
        return self._local_description()

    async def answer(self, sdp: str) -> str:
        async def make() -> None:
            await self._native.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
            answer = await self._native.createAnswer()
            await self._gather(answer)

        await self._bounded(make())
        return self._local_description()

    async def accept(self, sdp: str) -> None:
        await self._bounded(
            self._native.setRemoteDescription(RTCSessionDescription(sdp, "answer")),
        )

    async def add_candidate(self, candidate: str, mid: str) -> None:
        async def add() -> None:
            parsed = candidate_from_sdp(candidate.partition(":")[2])
            parsed.sdpMid = mid
            await self._native.addIceCandidate(parsed)

        await self._bounded(add())

    async def _gather(self, description: RTCSessionDescription) -> None:
        if self._ice.bind is not None:
            self._gather_only_on([] if self._ice.relay_only else [self._ice.bind])
        await self._native.setLocalDescription(description)

    def _gather_only_on(self, own: list[str]) -> None:
        """aioice offers no choice of addresses: replace them on their way into its gathering."""
        ice = self._native.sctp.transport.transport._connection  # noqa: SLF001  no public way
        gather = ice.get_component_candidates

        async def bound(component: int, addresses: list[str], timeout: int = 5) -> Any:
            return await gather(component, own, timeout)

        ice.get_component_candidates = bound

    async def _bounded(self, call: Awaitable[None]) -> None:
        """Run a call of aiortc; what it raises on a peer's bad input can be anything."""
        try:
            async with asyncio.timeout(GATHERING_TIMEOUT_S):
                await call
        except TimeoutError as error:
            raise RtcError("aiortc did not finish looking for addresses in time.") from error
        except Exception as error:
            raise RtcError(f"aiortc refused what the peer sent: {error!r}.") from error

    def _local_description(self) -> str:
        sdp, _ = self.descriptions()
        if sdp is None or "a=candidate:" not in sdp:
            raise RtcError(self._ice.no_address_sentence())
        return sdp

    def descriptions(self) -> tuple[str | None, str | None]:
        local, remote = self._native.localDescription, self._native.remoteDescription
        return local and _one_fingerprint(local.sdp), remote and remote.sdp

    def pair(self) -> CandidatePair | None:
        if self._native.sctp is None:
            return None
        ice = self._native.sctp.transport.transport._connection  # noqa: SLF001  no public way
        chosen = ice._nominated.get(1)  # noqa: SLF001
        if chosen is None:
            return None
        ours, theirs = chosen.local_candidate, chosen.remote_candidate
        return CandidatePair(ours.type, theirs.type, same_address=ours.host == theirs.host)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._native.close())
            for channel in self._channels:
                channel.detach()
            self._channels.clear()
            self._native.remove_all_listeners()
        try:
            async with asyncio.timeout(CLOSING_TIMEOUT_S):
                await asyncio.shield(self._closing)
        except TimeoutError:
            _log.warning("association.closing_late: aiortc did not close in time")
            self._closing.cancel()


def _one_fingerprint(sdp: str) -> str:
    """aiortc shows its certificate under three hashes; an end that shows more than one value
    binds nothing (joining, section 5)."""
    return _OTHER_HASHES.sub("", sdp)


def _configuration(ice: IceSettings) -> RTCConfiguration:
    servers = [RTCIceServer(urls=url) for url in ice.stun[:1]]
    servers += [
        RTCIceServer(urls=turn.url, username=turn.username, credential=turn.credential)
        for turn in ice.turn[:1]
    ]
    policy = RTCIceTransportPolicy.RELAY if ice.relay_only else RTCIceTransportPolicy.ALL
    return RTCConfiguration(iceServers=servers, iceTransportPolicy=policy)
