"""What the Python layer of libdatachannel leaves out, reached through its exported C API.

Private ground (engines, pitfall 5): used only with the exact version this was tested with, and
only when every symbol is there. Without it associations work, but show no candidate pair, take
no bind address and keep the library's slower retransmission timer.
"""

from __future__ import annotations

import ctypes
import logging
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from poolhouse_node.rtc.peer import CandidatePair, RtcError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.rtc.peer import IceSettings

__all__ = ["TESTED_VERSION", "Extras", "load_extras"]

TESTED_VERSION: Final = "2026.10.15"
MIN_RETRANSMISSION_MS: Final = 50
"""200 ms by default: at 5 % loss a lap then waits for timers (engines, section 3)."""
MAX_RETRANSMISSION_MS: Final = 2000
"""10 s by default: after a pause of the network so much more could pass before data flows again."""
MAX_RETRANSMISSIONS: Final = 11
"""5 by default, which with our minimum gives an association up after 3 s without an answer. These
take 15 s (liveness, section 5)."""

_SYMBOLS = ("rtcGetSelectedCandidatePair", "rtcSetSctpSettings", "rtcCreatePeerConnection")
_CANDIDATE_BYTES = 512
_CANDIDATE = re.compile(rb" (\S+) \d+ typ (host|srflx|prflx|relay)\b")

_log = logging.getLogger(__name__)


class _SctpSettings(ctypes.Structure):
    """``rtcSctpSettings``: 0 keeps the library's default."""

    _fields_ = [
        ("recv_buffer_bytes", ctypes.c_int),
        ("send_buffer_bytes", ctypes.c_int),
        ("max_chunks_on_queue", ctypes.c_int),
        ("initial_congestion_window", ctypes.c_int),
        ("max_burst", ctypes.c_int),
        ("congestion_control_module", ctypes.c_int),
        ("delayed_sack_ms", ctypes.c_int),
        ("min_retransmit_ms", ctypes.c_int),
        ("max_retransmit_ms", ctypes.c_int),
        ("initial_retransmit_ms", ctypes.c_int),
        ("max_retransmit_attempts", ctypes.c_int),
        ("heartbeat_ms", ctypes.c_int),
    ]


class _Configuration(ctypes.Structure):
    """``rtcConfiguration``."""

    _fields_ = [
        ("ice_servers", ctypes.POINTER(ctypes.c_char_p)),
        ("ice_server_count", ctypes.c_int),
        ("proxy_server", ctypes.c_char_p),
        ("bind_address", ctypes.c_char_p),
        ("certificate_type", ctypes.c_int),
        ("ice_transport_policy", ctypes.c_int),
        ("enable_ice_tcp", ctypes.c_bool),
        ("enable_ice_udp_mux", ctypes.c_bool),
        ("disable_auto_negotiation", ctypes.c_bool),
        ("force_media_transport", ctypes.c_bool),
        ("port_range_begin", ctypes.c_uint16),
        ("port_range_end", ctypes.c_uint16),
        ("mtu", ctypes.c_int),
        ("max_message_bytes", ctypes.c_int),
    ]


class Extras:
    """The C functions, checked. Made once a process by :func:`load_extras`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def shorten_retransmission(self) -> bool:
        """Let SCTP send again sooner and for longer, in associations made from now on,
        process-wide."""
        settings = _SctpSettings(
            min_retransmit_ms=MIN_RETRANSMISSION_MS,
            max_retransmit_ms=MAX_RETRANSMISSION_MS,
            max_retransmit_attempts=MAX_RETRANSMISSIONS,
        )
        return int(self._library.rtcSetSctpSettings(ctypes.byref(settings))) == 0

    def pair(self, handle: int) -> CandidatePair | None:
        """The path an association uses; None before one is selected."""
        local = ctypes.create_string_buffer(_CANDIDATE_BYTES)
        remote = ctypes.create_string_buffer(_CANDIDATE_BYTES)
        length = self._library.rtcGetSelectedCandidatePair(
            handle, local, _CANDIDATE_BYTES, remote, _CANDIDATE_BYTES
        )
        ours, theirs = _CANDIDATE.search(local.value), _CANDIDATE.search(remote.value)
        if length < 0 or ours is None or theirs is None:
            return None
        return CandidatePair(
            ours[2].decode(), theirs[2].decode(), same_address=ours[1] == theirs[1]
        )

    def make_bound(self, urls: Sequence[str], ice: IceSettings, bind: str) -> int:
        """Make an association that uses one local address only; its handle."""
        servers = (ctypes.c_char_p * len(urls))(*(url.encode() for url in urls))
        first, last = ice.port_range or (0, 0)
        configuration = _Configuration(
            ice_servers=ctypes.cast(servers, ctypes.POINTER(ctypes.c_char_p)),
            ice_server_count=len(urls),
            bind_address=bind.encode(),
            ice_transport_policy=int(ice.relay_only),
            disable_auto_negotiation=True,
            port_range_begin=first,
            port_range_end=last,
        )
        handle = int(self._library.rtcCreatePeerConnection(ctypes.byref(configuration)))
        if handle < 0:
            raise RtcError(f"libdatachannel cannot use the local address {bind}.")
        return handle


@cache
def load_extras(native: Any) -> Extras | None:
    """Load and set up the extras once, before the first association (engines, pitfall 6).

    ``native`` is the extension module of the library. None, after one warning, when they
    cannot be used.
    """
    try:
        installed = version("aiolibdatachannel")
    except PackageNotFoundError:
        installed = "unknown"
    if installed != TESTED_VERSION:
        _log.warning("engine.extras_off: version %s, tested with %s", installed, TESTED_VERSION)
        return None
    library = ctypes.CDLL(native.__file__)
    missing = [name for name in _SYMBOLS if not hasattr(library, name)]
    if missing:
        _log.warning("engine.extras_off: missing %s", ", ".join(missing))
        return None
    extras = Extras(library)
    if not extras.shorten_retransmission():
        _log.warning("engine.retransmission_default: the SCTP settings were refused")
    return extras
