"""The queue of questions (generation, section 14): one runs, at most ten wait, two per device."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["Ask", "AskQueue", "AskRefused"]

WAITING_MAX = 10
WAITING_PER_DEVICE_MAX = 2
TEXT_CHARACTERS_MAX = 8000


class AskRefused(Exception):
    """The question is not taken; the text is what the asker is told."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A question. ``prompt_ids`` is a whole prompt given as token ids; the text is then shown.

    Two asks with the same words are two asks: they compare by identity.
    """

    asker: str
    name: str
    text: str
    prompt_ids: tuple[int, ...] | None = None


@dataclass(slots=True)
class AskQueue:
    """Which question runs, and which wait."""

    running: Ask | None = None
    waiting: deque[Ask] = field(default_factory=deque)

    def put(self, ask: Ask) -> int:
        """Take a question: 0 when it may run now, else its place in the queue from 1.

        Raises :class:`AskRefused` when the queue is full for everyone or for this device.
        """
        if self.running is None and not self.waiting:
            self.running = ask
            return 0
        if len(self.waiting) >= WAITING_MAX:
            raise AskRefused(f"{WAITING_MAX} questions are waiting already; ask again later.")
        if sum(other.asker == ask.asker for other in self.waiting) >= WAITING_PER_DEVICE_MAX:
            raise AskRefused(f"You have {WAITING_PER_DEVICE_MAX} questions waiting already.")
        self.waiting.append(ask)
        return len(self.waiting)

    def next(self) -> Ask | None:
        """The running question ended: the next one becomes the running one."""
        self.running = self.waiting.popleft() if self.waiting else None
        return self.running

    def withdraw(self, asker: str) -> int:
        """Drop the waiting questions of a device that left; how many there were."""
        kept = [ask for ask in self.waiting if ask.asker != asker]
        dropped = len(self.waiting) - len(kept)
        self.waiting = deque(kept)
        return dropped

    def places(self) -> list[tuple[str, int]]:
        """Asker and place, from 1, of every waiting question."""
        return [(ask.asker, place) for place, ask in enumerate(self.waiting, start=1)]
