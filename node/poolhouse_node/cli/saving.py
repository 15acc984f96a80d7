"""Saving what a room can do without: a full disk is told about, and stops nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SavedIfPossible"]


@dataclass(slots=True)
class SavedIfPossible[What]:
    """Calls ``save``; what the disk does not take stays in memory, which ``lost`` says once."""

    save: Callable[[What], None]
    lost: str
    """What this means for the person, without a full stop."""
    say: Callable[[str], None]
    _said: bool = False

    def __call__(self, what: What) -> None:
        try:
            self.save(what)
        except OSError as error:
            if not self._said:
                self._said = True
                self.say(f"{self.lost} ({error}).")
