"""``poolhouse host``: open a room."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.cli.hosting import (
    chat,
    deal,
    failing_with_tasks,
    hosted_room,
    say_what_runs,
)
from poolhouse_node.cli.invited import INVITE, with_invite
from poolhouse_node.cli.loading import EngineLoader, describe_engine, open_model
from poolhouse_node.cli.machine import default_pledge_gb, device_name, fair_threads, free_cores
from poolhouse_node.cli.measuring import MetricsOptions, measuring
from poolhouse_node.cli.pulling import pull_with_progress, require_computable
from poolhouse_node.cli.resuming import find_former, resumed
from poolhouse_node.cli.room import HostCommands
from poolhouse_node.cli.room_socket import serve_commands
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device.answering import GenerationSettings
from poolhouse_node.device.dealing import StartError
from poolhouse_node.device.host import HostSettings
from poolhouse_node.room.gate import Gate
from poolhouse_node.wire.codes import format_code

if TYPE_CHECKING:
    from poolhouse_node.cli.hosting import HostedRoom
    from poolhouse_node.cli.measuring import Measuring
    from poolhouse_node.cli.resuming import FormerRoom
    from poolhouse_node.cli.rooms import Place
    from poolhouse_node.cli.state import RoomState
    from poolhouse_node.generate.sampler import Sampling

__all__ = ["HostOptions", "host_room"]


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What the person said about a room that this device hosts."""

    place: Place
    model: str
    sampling: Sampling
    max_tokens: int
    name: str | None = None
    pledge_gb: float | None = None
    device: str = "auto"
    threads: int | None = None
    precision: str = "auto"
    code: str | None = None
    key: str = field(default="", repr=False)
    """The invite key that the room must have; without one it keeps its own, or draws one."""
    split: tuple[int, ...] | None = None
    context_size: int | None = None
    system: str = ""
    seed: int | None = None
    wait: int = 1
    is_open: bool = False
    denies_unknown: bool = False
    takes_older_devices: bool = False
    """Take raw secrets and unproved stripes of devices from before the proofs."""
    takes_api_clients: bool = True
    redeal_after_s: float | None = 60.0
    """``None``: never without the person."""
    resume: bool = False
    metrics: MetricsOptions = field(default_factory=MetricsOptions)
    said: frozenset[str] = frozenset()
    """Names of the options that were given: a record does not change them."""

    def settings(self) -> HostSettings:
        """The host's part of it."""
        generation = GenerationSettings(self.sampling, self.max_tokens, self.system)
        return HostSettings(
            generation, self.split, self.denies_unknown, redeal_after_s=self.redeal_after_s
        )

    def gate(self, state: RoomState) -> Gate:
        """The gate of a room hosted here before under this code, or a new one."""
        gate = Gate.restore(secrets.token_bytes, state.load_gate())
        gate.key = self.key or gate.key
        gate.asks = not self.is_open
        gate.takes_raw_secrets = self.takes_older_devices
        gate.takes_api_clients = self.takes_api_clients
        return gate


async def host_room(options: HostOptions) -> int:
    """Open a room, wait for devices, deal, then answer until the person ends it."""
    view = TerminalView()
    options = with_invite(options, os.environ)
    former = find_former(options, os.environ, view.say) if options.resume else None
    if former is not None:
        options = resumed(options, former.options)
    require_computable(options.model)
    async with measuring(options.metrics, view.say) as measured:
        return await _host_measured(options, former, view, measured)


async def _host_measured(
    options: HostOptions, former: FormerRoom | None, view: TerminalView, measured: Measuring
) -> int:
    store, file = await pull_with_progress(options.model, view, measured.found)
    threads = options.threads or fair_threads(free_cores())
    loader = EngineLoader(store, options.device, threads, file, options.precision)
    loader.warm_up()
    hosted = hosted_room(
        options,
        former,
        view,
        place=options.place,
        model=open_model(file, options.context_size, loader),
        loader=loader,
        name=device_name(options.name),
        pledge_gb=options.pledge_gb or default_pledge_gb(device=options.device),
        measured=measured,
    )
    async with hosted as room:
        commands = HostCommands(room.host, room.invite)
        async with serve_commands(room.state, commands.handle, view.say):
            try:
                _say_how_to_join(view, room.invite(), room.code, options)
                serving = asyncio.ensure_future(_serve(room, options, view, commands))
                return await failing_with_tasks(room.host, serving)
            finally:
                view.close()


def _say_how_to_join(view: TerminalView, invite: str, code: str, options: HostOptions) -> None:
    shown = format_code(code)
    if options.key:  # whoever gave it has it, and this may go to a log that others read
        view.say(f"The room {shown} is open. Whoever has the link of {INVITE} gets in.")
    else:
        view.say(f"The room {shown} is open. Whoever has this link gets in:")
        view.say(f"    poolhouse join '{invite}'")
    if options.is_open:
        view.say(f"So does anyone who knows the code {shown} (--open): share it with care.")
    elif options.denies_unknown:
        view.say("Nobody else does (--deny-unknown).")
    else:
        view.say(f"Who joins with the code {shown} alone waits until you allow it.")
    if options.takes_older_devices:
        view.say(
            "Older devices may show the link's key as it is (--take-older-devices): whoever runs "
            "the signaling server can learn it and get in. Use a server of your own."
        )


async def _serve(
    room: HostedRoom, options: HostOptions, view: TerminalView, commands: HostCommands
) -> int:
    """Deal and answer until a signal, or until the person ends the chat.

    Commands are taken from the beginning: somebody has to let the first devices in.
    """
    bringing_up = asyncio.ensure_future(_bring_online(room, options, view))
    talking = asyncio.ensure_future(
        chat(room.host, view, commands) if sys.stdin.isatty() else asyncio.Event().wait()
    )
    try:
        await asyncio.wait({bringing_up, talking}, return_when=asyncio.FIRST_COMPLETED)
        if bringing_up.done():
            bringing_up.result()
            await talking
        else:
            talking.result()
        return 0
    finally:
        bringing_up.cancel()
        talking.cancel()
        await asyncio.gather(bringing_up, talking, return_exceptions=True)


async def _bring_online(room: HostedRoom, options: HostOptions, view: TerminalView) -> None:
    await _deal_as_soon_as_it_works(room, options.wait, view)
    say_what_runs(room.host, view, describe_engine(room.host.keeper.shard))


async def _deal_as_soon_as_it_works(room: HostedRoom, wait: int, view: TerminalView) -> None:
    """A room stays open when its devices cannot hold the model, or one was lost while loading."""
    while True:
        try:
            await deal(room, wait, view)
        except StartError as error:
            if error.is_final:
                raise
            view.say(f"{error} Waiting for another device, or a larger pledge …")
            await room.host.until_changed()
        else:
            return
