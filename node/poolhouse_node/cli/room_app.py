"""The subcommands of ``poolhouse room``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from poolhouse_node.cli import options as opt
from poolhouse_node.cli.running import run

__all__ = ["room_app"]

room_app = typer.Typer(
    help="For the person who hosts, from another terminal.", no_args_is_help=True
)


@room_app.command("new")
def room_new(signal: opt.Signal = opt.DEFAULT_SIGNAL) -> None:
    """Make the invite link of a room that is opened later, and print it.

    Give it to `poolhouse host` in POOLHOUSE_INVITE, and to devices in POOLHOUSE_ROOM; or each in a
    file, named by POOLHOUSE_INVITE_FILE and POOLHOUSE_ROOM_FILE.
    """
    from poolhouse_node.cli.invited import new_invite

    async def make() -> int:
        print(new_invite(signal), flush=True)
        return 0

    run(make())


@room_app.command("status")
def room_status(room: opt.HostedRoom = None, as_json: opt.Json = False) -> None:
    """Who is in the room, over what, and who waits."""
    _tell_host(room, {"command": "status"}, as_json=as_json)


@room_app.command("allow")
def room_allow(name: opt.WaitingDevice, room: opt.HostedRoom = None) -> None:
    """Let a waiting device in, by its name or its six digits."""
    _tell_host(room, {"command": "allow", "name": name})


@room_app.command("deny")
def room_deny(name: opt.WaitingDevice, room: opt.HostedRoom = None) -> None:
    """Refuse a waiting device."""
    _tell_host(room, {"command": "deny", "name": name})


@room_app.command("kick")
def room_kick(
    name: Annotated[str, typer.Argument(help="A device in the room.")],
    room: opt.HostedRoom = None,
) -> None:
    """Send a device out of the room."""
    _tell_host(room, {"command": "kick", "name": name})


@room_app.command("key")
def room_key(room: opt.HostedRoom = None) -> None:
    """Make a new invite link; the old ones are dead."""
    _tell_host(room, {"command": "key"})


@room_app.command("redeal")
def room_redeal(room: opt.HostedRoom = None) -> None:
    """Deal the layers again over the devices that are here, without waiting for a lost one."""
    _tell_host(room, {"command": "redeal"})


@room_app.command("stop")
def room_stop(room: opt.HostedRoom = None) -> None:
    """End the running answer, also one that waits for a lost device."""
    _tell_host(room, {"command": "stop"})


@room_app.command("forget")
def room_forget(code: Annotated[str, typer.Argument(help="Room code.")]) -> None:
    """Delete what this machine keeps of a room: keys, passes and the conversation."""
    from poolhouse_node.cli.room import find_room, forget_room

    async def forget() -> int:
        return forget_room(find_room(code, os.environ))

    run(forget())


def _tell_host(room: str | None, request: dict[str, str], *, as_json: bool = False) -> None:
    from poolhouse_node.cli.room import find_room, tell_host

    async def tell() -> int:
        return await tell_host(find_room(room, os.environ), request, as_json=as_json)

    run(tell())
