"""Taking up a room that was hosted on this machine before (liveness, section 11)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.rooms import open_room
from poolhouse_node.cli.running import ended_by
from poolhouse_node.cli.state import RoomState, recorded_rooms
from poolhouse_node.room.record import RecordedOptions, RoomMemory, is_fresh
from poolhouse_node.rtc.signaling import SignalingError
from poolhouse_node.wire.codes import format_code, host_peer_id, parse_code

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from poolhouse_node.cli.host import HostOptions
    from poolhouse_node.cli.keeping import RecordKeeper
    from poolhouse_node.cli.rooms import Place
    from poolhouse_node.cli.state import RoomLock
    from poolhouse_node.device.host import Host
    from poolhouse_node.rtc.network import Network

__all__ = [
    "FormerRoom",
    "claim",
    "closed_at_the_end",
    "find_former",
    "lock_room",
    "open_or_claim",
    "recorded",
    "resumed",
]

CLAIM_TRIES = 30
CLAIM_PAUSE_S = 3.0

SAID_AS: Mapping[str, str] = {
    "model": "model",
    "context_size": "context_size",
    "split": "split",
    "pledge_gb": "pledge",
    "max_tokens": "max_tokens",
    "system": "system",
    "is_open": "open_room",
    "denies_unknown": "deny_unknown",
    "takes_older_devices": "take_older_devices",
    "takes_api_clients": "api_clients",
    "redeal_after_s": "redeal_after",
    "wait": "wait",
}
"""Recorded choices and the options that the person makes them with."""
OF_ITS_MODEL = ("context_size", "split")
"""Choices that say nothing about another model."""


@dataclass(frozen=True, slots=True)
class FormerRoom:
    """What this machine knows of a room that it hosted, and the right to host it again."""

    options: RecordedOptions
    memory: RoomMemory
    lock: RoomLock

    def memory_for(self, model_key: str) -> RoomMemory:
        """What counts when the room now runs this model: token ids and layers are those of one."""
        if self.options.model_key == model_key:
            return self.memory
        waiting = [ask for ask in self.memory.waiting if ask.prompt_ids is None]
        return msgspec.structs.replace(
            self.memory, exchanges=[], seats=[], limits=[], running=None, waiting=waiting
        )


def find_former(
    options: HostOptions,
    environment: Mapping[str, str],
    say: Callable[[str], None],
    *,
    of_up: bool = False,
    now: Callable[[], float] = time.time,
) -> FormerRoom | None:
    """The room to take up, locked: the one with the code that was said, else the newest.

    ``None``, and a line that says so, when no record is fresh enough. Rooms that another process
    hosts are left to it. Rooms of ``poolhouse up`` are found with ``of_up`` alone: nobody but it
    starts their control plane.
    """
    code = parse_code(options.code)
    for state, record in recorded_rooms(environment):
        chosen = record.options
        meant = code in ("", state.code) and of_up is not bool(chosen.servers)
        if not meant or not is_fresh(record, now()):
            continue
        lock = state.lock()
        if lock is not None:
            say(f"Taking up the room {format_code(state.code)} ({_remembered(record.memory)}).")
            return FormerRoom(chosen, record.memory, lock)
    which = f"The room {format_code(code)}" if code else "No room"
    was = "was not" if code else "was"
    say(f"{which} {was} hosted here in the last 15 minutes: opening a new one.")
    return None


def _remembered(memory: RoomMemory) -> str:
    count = memory.answers
    words = ["1 question so far" if count == 1 else f"{count or 'no'} questions so far"]
    if memory.running is not None:
        words.append("one was being answered")
    if memory.waiting:
        words.append(f"{len(memory.waiting)} waiting")
    return ", ".join(words)


def lock_room(state: RoomState, former: FormerRoom | None) -> RoomLock:
    """The right to host the room. Raises :class:`CommandFailed` when a process here has it."""
    lock = state.lock() if former is None else former.lock
    if lock is None:
        raise CommandFailed(
            f"A host of the room {format_code(state.code)} runs on this machine already."
        )
    return lock


# ---- the person's choices -----------------------------------------------------------------------


def recorded(
    options: HostOptions, *, code: str, host_name: str, model_key: str, devices: int | None = None
) -> RecordedOptions:
    """The choices to keep. A default is kept as one: it may be another after an update."""
    temperature = options.sampling.temperature
    return RecordedOptions(
        code=code,
        servers=list(options.place.servers),
        host_name=host_name,
        model=_lasting(options.model),
        model_key=model_key,
        context_size=options.context_size,
        split=None if options.split is None else list(options.split),
        pledge_gb=options.pledge_gb,
        max_tokens=options.max_tokens,
        temperature=temperature if temperature > 0 else 0.0,  # NaN is greedy, and no JSON
        top_k=options.sampling.top_k,
        system=options.system,
        is_open=options.is_open,
        denies_unknown=options.denies_unknown,
        takes_older_devices=options.takes_older_devices,
        takes_api_clients=options.takes_api_clients,
        redeal_after_s=options.redeal_after_s,
        wait=options.wait,
        devices=devices,
    )


def resumed(options: HostOptions, kept: RecordedOptions) -> HostOptions:
    """The choices as they were, but for what the person says anew."""
    said = options.said
    model_changes = "model" in said and _lasting(options.model) != kept.model
    taken: dict[str, Any] = {
        field: getattr(kept, field)
        for field, option in SAID_AS.items()
        if option not in said and not (model_changes and field in OF_ITS_MODEL)
    }
    if taken.get("split") is not None:
        taken["split"] = tuple(taken["split"])
    sampling = {name for name in ("temperature", "top_k") if name not in said}
    place = options.place
    return replace(
        options,
        **taken,
        sampling=replace(options.sampling, **{name: getattr(kept, name) for name in sampling}),
        place=place if "signal" in said else replace(place, servers=kept.servers),
        name=options.name or kept.host_name,
        code=kept.code,
    )


def _lasting(model: str) -> str:
    """A file's name that means the same in another folder; keys and URLs as they are."""
    path = Path(model).expanduser()
    return str(path.absolute()) if path.is_file() else model


