"""What this machine remembers of rooms: those it hosts, and passes of those it was in.

Files are written whole or not at all, and only their owner can read them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.room import record as records
from poolhouse_node.wire.messages.joining import Died

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from poolhouse_node.room.gate import GateState
    from poolhouse_node.room.record import RoomRecord

__all__ = ["STATE", "RoomLock", "RoomState", "recorded_rooms", "rooms_here"]

STATE = "POOLHOUSE_STATE"
"""Names the folder, for those who want it elsewhere."""
VERSION = 1
SOCKET = "host.sock"
GATE = "gate.json"
RECORD = "room.json"
NAME_CHARACTERS_MAX = 150
"""Of a device's name in a file name; file systems take 255 bytes for all of it."""
DEATH_TOLD_S = 600.0


def _rooms(environment: Mapping[str, str]) -> Path:
    own = environment.get(STATE)
    if own:
        return Path(own).expanduser() / "rooms"
    shared = environment.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(shared).expanduser() / "poolhouse" / "rooms"


@dataclass(frozen=True, slots=True)
class RoomLock:
    """This process hosts the room: no other on this machine does. Ends with the process."""

    descriptor: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class RoomState:
    """What is kept of one room."""

    folder: Path

    @classmethod
    def of(cls, code: str, environment: Mapping[str, str]) -> RoomState:
        """The room with this code."""
        return cls(_rooms(environment) / code)

    @property
    def code(self) -> str:
        """The room's code."""
        return self.folder.name

    @property
    def socket(self) -> Path:
        """Where a running host listens for ``poolhouse room``."""
        return self.folder / SOCKET

    # ---- hosting -------------------------------------------------------------------------------

    def lock(self) -> RoomLock | None:
        """Become the room's only host on this machine; ``None`` when another process is.

        Raises :class:`CommandFailed` when the folder cannot be used.
        """
        with _failing_of(self.folder):
            descriptor = os.open(self.make_folder() / "host.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        self._clear_away()
        return RoomLock(descriptor)

    def _clear_away(self) -> None:
        """Delete what a killed host had not finished; what cannot be deleted harms nobody."""
        for name in (GATE, RECORD):
            for unfinished in self.folder.glob(f".{name}.*"):
                with contextlib.suppress(OSError):
                    unfinished.unlink()

    def load_gate(self) -> dict[str, Any]:
        """The gate of a room hosted here before; empty when there is none that can be read."""
        return self._load(GATE)

    def save_gate(self, state: GateState) -> None:
        """Keep the gate."""
        self._save(GATE, asdict(state))

    def load_record(self) -> RoomRecord | None:
        """The record of a room hosted here before; ``None`` when there is none to use."""
        try:
            record = records.read((self.folder / RECORD).read_bytes())
        except OSError:
            return None
        # A record that was copied into another room's folder is not that room's.
        return record if record is not None and record.options.code == self.code else None

    def save_record(self, record: RoomRecord) -> None:
        """Keep the record. Waits for the disk: call it in a thread."""
        self._write(RECORD, records.write(record))

    def delete_record(self) -> None:
        """The room is over: nothing is to be resumed. Its gate is kept for the same code."""
        (self.folder / RECORD).unlink(missing_ok=True)

    # ---- joining -------------------------------------------------------------------------------

    def load_pass(self, device: str) -> str:
        """The pass this device was given; ``""`` when none."""
        return str(self._load(_file_of("pass", device)).get("pass") or "")

    def save_pass(self, device: str, come_back_pass: str) -> None:
        """Keep the pass of a device."""
        self._save(_file_of("pass", device), {"pass": come_back_pass})

    def save_loading(self, device: str, at: float) -> None:
        """This device loads layers at ``at``, seconds since 1970.

        Say it again now and then while it loads, and :meth:`clear_loading` however that ends:
        who finds this later was killed meanwhile.
        """
        self._save(_file_of("loading", device), {"at": at})

    def clear_loading(self, device: str) -> None:
        """The load is over, or its death was told."""
        (self.folder / _file_of("loading", device)).unlink(missing_ok=True)

    def load_death(self, device: str, now: float) -> Died | None:
        """What to tell the host when this device was killed while it loaded (liveness, 9)."""
        at = self._load(_file_of("loading", device)).get("at")
        return _death(float(at), now) if _is_time(at) else None

    # ---- files ---------------------------------------------------------------------------------

    def forget(self) -> bool:
        """Delete everything; False when nothing was kept."""
        known = self.folder.is_dir()
        shutil.rmtree(self.folder, ignore_errors=True)
        return known

    def make_folder(self) -> Path:
        """The folder, readable by its owner alone."""
        self.folder.parent.parent.mkdir(parents=True, exist_ok=True)
        self.folder.parent.mkdir(exist_ok=True, mode=0o700)  # codes are not everybody's business
        self.folder.mkdir(exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)
        return self.folder

    def _load(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) and found.get("version") == VERSION else {}

    def _save(self, name: str, content: Mapping[str, Any]) -> None:
        self._write(name, json.dumps({"version": VERSION, **content}).encode())

    def _write(self, name: str, content: bytes) -> None:
        folder = self.make_folder()
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise


def _file_of(what: str, device: str) -> str:
    """A file name for a device's name: what is odd in it is spelled out, what is long is cut."""
    spelled = re.sub(r"[^A-Za-z0-9-]", lambda found: f"_{ord(found[0]):x}_", device)
    if len(spelled) > NAME_CHARACTERS_MAX:
        digest = hashlib.sha256(device.encode(errors="surrogatepass")).hexdigest()
        spelled = f"{spelled[:NAME_CHARACTERS_MAX]}-{digest[:16]}"
    return f"{what}-{spelled}.json"


def _is_time(at: object) -> TypeGuard[float]:
    """A number that a clock may have said; JSON has others, too large for any."""
    return isinstance(at, int | float) and abs(at) < 1 << 53


def _death(at: float, now: float) -> Died | None:
    """A death at ``at``, as it is told at ``now``; later than ten minutes it is of no use."""
    if not abs(now - at) <= DEATH_TOLD_S:
        return None
    ago_s = max(now - at, 0.0)
    return Died(during="loading", ago=round(ago_s, 1), at=int(at * 1000), loading=True)


def rooms_here(environment: Mapping[str, str]) -> list[RoomState]:
    """Rooms whose host has a socket on this machine, running or not."""
    return [room for room in _all_rooms(environment) if room.socket.is_socket()]


def recorded_rooms(environment: Mapping[str, str]) -> list[tuple[RoomState, RoomRecord]]:
    """Rooms with a record that can be read, the newest first."""
    read = ((room, room.load_record()) for room in _all_rooms(environment))
    found = [(room, record) for room, record in read if record is not None]
    return sorted(found, key=lambda pair: pair[1].saved_at, reverse=True)


def _all_rooms(environment: Mapping[str, str]) -> list[RoomState]:
    folder = _rooms(environment)
    with _failing_of(folder):
        found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [RoomState(path) for path in found]


@contextlib.contextmanager
def _failing_of(folder: Path) -> Iterator[None]:
    """A folder that cannot be used is a sentence for the person, as :class:`CommandFailed`."""
    try:
        yield
    except OSError as error:
        raise CommandFailed(
            f"The state folder {folder} cannot be used: {error}. {STATE} names another one."
        ) from error
