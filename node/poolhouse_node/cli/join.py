"""``poolhouse join`` and ``poolhouse ask``: a device in somebody's room."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.chat import questions
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.load_notebook import LoadNotebook
from poolhouse_node.cli.loading import EngineLoader
from poolhouse_node.cli.machine import (
    default_name,
    default_pledge_gb,
    device_name,
    fair_threads,
    free_cores,
)
from poolhouse_node.cli.measuring import Measuring, MetricsOptions, measuring
from poolhouse_node.cli.options import DEFAULT_SIGNAL
from poolhouse_node.cli.rooms import Place, make_joined, read_invite
from poolhouse_node.cli.saving import SavedIfPossible
from poolhouse_node.cli.state import RoomState
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device.answers import AskFailed
from poolhouse_node.device.entrance import Secrets
from poolhouse_node.device.joined import JoinFailed, JoinRefused
from poolhouse_node.room.returning import next_knock_s
from poolhouse_node.rtc.signaling import SignalingError
from poolhouse_node.weights.cache import default_cache
from poolhouse_node.weights.source import ModelStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.joined import JoinedDevice
    from poolhouse_node.device.ports import ShardLoader
    from poolhouse_node.rtc.ice import PathSettings
    from poolhouse_node.rtc.peer import Engine
    from poolhouse_node.wire.codes import Invite

__all__ = ["JoinOptions", "ask_room", "join_room"]

NOT_KEPT = (
    "This device's pass is not kept: it counts as long as this process runs, and the next one "
    "needs the link again, or is asked about"
)
ORIGIN = re.compile(r"https?://[^/?#]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """What the person said about joining."""

    room: str
    """A code or an invite link."""
    signal: str | None
    engine: Engine
    environment: Mapping[str, str]
    name: str | None = None
    pledge_gb: float | None = None
    device: str = "auto"
    threads: int | None = None
    precision: str = "auto"
    paths: PathSettings | None = None
    trust_unverified: bool = False
    metrics: MetricsOptions = field(default_factory=MetricsOptions)

    def place(self, invite: Invite) -> Place:
        """Where to look for the room: as said, else where the link says, else on this machine."""
        origin = ORIGIN.match(self.room.strip())
        said = self.signal or invite.signal or (origin[0] if origin else DEFAULT_SIGNAL)
        # A link that somebody sent may name any server: none of those gets the API token.
        return Place.read(said, self.engine, self.paths, self.environment if self.signal else None)

    def secrets(self, invite: Invite, name: str, say: Callable[[str], None]) -> Secrets:
        """What this device can prove: the link's key, and the pass it was given before.

        ``say`` tells the person when a new pass cannot be kept.
        """
        state = RoomState.of(invite.code, self.environment)
        save = SavedIfPossible[str](lambda given: state.save_pass(name, given), NOT_KEPT, say)
        return Secrets(invite.key, state.load_pass(name), save)

    def notebook(self, invite: Invite, name: str) -> LoadNotebook:
        """Where a death while loading is known by, to the next process of this name."""
        return LoadNotebook(RoomState.of(invite.code, self.environment), name)

    def loader(self, measured: Measuring) -> EngineLoader:
        """For the layers this device may be dealt."""
        store = ModelStore(default_cache(self.environment), found=measured.found)
        threads = self.threads or fair_threads(free_cores())
        return EngineLoader(store, self.device, threads, precision=self.precision)


async def _device(
    options: JoinOptions,
    view: TerminalView,
    notify: Notify,
    loader: ShardLoader,
    *,
    name: str,
    pledge_gb: float | None,
) -> JoinedDevice:
    invite = read_invite(options.room)
    return await make_joined(
        options.place(invite),
        invite.code,
        notify,
        name=name,
        pledge_gb=pledge_gb,
        loader=loader,
        held=options.secrets(invite, name, view.say),
        trust_unverified=options.trust_unverified,
        notebook=None if pledge_gb is None else options.notebook(invite, name),
    )


async def join_room(options: JoinOptions) -> int:
    """Hold layers until the room is over or the person ends it."""
    view = TerminalView(answers="hidden")
    try:
        async with measuring(options.metrics, view.say) as measured:
            loader = options.loader(measured)
            loader.warm_up()
            return await _as_long_as_it_may_be_back(options, view, loader, measured)
    finally:
        view.close()


async def _as_long_as_it_may_be_back(
    options: JoinOptions, view: TerminalView, loader: EngineLoader, measured: Measuring
) -> int:
    """Join. A device that was in the room before knocks for a minute, as if it had only lost its
    link: its host, or the signaling server, may be on the way back as well (liveness, 10).
    """
    name = device_name(options.name)
    loop = asyncio.get_running_loop()
    started_at, last, said = loop.time(), None, False
    while True:
        last = loop.time()
        try:
            return await _join_once(options, view, loader, name, measured)
        except (JoinFailed, SignalingError) as error:
            wait_s = next_knock_s(started_at, last, loop.time())
            invite = read_invite(options.room)
            was_inside = bool(options.secrets(invite, name, view.say).come_back_pass)
            if isinstance(error, JoinRefused) or not was_inside or wait_s is None:
                raise
            if not said:
                view.say(f"{error} This device was in that room before; trying for a minute …")
                said = True
            await asyncio.sleep(wait_s)


async def _join_once(
    options: JoinOptions,
    view: TerminalView,
    loader: EngineLoader,
    name: str,
    measured: Measuring,
) -> int:
    watch, code = measured.room(view), read_invite(options.room).code
    pledge_gb = options.pledge_gb or default_pledge_gb()
    async with contextlib.AsyncExitStack() as stack:
        with watch.trying():
            device = await _device(
                options, view, watch, measured.loader(loader), name=name, pledge_gb=pledge_gb
            )
            await stack.enter_async_context(device)
            stack.enter_context(watch.joining(device, code))
            await device.join()
        view.say(f"Joined as {device.name}.")
        return await _while_inside(device)


async def ask_room(options: JoinOptions, text: str | None, *, as_json: bool) -> int:
    """Ask once and end, or chat line by line without ``text``."""
    view = TerminalView(answers="figures" if as_json else "shown", once=text is not None)
    name = device_name(options.name or f"{default_name()[:34]} guest")
    loader = options.loader(Measuring())
    device = await _device(options, view, view, loader, name=name, pledge_gb=None)
    async with device:
        await device.join()
        await device.until_online()
        if text is not None:
            return await _ask_once(device, text, as_json=as_json)
        return await _while_inside(device, _chat(device, view))


async def _while_inside(device: JoinedDevice, work: Coroutine[Any, Any, None] | None = None) -> int:
    """Until ``work`` is done or the room is over for this device; the exit status."""
    over = asyncio.ensure_future(device.until_over())
    working = asyncio.ensure_future(work or asyncio.Event().wait())
    waited: set[asyncio.Future[Any]] = {over, working, device.tasks.failure}
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if device.tasks.failure.done():
            device.tasks.failure.result()
        if over.done():
            return 0 if over.result().orderly else 1
        working.result()
        return 0
    finally:
        over.cancel()
        working.cancel()
        await asyncio.gather(over, working, return_exceptions=True)


async def _ask_once(device: JoinedDevice, text: str, *, as_json: bool) -> int:
    try:
        answer = await device.ask(text)
    except AskFailed as error:
        if as_json:
            print(json.dumps({"error": str(error)}, ensure_ascii=False), flush=True)
        raise CommandFailed(str(error)) from error
    except asyncio.CancelledError:
        device.stop()  # nobody waits for the rest of it
        raise
    if as_json:
        line = {"answer": answer.text, "stats": answer.stats}
        print(json.dumps(line, ensure_ascii=False), flush=True)
    return 0


async def _chat(device: JoinedDevice, view: TerminalView) -> None:
    if sys.stdin.isatty():
        view.say("Ask a question; Ctrl-D ends.")
    async for question in questions(view):
        try:
            await device.ask(question)
        except AskFailed as error:
            view.say(str(error))
