"""The program ``poolhouse`` as a person starts it, and the processes it leaves or does not."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE_S = 60.0


@dataclass
class Program:
    """A running ``poolhouse ARGUMENTS``. Lines of both streams are kept as they come."""

    process: subprocess.Popen
    keyboard: int | None = None
    """What is written here is typed at its terminal."""
    out: list[str] = field(default_factory=list)
    out_at: list[float] = field(default_factory=list)
    """When each piece of ``out`` came, on the monotonic clock."""
    err: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _readers: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def start(
        cls, *arguments: str, env: dict[str, str] | None = None, terminal: bool = False
    ) -> "Program":
        command = [sys.executable, "-m", "poolhouse_node", *arguments]
        return cls.of(command, env=env, terminal=terminal)

    @classmethod
    def of(
        cls, command: list[str], *, env: dict[str, str] | None = None, terminal: bool = False
    ) -> "Program":
        """Any other program."""
        keyboard, stdin = os.openpty() if terminal else (None, subprocess.DEVNULL)
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **(env or {})},
            start_new_session=True,
        )
        program = cls(process, keyboard)
        if terminal:
            os.close(stdin)
        for stream, lines in ((process.stdout, program.out), (process.stderr, program.err)):
            reader = threading.Thread(target=program._read, args=(stream, lines), daemon=True)
            reader.start()
            program._readers.append(reader)
        return program

    def _read(self, stream, lines: list[str]) -> None:
        for chunk in iter(lambda: stream.read1(65536), b""):
            with self._changed:
                lines.append(chunk.decode(errors="replace"))
                if lines is self.out:
                    self.out_at.append(time.monotonic())
                self._changed.notify_all()
        stream.close()

    @property
    def stdout(self) -> str:
        return "".join(self.out)

    @property
    def stderr(self) -> str:
        return "".join(self.err)

    def until(self, words: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until ``words`` stand on either stream."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while words not in self.stdout + self.stderr:
                left_s = deadline - time.monotonic()
                ended = self.process.poll() is not None and not any(
                    reader.is_alive() for reader in self._readers
                )
                if left_s <= 0 or ended:
                    raise AssertionError(f"{words!r} never came.\n{self.stdout}\n{self.stderr}")
                self._changed.wait(min(left_s, 0.1))

    def until_answering(self, characters: int = 1) -> None:
        """Wait until the answer is being streamed."""
        deadline = time.monotonic() + PATIENCE_S
        with self._changed:
            while len(self.stdout) < characters:
                assert time.monotonic() < deadline, self.stderr
                self._changed.wait(0.1)

    def longest_pause_s(self, since: float) -> float:
        """The longest time without a piece of the answer from ``since`` on."""
        times = [since, *(at for at in self.out_at if at > since)]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def freeze(self) -> None:
        """Stop the process: it goes on where it was at :meth:`thaw`."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def until_children(self) -> None:
        """Wait until it has started its first process."""
        deadline = time.monotonic() + PATIENCE_S
        while not any("poolhouse_node" in command for command in self.descendants().values()):
            assert time.monotonic() < deadline, self.stderr
            os.sched_yield()

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; the exit status."""
        status = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(timeout_s)
        return status

    def json(self) -> dict:
        """The last line of stdout."""
        return json.loads(self.stdout.strip().splitlines()[-1])

    def type(self, line: str) -> None:
        """Type a line at its terminal."""
        os.write(self.keyboard, f"{line}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def descendants(self) -> dict[int, str]:
        """Processes below this one, with their command lines."""
        return {pid: _command(pid) for pid in _below(self.process.pid)}

    def find(self, words: str) -> int:
        """The process id of the descendant whose command line holds ``words``."""
        return next(pid for pid, command in self.descendants().items() if words in command)

    def kill(self) -> None:
        """Whatever is left of it, for the end of a test."""
        below = list(_below(self.process.pid))
        if self.process.poll() is None:
            self.process.kill()
        for pid in below:
            if "poolhouse_node" in _command(pid):
                os.kill(pid, signal.SIGKILL)
        self.end()
        if self.keyboard is not None:
            os.close(self.keyboard)
            self.keyboard = None


def run(
    *arguments: str, timeout_s: float = PATIENCE_S, env: dict[str, str] | None = None
) -> Program:
    """Run to the end."""
    program = Program.start(*arguments, env=env)
    try:
        program.end(timeout_s)
    finally:
        program.kill()
    return program


def alive(pids: dict[int, str], within_s: float = 10.0) -> dict[int, str]:
    """Which of these processes still run the same command after at most ``within_s``."""
    deadline = time.monotonic() + within_s
    while True:
        left = {
            pid: command for pid, command in pids.items() if command and _command(pid) == command
        }
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def _below(pid: int) -> Iterator[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [task.joinpath("children").read_text().split() for task in tasks]
    except OSError:
        return
    for child in (int(child) for found in children for child in found):
        yield child
        yield from _below(child)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""
