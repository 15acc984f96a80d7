"""``poolhouse host``: open a room."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.cli.hosting import chat, failing_with_tasks, say_what_runs
from poolhouse_node.cli.loading import EngineLoader, open_model
from poolhouse_node.cli.machine import default_name, default_pledge_gb, free_cores
from poolhouse_node.cli.pulling import pull_with_progress, require_computable
from poolhouse_node.cli.rooms import Place, make_host, open_room
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device.answering import GenerationSettings
from poolhouse_node.device.host import HostSettings
from poolhouse_node.wire.codes import format_code

if TYPE_CHECKING:
    from poolhouse_node.device.host import Host
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
    code: str | None = None
    split: tuple[int, ...] | None = None
    context_size: int | None = None
    system: str = ""
    seed: int | None = None
    wait: int = 1

    def settings(self) -> HostSettings:
        """The host's part of it."""
        generation = GenerationSettings(self.sampling, self.max_tokens, self.system)
        return HostSettings(generation, self.split)


async def host_room(options: HostOptions) -> int:
    """Open a room, wait for devices, deal, then answer until the person ends it."""
    view = TerminalView()
    require_computable(options.model)
    store, file = await pull_with_progress(options.model, view)
    model = open_model(file, options.context_size)
    loader = EngineLoader(store, options.device, options.threads or free_cores(), file)
    network, code = await open_room(options.place, options.code)
    host = make_host(
        network,
        view,
        name=options.name or default_name(),
        pledge_gb=options.pledge_gb or default_pledge_gb(),
        model=model,
        loader=loader,
        settings=options.settings(),
        seed=options.seed,
    )
    loader.warm_up()
    async with host:
        try:
            view.say(f"The room is open: poolhouse join {format_code(code)}")
            view.say("Anyone with this code gets in (--open): share it with care.")
            return await failing_with_tasks(
                host, asyncio.ensure_future(_serve(host, options, view))
            )
        finally:
            view.close()
            await host.close_room("The host closed the room.")


async def _serve(host: Host, options: HostOptions, view: TerminalView) -> int:
    if options.wait:
        view.say(f"Waiting for {options.wait} device(s) to join …")
    await host.until_devices(options.wait)
    await host.start()
    say_what_runs(host, view, options.device)
    if sys.stdin.isatty():
        await chat(host, view)
    else:
        await asyncio.Event().wait()  # until a signal
    return 0
