"""What this machine remembers of rooms: gates of rooms it hosts, passes of rooms it was in.

Files are written whole or not at all, and only their owner can read them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.room.gate import GateState

__all__ = ["STATE", "RoomState", "rooms_here"]

STATE = "POOLHOUSE_STATE"
"""Names the folder, for those who want it elsewhere."""
VERSION = 1
SOCKET = "host.sock"


def _root(environment: Mapping[str, str]) -> Path:
    own = environment.get(STATE)
    if own:
        return Path(own).expanduser()
    shared = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(shared).expanduser() / "poolhouse"


@dataclass(frozen=True, slots=True)
class RoomState:
    """What is kept of one room."""

    folder: Path

    @classmethod
    def of(cls, code: str, environment: Mapping[str, str]) -> RoomState:
        """The room with this code."""
        return cls(_root(environment) / "rooms" / code)

    @property
    def code(self) -> str:
        """The room's code."""
        return self.folder.name

    @property
    def socket(self) -> Path:
        """Where a running host listens for ``poolhouse room``."""
        return self.folder / SOCKET

    def load_gate(self) -> dict[str, Any]:
        """The gate of a room hosted here before; empty when there is none that can be read."""
        return self._load("gate.json")

    def save_gate(self, state: GateState) -> None:
        """Keep the gate."""
        self._save("gate.json", asdict(state))

    def load_pass(self, device: str) -> str:
        """The pass this device was given; ``""`` when none."""
        return str(self._load(_pass_file(device)).get("pass") or "")

    def save_pass(self, device: str, come_back_pass: str) -> None:
        """Keep the pass of a device."""
        self._save(_pass_file(device), {"pass": come_back_pass})

    def forget(self) -> bool:
        """Delete everything; False when nothing was kept."""
        known = self.folder.is_dir()
        shutil.rmtree(self.folder, ignore_errors=True)
        return known

    def make_folder(self) -> Path:
        """The folder, readable by its owner alone."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)
        return self.folder

    def _load(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) and found.get("version") == VERSION else {}

    def _save(self, name: str, content: Mapping[str, Any]) -> None:
        folder = self.make_folder()
        text = json.dumps({"version": VERSION, **content})
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")  # mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise


def _pass_file(device: str) -> str:
    """A file name for a device's name: what is odd in it is spelled out."""
    spelled = re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", device)
    return f"pass-{spelled}.json"


def rooms_here(environment: Mapping[str, str]) -> list[RoomState]:
    """Rooms whose host has a socket on this machine, running or not."""
    folder = _root(environment) / "rooms"
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(
        (RoomState(path) for path in found if (path / SOCKET).is_socket()),
        key=lambda room: room.folder,
    )
