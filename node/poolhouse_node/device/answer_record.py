"""One answer while it runs, and what is left of it afterwards: text, ids, figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from poolhouse_node.device.events import AnswerMeasured
from poolhouse_node.generate.ports import LapFailed

if TYPE_CHECKING:
    from poolhouse_node.generate.tokenizer import TextStream
    from poolhouse_node.room.asks import Ask

__all__ = ["AnswerRecord", "Outcome", "Running", "outcome_of"]


class Outcome(StrEnum):
    """How an answer ended, as an operator wants to know it."""

    STOP = "stop"
    LENGTH = "length"
    STOPPED_BY_USER = "stopped_by_user"
    LINK_LOST = "link_lost"
    TIMEOUT = "timeout"
    ERROR = "error"


def outcome_of(reason: str, error: Exception | None = None) -> Outcome:
    """From the reason an answer gives, and what it failed with."""
    if isinstance(error, LapFailed):
        lost = {"timeout": Outcome.TIMEOUT, "left": Outcome.LINK_LOST, "re-deal": Outcome.LINK_LOST}
        return lost.get(error.kind, Outcome.ERROR)
    ends = {
        "stop": Outcome.STOP,
        "max": Outcome.LENGTH,
        "ctx": Outcome.LENGTH,
        "abort": Outcome.STOPPED_BY_USER,
    }
    return ends.get(reason, Outcome.ERROR)


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An answer and its figures. ``failure`` is a sentence when it broke off."""

    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    ttft_s: float | None
    """Seconds from the start of the answer to its first token."""
    tokens_per_s: float | None
    """Tokens after the first, over the time they took."""
    reason: str
    failure: str | None = None

    def figures(self) -> str:
        """Tokens, speed and time to the first token, on one line."""
        count = len(self.token_ids)
        words = [f"{count} token" if count == 1 else f"{count} tokens"]
        if self.tokens_per_s:
            words.append(f"{self.tokens_per_s:.1f} tok/s")
        if self.ttft_s is not None:
            words.append(f"first after {self.ttft_s:.2f} s")
        return " · ".join(words)


@dataclass(slots=True)
class Running:
    """The answer in progress: its tokens so far, its text, its times."""

    ask: Ask
    number: int
    """Of this answer in the room, from 1."""
    started_at: float
    stream: TextStream
    asked_at: float
    """When the question came; at most ``started_at``."""
    ids: list[int] = field(default_factory=list)
    """Shown already: an answer that goes on elsewhere goes on behind them."""
    text: str = ""
    first_at: float | None = None
    last_at: float = 0.0
    prompt_tokens: int = 0
    ids_before: int = 0
    """Of them, how many a host before this process had shown."""
    gap_s: float | None = None
    """Between the last two tokens of this process."""

    def take(self, token: int, now: float) -> str:
        """One more token, at loop time ``now``; the whole characters that it completes."""
        if self.first_at is None:
            self.first_at = now
        else:
            self.gap_s = now - self.last_at
        self.last_at = now
        self.ids.append(token)
        return self.add(self.stream.push(token))

    def add(self, text: str) -> str:
        """More text of the answer."""
        self.text += text
        return text

    def measured(self, outcome: Outcome, now: float) -> AnswerMeasured:
        """Its figures, at its end: of what this process did."""
        return AnswerMeasured(
            outcome,
            queued_s=self.started_at - self.asked_at,
            ttft_s=None if self.first_at is None else self.first_at - self.asked_at,
            took_s=now - self.asked_at,
            prompt_tokens=self.prompt_tokens,
            answer_tokens=len(self.ids) - self.ids_before,
        )

    def record(self, reason: str, failure: str | None = None) -> AnswerRecord:
        """What is left of it: why it ended, and a sentence when it broke off."""
        ttft_s = None if self.first_at is None else self.first_at - self.started_at
        after_first_s = self.last_at - (self.first_at or 0.0)
        after_first = len(self.ids) - self.ids_before - 1
        rate = after_first / after_first_s if after_first > 0 and after_first_s else None
        return AnswerRecord(
            self.text, tuple(self.ids), self.prompt_tokens, ttft_s, rate, reason, failure
        )
