"""``poolhouse room``: for the person who hosts, from another terminal (or typed with a slash)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.room_socket import call_host
from poolhouse_node.cli.state import RoomState, rooms_here
from poolhouse_node.device.doorman import SeveralWait
from poolhouse_node.room.asks import AskRefused
from poolhouse_node.wire.codes import format_code, parse_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from poolhouse_node.device.host import Host

__all__ = ["HostCommands", "describe_path", "find_room", "forget_room", "tell_host"]

KNOWN = "Known: /status, /allow NAME, /deny NAME, /kick NAME, /key, /redeal, /stop."
SHORT = {"a": "allow", "d": "deny"}
"""Keys for the one decision that somebody waits for."""


@dataclass(frozen=True, slots=True)
class HostCommands:
    """What a host does when its person says so."""

    host: Host
    invite: Callable[[], str]
    """The invite link as it is now."""

    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out ``{"command": ..., "name": ...}``; one that fails or is unknown is an error."""
        try:
            return self._carry_out(request)
        except OSError as error:
            return {"error": f"It could not be done, or not be kept: {error}."}

    def _carry_out(self, request: Mapping[str, Any]) -> dict[str, Any]:
        command, name = str(request.get("command")), str(request.get("name") or "")
        match command:
            case "status":
                return self.host.status()
            case "allow" | "deny":
                return self._decide(command, name or self._the_only_one_waiting())
            case "kick":
                return _done(self.host.kick(name), f"Nobody called {name!r} is in the room.")
            case "key":
                self.host.renew_key()
                return {"invite": self.invite()}
            case "redeal":
                return self._deal_again()
            case "stop":
                self.host.stop()
                return {"ok": True}
            case _:
                return {"error": f"There is no command {command!r}."}

    def _decide(self, command: str, name: str) -> dict[str, Any]:
        if not name:
            waiting = self.host.doorman.waiting()
            names = ", ".join(f"{each.name} ({each.digits or 'no digits'})" for each in waiting)
            names = names or "nobody"
            return {"error": f"Say who: waiting are {names}."}
        act = self.host.doorman.allow if command == "allow" else self.host.doorman.deny
        try:
            decided = act(name)
        except SeveralWait as error:
            return {"error": str(error)}
        if decided is None:
            return {"error": f"Nobody called {name!r} is waiting."}
        return {"ok": True, "name": decided.name, "digits": decided.digits}

    def _the_only_one_waiting(self) -> str:
        waiting = self.host.doorman.waiting()
        return waiting[0].name if len(waiting) == 1 else ""

    def _deal_again(self) -> dict[str, Any]:
        try:
            self.host.deal_again()
        except AskRefused as error:
            return {"error": str(error)}
        return {"ok": True}

    def typed(self, line: str) -> str:
        """A line with a slash, typed in the host's own terminal; what to say of it."""
        command, _, name = line.removeprefix("/").partition(" ")
        command = SHORT.get(command, command)
        answer = self.handle({"command": command, "name": name.strip()})
        if "error" in answer:
            return f"{answer['error']} {KNOWN}"
        return show(answer)


def _done(found: object, otherwise: str) -> dict[str, Any]:
    return {"ok": True} if found else {"error": otherwise}


def show(answer: Mapping[str, Any]) -> str:
    """An answer for people."""
    if "invite" in answer:
        return f"New invite link, the old ones are dead: {answer['invite']}"
    if "devices" not in answer:
        return f"Done: {answer['name']}, {_digits(answer)}." if answer.get("name") else "Done."
    lines = [f"room {format_code(answer['code'])}: {answer['state']}"]
    if answer["waits_for"]:
        lines.append(f"  {_awaited(answer['waits_for'])}")
    lines += [_device_line(device) for device in answer["devices"]]
    for waiting in answer["waiting"]:
        lines.append(f"  ? {waiting['name']} waits ({waiting['label']}, {_digits(waiting)})")
    return "\n".join(lines)


def _digits(waiting: Mapping[str, Any]) -> str:
    return f"digits {waiting['digits']}" if waiting["digits"] else "no digits"


def _awaited(waits_for: Mapping[str, Any]) -> str:
    deal_in_s = waits_for["deal_in_s"]
    then = "no automatic deal" if deal_in_s is None else f"dealing again in {deal_in_s:.0f} s"
    return f"{waits_for['what']} for {waits_for['since_s']:.0f} s; {then}"


def _device_line(device: Mapping[str, Any]) -> str:
    words = [f"  {device['name']}"]
    if device["layers"]:
        words.append(f"layers {device['layers'][0]}–{device['layers'][1] - 1}")
    if device["rtt_ms"] is not None:
        words.append(f"{device['rtt_ms']:.1f} ms")
    if device["transport"]:
        words.append(describe_path(device["transport"]))
    if device["heard_s"] is not None:
        words.append(f"heard {device['heard_s']:.1f} s ago")
    return ", ".join(words)


def describe_path(transport: str) -> str:
    """A link's transport, with the path it takes in words; unknown before one is selected."""
    _, _, ends = transport.partition(" ")
    if not ends:
        return f"path not known yet ({transport})"
    path = "through a relay" if "relay" in ends.split("/") else "direct"
    return f"{path} ({transport})"


def find_room(code: str | None, environment: Mapping[str, str]) -> RoomState:
    """The room meant: by code, or the only one hosted here. Raises :class:`CommandFailed`."""
    if code is not None:
        parsed = parse_code(code)
        if not parsed:
            raise CommandFailed(f"{code!r} is not a room code.")
        return RoomState.of(parsed, environment)
    rooms = rooms_here(environment)
    if len(rooms) == 1:
        return rooms[0]
    if not rooms:
        raise CommandFailed("No room is hosted on this machine.")
    codes = ", ".join(format_code(room.code) for room in rooms)
    raise CommandFailed(f"Several rooms are hosted here; say which with --room: {codes}.")


async def tell_host(room: RoomState, request: Mapping[str, Any], *, as_json: bool) -> int:
    """Send a command to the running host and show its answer."""
    answer = await call_host(room, request)
    print(json.dumps(answer, ensure_ascii=False) if as_json else show(answer))
    return 0


def forget_room(room: RoomState) -> int:
    """Delete what this machine keeps of a room: its gate, passes, keys and conversation.

    Raises :class:`CommandFailed` when nothing is kept, or a running host would write it again.
    """
    shown = format_code(room.code)
    if not room.folder.is_dir():
        raise CommandFailed(f"Nothing is kept of the room {shown}.")
    lock = room.lock()
    if lock is None:
        raise CommandFailed(f"The room {shown} is hosted on this machine: end its host first.")
    with lock:
        room.forget()
    print(f"Forgot the room {shown}.")
    return 0
