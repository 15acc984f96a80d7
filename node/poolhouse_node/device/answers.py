"""What a guest's screen knows of the answer that runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import AnswerEnded, AnswerStarted, Queued, TokenShown
from poolhouse_node.wire.messages.asking import (
    Answered,
    Busy,
    GenerationDone,
    GenerationStart,
    History,
    Token,
)
from poolhouse_node.wire.messages.asking import Queued as QueuedMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.device.events import Notify
    from poolhouse_node.wire.messages import Message

__all__ = ["AskFailed", "GuestScreen", "SeenAnswer"]

STILL_ASKED_S = 5.0
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
    _asked: str = ""
    _running_is_mine: bool = False
    _running_is_asked: bool = False
    """It is the answer that :meth:`expect` promised."""
    _number: int | None = None
    """Of the answer that runs or ran last, in the room."""
    _unsure: bool = False
    """The host was lost while our question was open: is it still?"""
    _ahead: int = 0
    """Characters of the answer that were shown before the host said them again."""
    _pieces: list[str] = field(default_factory=list)
    _length: int = 0

    def expect(self, text: str) -> asyncio.Future[SeenAnswer]:
        """A question of ours is sent; the future gives its answer or :class:`AskFailed`."""
        self._asked = text
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
            case History(items=items):
                self._answered_meanwhile(items)
            case QueuedMessage(pos=place):
                self._unsure = False
                self.notify(Queued(place))

    def fail(self, why: str) -> None:
        """Our question will not be answered."""
        if self._mine is not None and not self._mine.done():
            self._mine.set_exception(AskFailed(why))

    def host_lost(self) -> None:
        """Until it is back nobody knows what became of our question."""
        self._unsure = self.waits

    @property
    def waits(self) -> bool:
        """A question of ours is open."""
        return self._mine is not None and not self._mine.done()

    @property
    def misses_something(self) -> bool:
        """Our question may have been answered while the host was lost: its history tells."""
        return self._unsure

    def _answered_meanwhile(self, items: Sequence[Answered]) -> None:
        """The history of a host that was lost: is the answer to our question in it?"""
        if not self._unsure or not items:
            return
        last = items[-1]
        started = self._running_is_mine and last.mid == self._number
        if not started and (last.text != self._asked or self._running_is_mine):
            return
        self._start(GenerationStart(text=last.text, asker=self.my_id(), mid=last.mid))
        self._show(last.reply)
        self._done(GenerationDone(stats=last.stats))

    def room_online(self) -> None:
        """A host that still has our question says so about now."""
        if self._unsure:
            asyncio.get_running_loop().call_later(STILL_ASKED_S, self._is_it_still_asked)

    def _is_it_still_asked(self) -> None:
        if self._unsure:
            self._unsure = False
            self.fail("The link to the host broke while it answered; ask again.")

    def _start(self, message: GenerationStart) -> None:
        goes_on = self._number is not None and message.mid == self._number
        self._ahead = self._length + self._ahead if goes_on else 0
        self._pieces, self._length, self._number = [], 0, message.mid
        self._running_is_mine = message.asker == self.my_id()
        # It may be one that we asked before, gave up on, and that the host still had.
        is_the_one = message.text is None or message.text.split() == self._asked.split()
        self._running_is_asked = self._running_is_mine and is_the_one
        self._unsure &= not self._running_is_asked
        if not goes_on:  # else it is said again for those who missed some of it
            self.notify(AnswerStarted(message.name, message.text or "", self._running_is_mine))

    def _show(self, text: str) -> None:
        if self._length >= TEXT_CHARACTERS_MAX:
            return
        self._pieces.append(text)
        self._length += len(text)
        known = min(self._ahead, len(text))
        self._ahead -= known
        if text[known:]:
            self.notify(TokenShown(text[known:], self._running_is_mine))

    def _done(self, message: GenerationDone) -> None:
        stats, mine, asked = message.stats or "", self._running_is_mine, self._running_is_asked
        failure = (stats or "The answer broke off.") if message.failed else None
        self.notify(AnswerEnded(stats, mine, failure))
        self._running_is_mine, self._running_is_asked, self._number = False, False, None
        if not asked:
            return
        if failure is not None:
            self.fail(failure)
        elif self._mine is not None and not self._mine.done():
            self._mine.set_result(SeenAnswer("".join(self._pieces), stats))
