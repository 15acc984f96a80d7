"""Associations by libdatachannel, over the ``_core`` layer of aiolibdatachannel.

Its public channel class is not used: it drops messages of a reliable channel when the reader
is late (engines, pitfall 1). Native callbacks go through a :class:`Handover`; calls that block
(a remote description, destruction) run in the executor (pitfall 10). A destroyed handle is
never touched again: channels and peer forget their native object before it goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiolibdatachannel import IceServer, _core, _native  # type: ignore[attr-defined]  # extension
from aiolibdatachannel.exceptions import RTCError

from poolhouse_node.rtc.gathering import is_gathered_enough
from poolhouse_node.rtc.handover import Handover
from poolhouse_node.rtc.libdatachannel_extras import load_extras
from poolhouse_node.rtc.peer import (
    CLOSING_TIMEOUT_S,
    MAX_WAITING_MESSAGES,
    ChannelClosed,
    MessageRefused,
    RtcError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.rtc.peer import (
        CandidatePair,
        Channel,
        Engine,
        IceSettings,
        IceState,
        PeerState,
    )

__all__ = ["LibdatachannelPeer"]

_PEER_STATES: Final[tuple[PeerState, ...]] = (
    "new", "connecting", "connected", "disconnected", "failed", "closed",
)  # fmt: skip
_ICE_STATES: Final[tuple[IceState, ...]] = (
    "new", "checking", "connected", "completed", "failed", "disconnected", "closed",
)  # fmt: skip
_GATHERED = 2
_GATHERING_LOOK_S = 0.25
_MAX_CHANNELS = 8
"""Channels of one association; a peer that announces more gets them closed."""

_log = logging.getLogger(__name__)


def _ignore(*_: Any) -> None:
    """The callback of those who set none."""


class _Channel:
    """One native data channel. Satisfies :class:`poolhouse_node.rtc.peer.Channel`."""

    __slots__ = (
        "_handle", "_handover", "_native", "is_open", "label", "on_close", "on_message", "on_open",
    )  # fmt: skip

    def __init__(self, native: Any, label: str, handover: Handover) -> None:
        self._native = native
        self._handle: int = native.handle
        self._handover = handover
        self.label = label
        self.is_open = False
        self.on_open: Callable[[], None] = _ignore
        self.on_message: Callable[[bytes], None] = _ignore
        self.on_close: Callable[[], None] = _ignore

    def attach(self) -> None:
        """Register the native callbacks. For announced channels on the native thread, before
        its callback returns: a first message may follow at once (engines, pitfall 3)."""
        put = self._handover.put
        self._native.set_on_open(partial(put, self._opened))
        self._native.set_on_closed(partial(put, self._ended))
        self._native.set_on_message(partial(put, self._received))
        if self._native.is_open():
            put(self._opened)

    def _opened(self) -> None:
        if self._native is not None and not self.is_open:
            self.is_open = True
            self.on_open()

    def _received(self, data: bytes | str) -> None:
        if self._native is not None:
            self.on_message(data if isinstance(data, bytes) else data.encode())

    def _ended(self) -> None:
        if self._native is not None:
            self.is_open = False
            self.on_close()

    def send(self, data: bytes) -> None:
        if not self.is_open:
            raise ChannelClosed(f"The channel {self.label} is not open.")
        try:
            _native.send_bytes(self._handle, data)
        except RTCError as error:
            raise MessageRefused(f"The channel {self.label} refused a message: {error}.") from error

    def buffered(self) -> int:
        return int(_native.buffered_amount(self._handle)) if self.is_open else 0

    def on_low(self, threshold_bytes: int, callback: Callable[[], None]) -> None:
        if self._native is not None:
            self._native.set_buffered_amount_low_threshold(threshold_bytes)
            self._native.set_on_buffered_amount_low(partial(self._handover.put, callback))

    def close(self) -> None:
        self.is_open = False
        if self._native is not None:
            self._native.close()

    def release(self) -> Any:
        """Forget the native object and hand it out, to be destroyed."""
        native, self._native = self._native, None
        self.is_open = False
        return native


class LibdatachannelPeer:
    """One native association. Satisfies :class:`poolhouse_node.rtc.peer.Peer`."""

    engine: Engine = "libdatachannel"

    def __init__(self, ice: IceSettings) -> None:
        self.on_channel: Callable[[Channel], None] = _ignore
        self.on_state: Callable[[PeerState], None] = _ignore
        self.state: PeerState = "new"
        self.ice_state: IceState = "new"
        self._loop = asyncio.get_running_loop()
        self._handover = Handover(self._loop, MAX_WAITING_MESSAGES, self._overflowed)
        self._channels: list[_Channel] = []
        self._gathered = asyncio.Event()
        self._blocking = threading.Lock()
        self._destroying: asyncio.Future[None] | None = None
        self._extras = load_extras(_native)
        self._ice = ice
        self._native = self._make(ice)
        self._attach()

    def _make(self, ice: IceSettings) -> Any:
        urls = [IceServer(url=url).to_url() for url in ice.stun]
        urls += [
            IceServer(url=turn.url, username=turn.username, credential=turn.credential).to_url()
            for turn in ice.turn
        ]
        if ice.bind is not None:
            return self._make_bound(urls, ice, ice.bind)
        first, last = ice.port_range or (0, 0)
        try:
            # The MTU stays at its 1280: a browser takes 1500 at most (engines, pitfall 7).
            return _core.PeerConnection(
                urls,
                port_range_begin=first,
                port_range_end=last,
                ice_transport_policy=int(ice.relay_only),
            )
        except (RTCError, ValueError) as error:
            raise RtcError(f"libdatachannel refused its settings: {error}.") from error

    def _make_bound(self, urls: list[str], ice: IceSettings, bind: str) -> Any:
        if self._extras is None:
            raise RtcError("This version of libdatachannel cannot use one local address only.")
        native = _core.PeerConnection.__new__(_core.PeerConnection)
        native._handle = self._extras.make_bound(urls, ice, bind)  # noqa: SLF001  as its __init__
        native._callbacks = {}  # noqa: SLF001
        native._destroyed = False  # noqa: SLF001
        with _core._pc_lock:  # noqa: SLF001
            _core._pcs[native.handle] = native  # noqa: SLF001
        return native

    def _attach(self) -> None:
        put, native = self._handover.put, self._native
        native.set_on_state_change(partial(put, self._state_changed))
        native.set_on_ice_state_change(partial(put, self._ice_changed))
        native.set_on_gathering_state_change(partial(put, self._gathering_changed))
        native.set_on_data_channel(self._announced)

    # Native callbacks, on the loop unless said otherwise.

    def _state_changed(self, state: int) -> None:
        if self._destroying is None:
            self.state = _PEER_STATES[state]
            self.on_state(self.state)

    def _ice_changed(self, state: int) -> None:
        self.ice_state = _ICE_STATES[state]

    def _gathering_changed(self, state: int) -> None:
        if state == _GATHERED:
            self._gathered.set()

    def _announced(self, handle: int) -> None:
        """A channel of the other side, on the native thread."""
        native = _core.DataChannel(handle)
        channel = _Channel(native, native.label() or "", self._handover)
        self._handover.put(self._take, channel)
        channel.attach()

    def _take(self, channel: _Channel) -> None:
        if self._destroying is not None or len(self._channels) >= _MAX_CHANNELS:
            channel.release().destroy()
            return
        self._channels.append(channel)
        self.on_channel(channel)

    def _overflowed(self) -> None:
        _log.warning("association.overflowed: the loop was too late for what a peer sent")
        self._state_changed(_PEER_STATES.index("failed"))

    # The interface.

    def channel(
        self,
        label: str,
        *,
        stream_id: int | None = None,
        ordered: bool = True,
        max_retransmits: int | None = None,
    ) -> Channel:
        handle = self._usable().create_data_channel(
            label,
            unordered=not ordered,
            unreliable=max_retransmits is not None,
            max_retransmits=max_retransmits or 0,
            negotiated=stream_id is not None,
            manual_stream=stream_id is not None,
            stream=stream_id or 0,
        )
        channel = _Channel(_core.DataChannel(handle), label, self._handover)
        channel.attach()
        self._channels.append(channel)
        return channel

    async def offer(self) -> str:
        return await self._describe("offer")

    async def answer(self, sdp: str) -> str:
        await self._in_executor("set_remote_description", sdp, "offer")
        return await self._describe("answer")

    async def accept(self, sdp: str) -> None:
        await self._in_executor("set_remote_description", sdp, "answer")

    async def add_candidate(self, candidate: str, mid: str) -> None:
        await self._in_executor("add_remote_candidate", candidate, mid)

    async def _describe(self, kind: str) -> str:
        try:
            self._usable().set_local_description(kind)
        except RTCError as error:
            raise RtcError(f"libdatachannel made no {kind}: {error}.") from error
        sdp = await self._until_gathered()
        if "a=candidate:" not in sdp:
            raise RtcError(self._ice.no_address_sentence())
        return sdp

    async def _until_gathered(self) -> str:
        """The local description, with all addresses or with those that come in time."""
        started_at = self._loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GATHERING_LOOK_S):
                    await self._gathered.wait()
            sdp: str = self._usable().get_local_description() or ""
            if self._gathered.is_set():
                return sdp
            if is_gathered_enough(sdp, self._loop.time() - started_at, self._ice):
                _log.info("association.gathering_cut: using the addresses found so far")
                return sdp

    async def _in_executor(self, call: str, *args: str) -> None:
        native = self._usable()

        def run() -> None:
            with self._blocking:
                if self._native is None:
                    raise ChannelClosed("The association is closed.")
                getattr(native, call)(*args)

        try:
            await self._loop.run_in_executor(None, run)
        except (RTCError, ValueError) as error:
            raise RtcError(f"libdatachannel refused what the peer sent: {error}.") from error

    def _usable(self) -> Any:
        if self._native is None:
            raise ChannelClosed("The association is closed.")
        return self._native

    def descriptions(self) -> tuple[str | None, str | None]:
        if self._native is None:
            return None, None
        return self._native.get_local_description(), self._native.get_remote_description()

    def pair(self) -> CandidatePair | None:
        if self._native is None or self._extras is None:
            return None
        return self._extras.pair(self._native.handle)

    async def close(self) -> None:
        if self._destroying is None:
            self._destroying = self._loop.run_in_executor(None, self._destroy, self._release())
            self.state = "closed"
        try:
            async with asyncio.timeout(CLOSING_TIMEOUT_S):
                await asyncio.shield(self._destroying)
        except TimeoutError:
            _log.warning("association.closing_late: the native part is left to its thread")

    def _release(self) -> list[Any]:
        natives = [channel.release() for channel in self._channels]
        self._channels.clear()
        natives.append(self._native)
        self._native = None
        return natives

    def _destroy(self, natives: list[Any]) -> None:
        with self._blocking:
            for native in natives:
                native.destroy()
