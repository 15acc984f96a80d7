"""``poolhouse up``: control plane, host and workers on this machine, each a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from poolhouse_node.cli.children import Child, Children
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.gpus import spread
from poolhouse_node.cli.hosting import (
    Question,
    answer_once,
    chat,
    failing_with_tasks,
    hosted_room,
    say_what_runs,
)
from poolhouse_node.cli.loading import EngineLoader, describe_engine, open_model
from poolhouse_node.cli.machine import default_pledge_gb, fair_threads, free_cores
from poolhouse_node.cli.measuring import measuring
from poolhouse_node.cli.pulling import pull_with_progress, require_computable
from poolhouse_node.cli.resuming import find_former, resumed
from poolhouse_node.cli.room import HostCommands
from poolhouse_node.cli.rooms import ROOM
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device.dealing import StartError
from poolhouse_node.wire.codes import format_code

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path
    from typing import Any

    from poolhouse_node.cli.host import HostOptions
    from poolhouse_node.cli.hosting import HostedRoom
    from poolhouse_node.cli.measuring import Measuring
    from poolhouse_node.cli.resuming import FormerRoom
    from poolhouse_node.cli.view import Answers
    from poolhouse_node.device.host import Host
    from poolhouse_node.room.record import RecordedOptions

__all__ = ["CONTROL_START_S", "UpOptions", "bring_up", "control_arguments"]

CONTROL_START_S = 30.0


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What the person said about a room on this machine."""

    host: HostOptions
    devices: int
    ask: str | None
    raw_file: Path | None
    """Instead of ``ask``: a file that is the whole prompt."""
    as_json: bool

    def question(self) -> Question | None:
        """What to ask once, if anything. Raises :class:`CommandFailed` for a file that is none."""
        if self.raw_file is not None:
            return Question.from_file(self.raw_file)
        return None if self.ask is None else Question(self.ask)

    def find_former(self, view: TerminalView) -> FormerRoom | None:
        """The room to take up, if the person wants that and there is one."""
        return (
            find_former(self.host, os.environ, view.say, of_up=True) if self.host.resume else None
        )

    def resumed(self, kept: RecordedOptions) -> UpOptions:
        """The choices as they were, but for what the person says anew."""
        said = self.host.said
        devices = self.devices if "devices" in said else kept.devices or self.devices
        host = resumed(self.host, kept)
        if "split" not in said and len(host.split or ()) > devices:
            host = replace(host, split=None)
        return replace(self, host=host, devices=devices)


async def bring_up(options: UpOptions) -> int:
    """Start everything, ask once or chat, end everything."""
    question = options.question()
    answers: Answers = "figures" if options.as_json else "shown"
    view = TerminalView(answers=answers, once=question is not None)
    former = options.find_former(view)
    if former is not None:
        options = options.resumed(former.options)
    require_computable(options.host.model)
    async with measuring(options.host.metrics, view.say) as measured:
        return await _bring_up_measured(options, question, former, view, measured)


async def _bring_up_measured(
    options: UpOptions,
    question: Question | None,
    former: FormerRoom | None,
    view: TerminalView,
    measured: Measuring,
) -> int:
    store, file = await pull_with_progress(options.host.model, view, measured.found)
    threads = options.host.threads or fair_threads(free_cores(), options.devices)
    devices = spread(options.host.device, options.devices)
    loader = EngineLoader(store, devices[0], threads, file, options.host.precision)
    loader.warm_up()
    async with Children() as children:
        control = await children.start("control", control_arguments())
        model = open_model(file, options.host.context_size, loader)
        signal_url = json.loads(await control.first_line(CONTROL_START_S))["signal_url"]
        pledge_gb = options.host.pledge_gb or default_pledge_gb(options.devices, devices[0])
        hosted = hosted_room(
            options.host,
            former,
            view,
            place=replace(options.host.place, servers=[signal_url]),
            model=model,
            loader=loader,
            name=options.host.name or "host",
            pledge_gb=pledge_gb,
            measured=measured,
            devices=options.devices,
            is_passing=options.host.code is None,
        )
        async with hosted as room:
            try:
                arguments = _join_arguments(options, signal_url, pledge_gb, threads)
                await _start_workers(children, options, devices[1:], arguments, room.invite())
                running = asyncio.ensure_future(_run_room(room, options, question, view))
                keeping = _keep_children(children, view, signal_url)
                return await _unless_a_child_ends(children, room.host, running, keeping)
            finally:
                view.close()


