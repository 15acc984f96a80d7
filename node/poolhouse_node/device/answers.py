"""What a guest's screen knows of the answer that runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import AnswerEnded, AnswerStarted, Queued, TokenShown
from poolhouse_node.wire.messages.asking import Busy, GenerationDone, GenerationStart, Token
from poolhouse_node.wire.messages.asking import Queued as QueuedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.events import Notify
    from poolhouse_node.wire.messages import Message

__all__ = ["AskFailed", "GuestScreen", "SeenAnswer"]

TEXT_CHARACTERS_MAX = 1_000_000
"""An answer is cut on this screen beyond this, whatever a host sends."""


class AskFailed(Exception):
    """The question was not answered; the text says why."""


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """An answer as it came over the room."""

    text: str
    stats: str


@dataclass(slots=True)
class GuestScreen:
    """Follows questions and answers of the room; one question of this device's own at a time."""

    my_id: Callable[[], str]
    notify: Notify
    _mine: asyncio.Future[SeenAnswer] | None = None
    _running_is_mine: bool = False
    _pieces: list[str] = field(default_factory=list)
    _length: int = 0

    def expect(self) -> asyncio.Future[SeenAnswer]:
        """A question of ours was sent; the future gives its answer or :class:`AskFailed`."""
        self._mine = asyncio.get_running_loop().create_future()
        return self._mine

    def take(self, message: Message) -> None:
        """A message of the host about questions and answers; others are ignored."""
        match message:
            case GenerationStart():
                self._start(message)
            case Token(text=text):
                self._show(text)
            case GenerationDone():
                self._done(message)
            case Busy(why=why):
                self.fail(why or "The room is busy.")
            case QueuedMessage(pos=place):
                self.notify(Queued(place))

    def fail(self, why: str) -> None:
        """Our question will not be answered."""
        if self._mine is not None and not self._mine.done():
            self._mine.set_exception(AskFailed(why))

    def _start(self, message: GenerationStart) -> None:
        self._pieces, self._length = [], 0
        self._running_is_mine = message.asker == self.my_id()
        self.notify(AnswerStarted(message.name, message.text or "", self._running_is_mine))

    def _show(self, text: str) -> None:
        if self._length < TEXT_CHARACTERS_MAX:
            self._pieces.append(text)
            self._length += len(text)
            self.notify(TokenShown(text, self._running_is_mine))

    def _done(self, message: GenerationDone) -> None:
        stats, mine = message.stats or "", self._running_is_mine
        failure = (stats or "The answer broke off.") if message.failed else None
        self.notify(AnswerEnded(stats, mine, failure))
        self._running_is_mine = False
        if not mine:
            return
        if failure is not None:
            self.fail(failure)
        elif self._mine is not None and not self._mine.done():
            self._mine.set_result(SeenAnswer("".join(self._pieces), stats))
