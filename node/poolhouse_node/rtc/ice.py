"""How this device looks for paths: from lists of servers to settings (relay, section 1)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from poolhouse_node.rtc.peer import IceSettings, RtcError, TurnServer
from poolhouse_node.rtc.signaling import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from poolhouse_node.wire.servers import SignalServer

__all__ = ["PUBLIC_STUN", "build_ice_settings", "is_relay_url"]

PUBLIC_STUN: Final = ("stun:stun.l.google.com:19302", "stun:stun1.l.google.com:19302")

_HOST = r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])"
_RELAY = re.compile(rf"turns?:{_HOST}(?::\d{{1,5}})?(?:\?transport=(?:udp|tcp))?", re.IGNORECASE)
_STUN = re.compile(rf"stuns?:{_HOST}(?::\d{{1,5}})?", re.IGNORECASE)


def build_ice_settings(
    servers: Sequence[SignalServer],
    *,
    stun: Iterable[str] = PUBLIC_STUN,
    turn: Iterable[TurnServer] = (),
    relay_only: bool = False,
    port_range: tuple[int, int] | None = None,
    bind: str | None = None,
) -> IceSettings:
    """The settings for rooms met through ``servers``.

    Through a server on this machine no STUN server is asked: the others are on this machine
    too. If there is no network at all, such rooms use the loopback address. Raises
    :class:`RtcError` for a URL or range that is none: one bad URL makes engines refuse all.
    """
    stun, turn = tuple(stun), tuple(turn)
    local = all(is_loopback(server) for server in servers)
    _check([url for url in stun if not _STUN.fullmatch(url)])
    _check([relay.url for relay in turn if not is_relay_url(relay.url)])
    if port_range is not None and not 1024 <= port_range[0] <= port_range[1] <= 65535:
        raise RtcError(f"{port_range[0]}-{port_range[1]} is not a range of UDP ports.")
    return IceSettings(
        stun=() if local else stun,
        turn=turn,
        # Only if there really is a relay (relay, section 1).
        relay_only=relay_only and bool(turn),
        port_range=port_range,
        bind=bind or ("127.0.0.1" if local and not _has_network() else None),
    )


def is_relay_url(url: str) -> bool:
    """Is this a ``turn:`` or ``turns:`` URL that every engine takes?"""
    return _RELAY.fullmatch(url) is not None


def _check(bad_urls: list[str]) -> None:
    if bad_urls:
        raise RtcError(f"Not the address of a STUN or TURN server: {', '.join(bad_urls)}.")


def _has_network() -> bool:
    """Does this machine have an address beside loopback? Engines offer no others."""
    import ifaddr

    for adapter in ifaddr.get_adapters():
        for address in adapter.ips:
            text = address.ip if isinstance(address.ip, str) else address.ip[0]
            if not text.startswith("127.") and text != "::1":
                return True
    return False
