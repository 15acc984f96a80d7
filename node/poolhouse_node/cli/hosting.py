"""What ``poolhouse host`` and ``poolhouse up`` share: open, deal, ask, report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.chat import questions
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.keeping import RecordKeeper
from poolhouse_node.cli.resuming import closed_at_the_end, lock_room, open_or_claim, recorded
from poolhouse_node.cli.room import describe_path
from poolhouse_node.cli.rooms import make_host, make_invite
from poolhouse_node.cli.saving import SavedIfPossible
from poolhouse_node.cli.state import RoomState
from poolhouse_node.room.asks import AskRefused
from poolhouse_node.room.record import RoomMemory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from poolhouse_node.cli.host import HostOptions
    from poolhouse_node.cli.loading import EngineLoader
    from poolhouse_node.cli.measuring import Measuring
    from poolhouse_node.cli.resuming import FormerRoom
    from poolhouse_node.cli.room import HostCommands
    from poolhouse_node.cli.rooms import Place
    from poolhouse_node.cli.view import TerminalView
    from poolhouse_node.device.answering import AnswerRecord
    from poolhouse_node.device.host import Host
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.room.gate import Gate

__all__ = [
    "HostedRoom",
    "Question",
    "answer_once",
    "chat",
    "deal",
    "failing_with_tasks",
    "hosted_room",
    "report",
    "say_what_runs",
]

BACK_WITHIN_S = 25.0
"""What devices of a resumed room get to come back to their seats."""
GATE_LOST = (
    "This room's key and passes are not kept: they count until this host ends, and a host that is "
    "started again may know others"
)


@dataclass(frozen=True, slots=True)
class HostedRoom:
    """A room that is open, and what belongs to it."""

    host: Host
    state: RoomState
    gate: Gate
    place: Place
    memory: RoomMemory
    """What a former host knew; empty in a new room."""

    @property
    def code(self) -> str:
        """The room's code."""
        return self.state.code

    def invite(self) -> str:
        """The invite link as it is now."""
        return make_invite(self.place, self.code, self.gate.key)


@contextlib.asynccontextmanager
async def hosted_room(
    options: HostOptions,
    former: FormerRoom | None,
    view: TerminalView,
    *,
    place: Place,
    model: RoomModel,
    loader: EngineLoader,
    name: str,
    pledge_gb: float,
    measured: Measuring,
    devices: int | None = None,
    is_passing: bool = False,
) -> AsyncIterator[HostedRoom]:
    """Open a room, or take the former one up, and host it; how it closes depends on how it ends.

    ``devices`` is kept with it. Of a room that is ``is_passing`` nothing stays when it was closed
    for good. Raises :class:`CommandFailed` or ``SignalingError``.
    """
    network, code = await open_or_claim(place, options.code, former, view.say)
    state = RoomState.of(code, os.environ)
    gate = options.gate(state)
    memory = RoomMemory() if former is None else former.memory_for(model.key)
    choices = recorded(options, code=code, host_name=name, model_key=model.key, devices=devices)
    keeper = RecordKeeper(state, choices, memory, view.say, is_passing=is_passing)
    save_gate = SavedIfPossible(state.save_gate, GATE_LOST, view.say)
    watch = measured.room(view)
    host = make_host(
        network,
        watch,
        name=name,
        pledge_gb=pledge_gb,
        model=model,
        loader=measured.loader(loader),
        settings=options.settings(),
        gate=gate,
        save_gate=save_gate,
        save_memory=keeper.save,
        memory=None if former is None else memory,
        seed=options.seed,
    )
    with lock_room(state, former):
        save_gate(gate.state())
        async with keeper, host, closed_at_the_end(host, keeper):
            with watch.hosting(host, code):
                yield HostedRoom(host, state, gate, place, memory)


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask once: a question, or a whole prompt and the name to show for it."""

    text: str
    raw_prompt: str | None = None

    @classmethod
    def from_file(cls, file: Path) -> Question:
        """A whole prompt. Raises :class:`CommandFailed` when it cannot be read or is empty."""
        try:
            prompt = file.read_text(encoding="utf-8")
        except OSError as error:
            raise CommandFailed(
                f"The prompt file {file} cannot be read: {error.strerror}."
            ) from error
        except UnicodeDecodeError as error:
            raise CommandFailed(f"The prompt file {file} is no UTF-8 text.") from error
        if not prompt:
            raise CommandFailed(f"The prompt file {file} is empty.")
        return cls(file.name, prompt)

    def ids(self, model: RoomModel) -> list[int] | None:
        """Token ids of a raw prompt, special tokens read as such; ``None`` for a question."""
        if self.raw_prompt is None:
            return None
        return model.tokenizer.encode_with_specials(self.raw_prompt)


async def deal(room: HostedRoom, wait: int, view: TerminalView) -> None:
    """Wait for devices and deal the layers. Raises ``StartError``.

    A room that was taken up waits for the devices that held layers, and deals without those that
    do not come back (liveness, section 11), also on its own; a new one waits for ``wait`` devices.
    """
    seated = [seat.name for seat in room.memory.seats[1:]]
    if seated:
        view.say(f"Waiting up to {BACK_WITHIN_S:.0f} s for {', '.join(seated)} …")
        await room.host.until_named(seated, timeout_s=BACK_WITHIN_S)
    elif wait and not room.memory.seats:
        view.say(f"Waiting for {wait} device(s) to join …")
        await room.host.until_devices(wait)
    await room.host.start()


def say_what_runs(host: Host, view: TerminalView, engine: str) -> None:
    """The engine, and the paths of the frames: direct, or through a relay."""
    paths = ", ".join(map(describe_path, host.transport.split(", ")))
    view.say(engine + (f"; links: {paths}" if host.shares[1:] else ""))


async def answer_once(host: Host, question: Question, *, as_json: bool, engine: str) -> int:
    """Ask, wait for the end of the answer, report; the exit status."""
    ids = question.ids(host.model)
    record = await host.ask(question.text, ids)
    if as_json:
        print(json.dumps(report(host, record, engine), ensure_ascii=False), flush=True)
    if record.failure is not None:
        raise CommandFailed(record.failure)
    return 0


def report(host: Host, record: AnswerRecord, engine: str) -> dict[str, object]:
    """The JSON line of an answer."""
    known: dict[str, object] = {
        "answer": record.text,
        "token_ids": list(record.token_ids),
        "prompt_tokens": record.prompt_tokens,
        "ttft_s": _rounded(record.ttft_s),
        "tokens_per_s": _rounded(record.tokens_per_s),
        "devices": [{"name": s.name, "layers": [s.lo, s.hi]} for s in host.shares],
        "engine": engine,
        "transport": host.transport,
    }
    return known | ({"error": record.failure} if record.failure else {})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


async def chat(host: Host, view: TerminalView, commands: HostCommands) -> None:
    """Ask what is typed, line by line, until the end of stdin; ``/allow`` is a command.

    At a terminal lines are taken while an answer runs: ``/stop`` ends it. Piped questions are
    asked one after the other.
    """
    async for line in questions(view):
        if line.startswith("/"):
            view.say(commands.typed(line))
            continue
        try:
            answered = host.ask(line)
        except AskRefused as error:
            view.say(str(error))
        else:
            if not sys.stdin.isatty():
                await answered


async def failing_with_tasks[T](host: Host, work: asyncio.Future[T]) -> T:
    """Wait for ``work``, or raise what a background task of the host failed with."""
    waited: set[asyncio.Future[Any]] = {work, host.tasks.failure}
    done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if work in done:
        return work.result()
    work.cancel()
    host.tasks.failure.result()
    raise CommandFailed("The room ended.")
