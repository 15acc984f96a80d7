"""A terminal with something running in it, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["PATIENCE_S", "Screen"]

PATIENCE_S = 150.0
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]|\x07")
_ROWS, _COLUMNS = 50, 200


@dataclass
class Screen:
    """Output of a process on a terminal of its own. :meth:`end` or :meth:`kill` it."""

    process: subprocess.Popen[bytes]
    keyboard: int
    _pieces: list[bytes] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _reader: threading.Thread | None = None

    @classmethod
    def start(cls, arguments: list[str], env: Mapping[str, str]) -> Screen:
        """Run a program. The terminal is its session's, so that Ctrl-C reaches all of that."""
        keyboard, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", _ROWS, _COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["setsid", "--ctty", *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=dict(env),
        )
        os.close(terminal)
        screen = cls(process, keyboard)
        screen._reader = threading.Thread(target=screen._read, daemon=True)
        screen._reader.start()
        return screen

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self.keyboard, 65536)
            except OSError:  # Linux says so when the last process has closed the other end
                return
            with self._changed:
                self._pieces.append(piece)
                self._changed.notify_all()

    @property
    def text(self) -> str:
        """All that was shown so far, without colours."""
        shown = b"".join(self._pieces).decode(errors="replace")
        return _CODES.sub("", shown).replace("\r\n", "\n")

    def until(self, found: Callable[[str], bool], what: str) -> None:
        """Wait until what is shown satisfies ``found``."""
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while not found(self.text):
                ended = self._reader is not None and not self._reader.is_alive()
                if ended or time.monotonic() > deadline:
                    raise AssertionError(f"{what!r} was never shown:\n{self.text}")
                self._changed.wait(0.1)

    def end(self) -> int:
        """Wait for the end; the exit status."""
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it did not end:\n{self.text}") from None
        if self._reader is not None:
            self._reader.join(PATIENCE_S)
        return status

    def type(self, line: str) -> None:
        """Type a line and the Enter key."""
        os.write(self.keyboard, f"{line}\n".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait until nothing runs there any more."""
        if self._reader is None or not self._reader.is_alive():
            return
        with suppress(OSError):  # it ended in this moment
            os.write(self.keyboard, b"\x03")
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive(), f"Ctrl-C did not end it:\n{self.text}"

    def kill(self) -> None:
        """End it, whatever it does, and let go of the terminal."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        if self._reader is not None:
            self._reader.join(PATIENCE_S)
            self._reader = None
            os.close(self.keyboard)