# ---- claiming and closing -----------------------------------------------------------------------


async def open_or_claim(
    place: Place, code: str | None, former: FormerRoom | None, say: Callable[[str], None]
) -> tuple[Network, str]:
    """A new room, or the former one; raises as :func:`open_room` and :func:`claim` do."""
    if former is None:
        return await open_room(place, code)
    return await claim(place, former.options.code, say), former.options.code


async def claim(
    place: Place,
    code: str,
    say: Callable[[str], None],
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Network:
    """Register under the room's own id again, once the server lets go of the former host.

    Raises :class:`CommandFailed` when it does not, ``SignalingError`` when no server answers.
    """
    for number in range(CLAIM_TRIES):
        try:
            return await place.open(host_peer_id(code))
        except SignalingError as error:
            if error.kind != "id-taken":
                raise
        if number == 0:
            say("The signaling server still holds the room for its former host; waiting for it …")
        await pause(CLAIM_PAUSE_S)
    raise CommandFailed(
        f"The room {format_code(code)} is open elsewhere: its id at the signaling server is taken."
    )


@contextlib.asynccontextmanager
async def closed_at_the_end(host: Host, keeper: RecordKeeper) -> AsyncIterator[None]:
    """The end of the work in it, or Ctrl-C, closes the room for good.

    SIGTERM and a failure only leave: devices knock for a minute, and a host that resumes takes
    them back (liveness, section 6).
    """
    try:
        yield
    except asyncio.CancelledError:
        if ended_by() is signal.SIGINT:
            await _close(host, keeper)
        raise
    else:
        await _close(host, keeper)


async def _close(host: Host, keeper: RecordKeeper) -> None:
    keeper.room_is_over()
    await host.close_room("The host closed the room.")