async def _start_workers(
    children: Children,
    options: UpOptions,
    devices: list[str],
    arguments: list[str],
    invite: str,
) -> None:
    """One for each of ``devices``, which say where it computes."""
    for number, device in enumerate(devices, 1):
        name = f"worker-{number}"
        its_own = ["--name", name, "--device", device, *options.host.metrics.arguments(number)]
        await children.start(name, [*arguments, *its_own], {ROOM: invite})


async def _run_room(
    room: HostedRoom, options: UpOptions, question: Question | None, view: TerminalView
) -> int:
    host = room.host
    await host.until_devices(options.devices - 1)
    await _start(host, view)
    engine = describe_engine(host.keeper.shard)
    say_what_runs(host, view, engine)
    if question is not None:
        return await answer_once(host, question, as_json=options.as_json, engine=engine)
    view.say(f"Room {format_code(room.code)}. Ask a question; Ctrl-D ends.")
    await chat(host, view, HostCommands(host, room.invite))
    return 0


async def _start(host: Host, view: TerminalView) -> None:
    """Deal the layers, again when a device found them too large and lends less now.

    Nobody else is waited for: every device is here. Raises ``StartError``.
    """
    while True:
        try:
            return await host.start()
        except StartError as error:
            if error.is_final or not host.has_changed:
                raise
            view.say(f"{error} Dealing again with less for it …")


async def _keep_children(children: Children, view: TerminalView, signal_url: str) -> None:
    """Start again whoever ends: a worker's pass brings it back to its seat."""
    port = urlsplit(signal_url).port
    while True:
        child = await children.until_one_ends()
        how = child.how_it_ended()
        is_control = child.arguments[0] == "control"
        arguments = control_arguments(port or 0) if is_control else None
        is_started = await children.start_again(child, arguments)
        view.say(f"{how}; {'started again' if is_started else 'it is not started again'}")


async def _unless_a_child_ends(
    children: Children,
    host: Host,
    room: asyncio.Future[int],
    keeping: Coroutine[Any, Any, None],
) -> int:
    """The room's result. A process that ends before the room is online ends everything.

    Later it is started again (``keeping``), and the room waits for its device.
    """
    kept: asyncio.Future[None] | None = None
    watched = asyncio.ensure_future(children.until_one_ends())
    running = asyncio.ensure_future(failing_with_tasks(host, room))
    try:
        await asyncio.wait({watched, running}, return_when=asyncio.FIRST_COMPLETED)
        if watched.done() and not host.is_online and not running.done():
            child: Child = watched.result()
            raise CommandFailed(child.how_it_ended())
        kept = asyncio.ensure_future(keeping)
        return await running
    finally:
        tasks = [task for task in (watched, running, room, kept) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        keeping.close()


def control_arguments(port: int = 0) -> list[str]:
    """A control plane on loopback, on free ports unless said, that says where."""
    ports = ["--port", str(port), "--admin-port", "0"]
    return ["control", "--host", "127.0.0.1", *ports, "--json"]


def _join_arguments(
    options: UpOptions, signal_url: str, pledge_gb: float, threads: int
) -> list[str]:
    return [
        "join",
        "--signal",
        signal_url,
        "--rtc",
        options.host.place.engine,
        "--pledge",
        str(pledge_gb),
        "--threads",
        str(threads),
        "--precision",
        options.host.precision,
    ]
