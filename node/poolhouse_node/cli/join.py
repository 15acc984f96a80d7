"""``poolhouse ask``, and what it shares with ``poolhouse join``: a device in somebody's room."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.chat import questions
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.load_notebook import LoadNotebook
from poolhouse_node.cli.loading import EngineLoader
from poolhouse_node.cli.machine import default_name, device_name, fair_threads, free_cores
from poolhouse_node.cli.measuring import Measuring, MetricsOptions
from poolhouse_node.cli.options import DEFAULT_SIGNAL
from poolhouse_node.cli.rooms import Place, make_joined, read_invite
from poolhouse_node.cli.saving import SavedIfPossible
from poolhouse_node.cli.state import RoomState
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device.answers import AskFailed
from poolhouse_node.device.entrance import Secrets
from poolhouse_node.weights.cache import default_cache
from poolhouse_node.weights.source import ModelStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from poolhouse_node.device.joined import JoinedDevice
    from poolhouse_node.rtc.ice import PathSettings
    from poolhouse_node.rtc.peer import Engine
    from poolhouse_node.wire.codes import Invite

__all__ = ["JoinOptions", "ask_room", "while_inside"]

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


async def ask_room(options: JoinOptions, text: str | None, *, as_json: bool) -> int:
    """Ask once and end, or chat line by line without ``text``."""
    view = TerminalView(answers="figures" if as_json else "shown", once=text is not None)
    name = device_name(options.name or f"{default_name()[:34]} guest")
    invite = read_invite(options.room)
    device = await make_joined(
        options.place(invite),
        invite.code,
        view,
        name=name,
        pledge_gb=None,
        loader=options.loader(Measuring()),
        held=options.secrets(invite, name, view.say),
        trust_unverified=options.trust_unverified,
    )
    async with device:
        await device.join()
        await device.until_online()
        if text is not None:
            return await _ask_once(device, text, as_json=as_json)
        return await while_inside(device, _chat(device, view))


async def while_inside(device: JoinedDevice, work: Coroutine[Any, Any, None] | None = None) -> int:
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
