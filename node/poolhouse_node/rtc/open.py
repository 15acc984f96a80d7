"""Puts the layers together: from server addresses to a network that can be used."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from poolhouse_node.rtc.dialer import PeerJsDialer
from poolhouse_node.rtc.ice import PathSettings
from poolhouse_node.rtc.network import Network
from poolhouse_node.rtc.paths import PathKeeper
from poolhouse_node.rtc.peer import RtcError
from poolhouse_node.rtc.relays import RelayCaller
from poolhouse_node.rtc.signaling import SignalingClient
from poolhouse_node.wire.servers import parse_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.rtc.link import LinkSettings
    from poolhouse_node.rtc.peer import Engine
    from poolhouse_node.rtc.relays import Relays
    from poolhouse_node.rtc.signaling_messages import Inbound
    from poolhouse_node.wire.servers import SignalServer

__all__ = ["open_network", "parse_servers"]

_MAX_EARLY_MESSAGES: Final = 256


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
    paths: PathSettings | None = None,
    relays: Relays | None = None,
    settings: LinkSettings | None = None,
) -> Network:
    """Register at the first of the servers that works; a network with that id.

    Call ``listen`` before the next await, and ``close`` at the end. Without ``peer_id`` the
    server gives one. ``relays`` shares what was lent with networks that this process opened
    before. Raises :class:`RtcError`, as :class:`~poolhouse_node.rtc.signaling.SignalingError`
    when the server is the reason.
    """
    signaling = SignalingClient(parse_servers(server_urls), peer_id)
    await signaling.open()
    early = _EarlyMessages(signaling)
    wanted = paths or PathSettings()
    caller = RelayCaller(signaling.server, signaling.peer_id, signaling.token, wanted.api_token)
    keeper = PathKeeper(wanted, engine, caller, relays=relays)
    try:
        ice = await keeper.first()
    except BaseException:
        await keeper.close()
        await signaling.close()
        raise
    dialer = PeerJsDialer(signaling, engine, ice, paths=keeper)
    early.deliver_soon()
    return Network(dialer, settings)


class _EarlyMessages:
    """Keeps what others say while relays are asked for. Whoever knows a room's code may dial it
    in the moment in which it opens; a little is kept, the rest dials again."""

    def __init__(self, signaling: SignalingClient) -> None:
        self._signaling = signaling
        self._messages: deque[Inbound] = deque(maxlen=_MAX_EARLY_MESSAGES)
        signaling.on_message = self._messages.append

    def deliver_soon(self) -> None:
        """Hand it to whoever listens now, once our caller had time to listen in turn."""
        asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        if not self._signaling.connected:
            self._signaling.on_state(False)
        for message in self._messages:
            self._signaling.on_message(message)


def _names_no_port(spec: str) -> bool:
    address = spec.strip().partition("/")[0]
    return not address.rpartition("]")[2].partition(":")[1]
