"""Building devices: a host with its model, or a device that joins, on a real network."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.machine import device_meta
from poolhouse_node.device.compute import ComputeThread
from poolhouse_node.device.device import Identity
from poolhouse_node.device.host import Host, HostSettings
from poolhouse_node.device.joined import JoinedDevice
from poolhouse_node.rtc.ice import PathSettings
from poolhouse_node.rtc.open import open_network, parse_servers
from poolhouse_node.rtc.relays import Relays
from poolhouse_node.rtc.signaling import SignalingError
from poolhouse_node.wire.codes import (
    format_code,
    host_peer_id,
    invite_link,
    make_code,
    parse_code,
    parse_invite,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from poolhouse_node.cli.loading import PlacedLoader
    from poolhouse_node.device.entrance import Secrets
    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.load_notes import Notebook
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.room.gate import Gate, GateState
    from poolhouse_node.room.record import RoomMemory
    from poolhouse_node.rtc.network import Network
    from poolhouse_node.rtc.peer import Engine
    from poolhouse_node.wire.codes import Invite

__all__ = ["ROOM", "Place", "make_host", "make_invite", "make_joined", "open_room", "read_invite"]

ROOM = "POOLHOUSE_ROOM"
"""Carries an invite link to a command: what is in the environment is not seen in a process list."""
API_TOKEN = "POOLHOUSE_API_TOKEN"  # noqa: S105 - its name
CODES_TO_TRY = 5


@dataclass(frozen=True, slots=True)
class Place:
    """Where devices meet, and over what."""

    servers: Sequence[str]
    engine: Engine
    paths: PathSettings = field(default_factory=PathSettings)
    relays: Relays = field(default_factory=Relays)
    """What was lent to this process, for later joins too."""

    @classmethod
    def read(
        cls,
        signal: str,
        engine: Engine,
        paths: PathSettings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Place:
        """Servers as a person lists them.

        With ``environment`` the API token there, if any, is shown to the server that is used:
        give it only where the person chose the servers.
        """
        servers = [part.strip() for part in signal.split(",") if part.strip()]
        token = (environment or {}).get(API_TOKEN, "").strip() or None
        return cls(servers, engine, replace(paths or PathSettings(), api_token=token))

    async def open(self, peer_id: str | None = None) -> Network:
        """A network here. Raises :class:`~poolhouse_node.rtc.peer.RtcError`."""
        return await open_network(
            self.servers, peer_id, engine=self.engine, paths=self.paths, relays=self.relays
        )


def read_invite(text: str) -> Invite:
    """A room code or an invite link as a person gives it. Raises :class:`CommandFailed`."""
    invite = parse_invite(text)
    if invite is None:
        raise CommandFailed(f"{text!r} is neither a room code (like 4TK-G9P) nor an invite link.")
    return invite


def make_invite(place: Place, code: str, key: str) -> str:
    """The link that brings a device here: the control plane's address, the code, the key."""
    server = parse_servers(place.servers)[0]
    scheme = "https" if server.secure else "http"
    return invite_link(f"{scheme}://{server.host}:{server.port}", code, key)


async def open_room(place: Place, code: str | None) -> tuple[Network, str]:
    """Register a room; without ``code`` a new one is drawn until one is free.

    Raises :class:`CommandFailed` when the code is taken or none, ``SignalingError`` when no
    server answers.
    """
    if code is not None and not parse_code(code):
        raise CommandFailed(f"{code!r} is not a room code: four or six letters and digits.")
    for _ in range(CODES_TO_TRY):
        chosen = parse_code(code) or make_code(secrets.token_bytes)
        try:
            network = await place.open(host_peer_id(chosen))
        except SignalingError as error:
            if error.kind != "id-taken":
                raise
            if code is not None:
                raise CommandFailed(
                    f"The room {format_code(chosen)} is open already: join it with "
                    f"`poolhouse join {format_code(chosen)}`, or open another."
                ) from error
        else:
            return network, chosen
    raise CommandFailed("No free room code was found; try again.")


def make_host(
    network: Network,
    notify: Notify,
    *,
    name: str,
    pledge_gb: float,
    model: RoomModel,
    loader: PlacedLoader,
    settings: HostSettings,
    gate: Gate,
    save_gate: Callable[[GateState], None],
    save_memory: Callable[[RoomMemory], None],
    memory: RoomMemory | None,
    seed: int | None,
) -> Host:
    """A host on ``network``, which takes up ``memory`` and hands its own to ``save_memory``."""
    network.mesh.takes_older_devices = gate.takes_raw_secrets  # one switch for both
    chance = random.Random(seed)  # noqa: S311 - draws tokens, not secrets
    return Host(
        network,
        Identity(name, device_meta(pledge_gb=pledge_gb, device=loader.device)),
        notify,
        model=model,
        loader=loader,
        compute=ComputeThread(),
        settings=settings,
        gate=gate,
        save_gate=save_gate,
        save_memory=save_memory,
        memory=memory,
        draw=chance.random,
    )


async def make_joined(
    place: Place,
    code: str,
    notify: Notify,
    *,
    name: str,
    pledge_gb: float | None,
    loader: PlacedLoader,
    held: Secrets,
    trust_unverified: bool,
    compute: Compute | None = None,
    notebook: Notebook | None = None,
) -> JoinedDevice:
    """A device for somebody's room; without a pledge it only asks.

    Without ``compute`` it has a compute thread of its own.
    """
    network = await place.open()
    return JoinedDevice(
        network,
        Identity(name, device_meta(pledge_gb=pledge_gb, device=loader.device)),
        notify,
        host_id=host_peer_id(code),
        loader=loader,
        compute=compute or ComputeThread(),
        draw_bytes=secrets.token_bytes,
        secrets=held,
        trust_unverified=trust_unverified,
        notebook=notebook,
    )
