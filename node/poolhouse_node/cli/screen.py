"""Where a command says what happens: at a terminal, or as lines of JSON for a program."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.device import events as ev

if TYPE_CHECKING:
    from rich.text import Text

    from poolhouse_node.device.events import Event

__all__ = ["JsonLines", "Screen"]

_TALK = (ev.AnswerStarted, ev.TokenShown, ev.AnswerEnded, ev.PromptProgress, ev.Queued)
"""What is asked and answered is not shown where layers are held."""
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class Screen(Protocol):
    """Takes events of one room, and sentences."""

    def __call__(self, event: Event) -> None:
        """Show one event."""
        ...

    def say(self, line: str | Text) -> None:
        """Show a sentence."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class JsonLines:
    """A line of JSON on stdout for each event of one room: ``room``, ``event`` and its facts.

    ``event`` is the name of the event in small letters, such as ``room_online``. A sentence is an
    event ``said`` with its ``text``.
    """

    def __init__(self, room: str) -> None:
        self._room = room

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if not isinstance(event, _TALK):
            name = _WORD.sub("_", type(event).__name__).lower()
            self._write(name, asdict(event))

    def say(self, line: str | Text) -> None:
        """Show a sentence."""
        self._write("said", {"text": str(line)})

    def close(self) -> None:
        """Nothing is kept."""

    def _write(self, name: str, facts: dict[str, object]) -> None:
        line = {"room": self._room, "event": name, **facts}
        print(json.dumps(line, ensure_ascii=False), flush=True)
