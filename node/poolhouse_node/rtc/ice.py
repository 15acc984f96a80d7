"""How this device looks for paths: from lists of servers to settings (relay, section 1)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from poolhouse_node.room.relays import asks_default_relay
from poolhouse_node.rtc.peer import IceSettings, RtcError
from poolhouse_node.rtc.relay_answer import is_relay_url, is_stun_url
from poolhouse_node.rtc.signaling import is_loopback
from poolhouse_node.wire.servers import CLOUD

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from poolhouse_node.rtc.peer import TurnServer
    from poolhouse_node.rtc.relay_answer import RelayGrant
    from poolhouse_node.wire.servers import SignalServer

__all__ = ["PUBLIC_STUN", "PathSettings", "build_ice_settings", "is_relay_url"]

PUBLIC_STUN: Final = ("stun:stun.l.google.com:19302", "stun:stun1.l.google.com:19302")


@dataclass(frozen=True, slots=True)
class PathSettings:
    """What the person of this device says about paths. The default is right for most."""

    stun: tuple[str, ...] | None = None
    """None for the public ones, empty for no STUN at all, also of a relay's list."""
    turn: tuple[TurnServer, ...] = ()
    """Relays of one's own: then no control plane is asked for one."""
    relay_only: bool = False
    port_range: tuple[int, int] | None = None
    """First and last local UDP port; every association takes one."""
    bind: str | None = None
    """Local address to use instead of those of all interfaces."""
    api_token: str | None = field(default=None, repr=False)
    """For a control plane that lends relays to holders of one. Set it only where the person
    chose the control plane: a link that somebody sent could name any."""

    def asks_at(self, server: SignalServer) -> bool:
        """Is this server asked for a relay? The public PeerJS server has none to lend."""
        return server.host != CLOUD.host and asks_default_relay(
            server.host, own_relay=bool(self.turn)
        )

    def with_grant(self, servers: Sequence[SignalServer], grant: RelayGrant | None) -> IceSettings:
        """Settings for rooms met through ``servers``, with what was lent beside one's own.

        Raises :class:`RtcError`, also when only relays may be used and there is none: a device
        that was told to stay behind a relay does not come out for want of one.
        """
        turn = self.turn or (grant.turn if grant else ())
        if self.relay_only and not turn:
            raise RtcError(
                "There is no relay to use: the control plane lends none, and --ice names none."
            )
        found = build_ice_settings(
            servers,
            stun=self.stun,
            turn=turn,
            relay_only=self.relay_only,
            port_range=self.port_range,
            bind=self.bind,
        )
        lent = grant.stun if grant and self.stun != () else ()
        return replace(found, stun=tuple(dict.fromkeys((*found.stun, *lent))))


def build_ice_settings(
    servers: Sequence[SignalServer],
    *,
    stun: Iterable[str] | None = None,
    turn: Iterable[TurnServer] = (),
    relay_only: bool = False,
    port_range: tuple[int, int] | None = None,
    bind: str | None = None,
) -> IceSettings:
    """The settings for rooms met through ``servers``.

    Through a server on this machine no public STUN server is asked: the others are on this
    machine too. If there is no network at all, such rooms use the loopback address. Raises
    :class:`RtcError` for a URL or range that is none: one bad URL makes engines refuse all.
    """
    local = all(is_loopback(server) for server in servers)
    usual = () if local else PUBLIC_STUN
    stun, turn = usual if stun is None else tuple(stun), tuple(turn)
    _check([url for url in stun if not is_stun_url(url)])
    _check([relay.url for relay in turn if not is_relay_url(relay.url)])
    if port_range is not None and not 1024 <= port_range[0] <= port_range[1] <= 65535:
        raise RtcError(f"{port_range[0]}-{port_range[1]} is not a range of UDP ports.")
    return IceSettings(
        stun=stun,
        turn=turn,
        # Only if there really is a relay (relay, section 1).
        relay_only=relay_only and bool(turn),
        port_range=port_range,
        bind=bind or ("127.0.0.1" if local and not _has_network() else None),
    )


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
