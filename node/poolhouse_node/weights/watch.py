"""Who watches a download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.weights.errors import PullCancelled

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PullWatch"]


def _ignore(done_bytes: int, total_bytes: int | None) -> None:
    """Nobody looks at the progress."""


@dataclass(frozen=True, slots=True)
class PullWatch:
    """``progress`` gets bytes done and in all (``None``: unknown), ``cancelled`` is asked often."""

    progress: Callable[[int, int | None], None] = _ignore
    cancelled: Callable[[], bool] = lambda: False

    def check(self) -> None:
        """Raises :class:`PullCancelled` when the caller wants to stop."""
        if self.cancelled():
            raise PullCancelled("The download was stopped; what is here already stays.")
