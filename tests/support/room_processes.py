"""A room of separate processes that a test can kill, freeze, cut off and start again."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tests.support.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["RoomProcesses"]

type Starter = Callable[..., Program]

SPLIT = "10,10,10"
GREEDY = ("--temperature", "0")


@dataclass
class RoomProcesses(AbstractContextManager):
    """A host and two workers, each with a state folder of its own, as on separate machines.

    ``start`` starts ``poolhouse ARGUMENTS`` where the device of that name lives.
    """

    folder: Path
    signal_url: str
    max_tokens: int
    start: Callable[[str], Starter] = lambda name: Program.start
    host_options: tuple[str, ...] = ()
    rtc: str = "libdatachannel"
    programs: list[Program] = field(default_factory=list)
    workers: dict[str, Program] = field(default_factory=dict)
    link: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.thaw()
            program.kill()

    def open(self) -> None:
        """Start the host and both workers, and wait until the model is online."""
        self.start_host("--wait", "2", "--split", SPLIT, *GREEDY)
        for name in ("worker-1", "worker-2"):
            self.start_worker(name)
        self.host.until("is online")

    def start_host(self, *options: str) -> Program:
        """The host, with its own state: ``--resume`` takes up what it had."""
        limits = ("--max-tokens", str(self.max_tokens), "--rtc", self.rtc)
        self.host = self._run(
            "host", "host", "--name", "host", *limits, *options, *self.host_options
        )
        self.host.until("poolhouse join '")
        self.link = re.search(r"poolhouse join '([^']+)'", self.host.stderr)[1]
        return self.host

    def start_worker(self, name: str) -> Program:
        """A worker of this name; one that was here before finds its pass."""
        worker = self._run(name, "join", "--name", name, "--rtc", self.rtc, "--pledge", "2")
        self.workers[name] = worker
        return worker

    def ask(self, question: str) -> Program:
        """A guest with a question; its answer is a line of JSON."""
        return self._run("guest", "ask", "--json", "--name", "guest", self.link, question)

    def status(self) -> dict:
        """What ``poolhouse room status`` says."""
        status = self._run("host", "room", "status", "--json")
        assert status.end() == 0, status.stderr
        return status.json()

    def until_shown(self, characters: int) -> None:
        """Wait until the host's screen shows so much of answers."""
        self.host.until_answering(characters)

    def _run(self, where: str, *arguments: str) -> Program:
        env = {
            "POOLHOUSE_STATE": str(self.folder / where),
            "POOLHOUSE_SIGNAL": self.signal_url,
            "POOLHOUSE_ROOM": self.link,
        }
        program = self.start(where)(*arguments, env=env)
        self.programs.append(program)
        return program


def pause(seconds: float) -> None:
    """Real time that has to pass: a process is frozen, a link is cut, a machine restarts."""
    time.sleep(seconds)
