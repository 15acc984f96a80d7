"""Building devices: a host with its model, or a device that joins, on a real network."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.machine import device_meta
from poolhouse_node.device.compute import ComputeThread
from poolhouse_node.device.device import Identity
from poolhouse_node.device.host import Host, HostSettings
from poolhouse_node.device.joined import JoinedDevice
from poolhouse_node.rtc.open import open_network
from poolhouse_node.rtc.signaling import SignalingError
from poolhouse_node.wire.codes import format_code, host_peer_id, make_code, parse_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.cli.loading import EngineLoader
    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.rtc.network import Network
    from poolhouse_node.rtc.peer import Engine

__all__ = ["Place", "make_host", "make_joined", "open_room", "read_code"]

CODES_TO_TRY = 5


@dataclass(frozen=True, slots=True)
class Place:
    """Where devices meet, and over what."""

    servers: Sequence[str]
    engine: Engine


def read_code(text: str) -> str:
    """A room code or an invite link as a person gives it. Raises :class:`CommandFailed`."""
    from poolhouse_node.wire.codes import parse_invite

    invite = parse_invite(text)
    if invite is None or not invite.code:
        raise CommandFailed(f"{text!r} is neither a room code (like 4TK-G9P) nor an invite link.")
    return invite.code


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
            network = await open_network(place.servers, host_peer_id(chosen), engine=place.engine)
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
    loader: EngineLoader,
    settings: HostSettings,
    seed: int | None,
) -> Host:
    """A host on ``network``."""
    chance = random.Random(seed)  # noqa: S311 - draws tokens, not secrets
    return Host(
        network,
        Identity(name, device_meta(pledge_gb=pledge_gb)),
        notify,
        model=model,
        loader=loader,
        compute=ComputeThread(),
        settings=settings,
        draw=chance.random,
    )


async def make_joined(
    place: Place,
    code: str,
    notify: Notify,
    *,
    name: str,
    pledge_gb: float | None,
    loader: EngineLoader,
) -> JoinedDevice:
    """A device for somebody's room; without a pledge it only asks."""
    network = await open_network(place.servers, engine=place.engine)
    return JoinedDevice(
        network,
        Identity(name, device_meta(pledge_gb=pledge_gb)),
        notify,
        host_id=host_peer_id(code),
        loader=loader,
        compute=ComputeThread(),
    )
