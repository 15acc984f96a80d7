"""Puts the layers together: from server addresses to a network that can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.rtc.dialer import PeerJsDialer
from poolhouse_node.rtc.ice import build_ice_settings
from poolhouse_node.rtc.network import Network
from poolhouse_node.rtc.peer import RtcError
from poolhouse_node.rtc.signaling import SignalingClient
from poolhouse_node.wire.servers import parse_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.rtc.link import LinkSettings
    from poolhouse_node.rtc.peer import Engine, IceSettings
    from poolhouse_node.wire.servers import SignalServer

__all__ = ["open_network", "parse_servers"]


def parse_servers(specs: Sequence[str]) -> list[SignalServer]:
    """Read server addresses as a person writes them. Raises :class:`RtcError`.

    A bare name is a public server on 443, which speaks TLS; ``host:port`` is one of the person's
    own, which speaks it when the address says ``wss`` or ``https``.
    """
    servers = []
    for spec in specs:
        server = parse_server(spec, page_secure=_names_no_port(spec))
        if server is None:
            raise RtcError(f"{spec!r} is not a signaling server: write host:port or a URL.")
        servers.append(server)
    return servers


async def open_network(
    server_urls: Sequence[str],
    peer_id: str | None = None,
    *,
    engine: Engine = "libdatachannel",
    ice: IceSettings | None = None,
    settings: LinkSettings | None = None,
) -> Network:
    """Register at the first of the servers that works; a network with that id.

    Call ``listen`` before the next await, and ``close`` at the end. Without ``peer_id`` the
    server gives one. Raises :class:`RtcError`, as
    :class:`~poolhouse_node.rtc.signaling.SignalingError` when the server is the reason.
    """
    servers = parse_servers(server_urls)
    signaling = SignalingClient(servers, peer_id)
    await signaling.open()
    dialer = PeerJsDialer(signaling, engine, ice or build_ice_settings([signaling.server]))
    return Network(dialer, settings)


def _names_no_port(spec: str) -> bool:
    address = spec.strip().partition("/")[0]
    return not address.rpartition("]")[2].partition(":")[1]
