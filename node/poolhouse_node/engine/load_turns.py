"""One load at a time: who is next, and how far those get who wait."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from poolhouse_node.engine.tensors import LoadCancelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poolhouse_node.engine.tensors import LoadWatch

__all__ = ["LoadTurns"]

_LOOK_AGAIN_S = 0.1
_SHARE_OF_A_WAIT = 0.5
"""Of the way that a load still has, for each load before it."""


@dataclass(slots=True)
class _Running:
    """The load whose turn it is."""

    share: float = 0.0
    """Of its way that it has gone; written by its thread, read by those that wait."""


class LoadTurns:
    """Each load has its device to itself, so that it is sure of the memory that it was promised.

    A load that waits moves as the one before it does. Its host gives up on devices that show no
    progress, and hosts have other devices wait for the slowest (dealing, section 11).
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._running: _Running | None = None

    @contextlib.contextmanager
    def turn(self, watch: LoadWatch) -> Iterator[LoadWatch]:
        """Wait for a turn and have it while the context is open.

        Gives the watch of a load that may have shown progress while it waited. Raises
        :class:`LoadCancelled` when asked to stop meanwhile.
        """
        waited = self._wait(watch)
        running = self._running = _Running()
        try:
            yield _watched(watch, waited, running)
        finally:
            self._running = None
            self._turn.release()

    def _wait(self, watch: LoadWatch) -> float:
        """Until it is this load's turn; the share of its way that it has shown then."""
        if self._turn.acquire(timeout=_LOOK_AGAIN_S):
            return 0.0
        watch.waits()
        shown, before, ahead = 0.0, 0.0, None
        while not self._turn.acquire(timeout=_LOOK_AGAIN_S):
            if watch.cancelled():
                raise LoadCancelled
            running = self._running
            if running is None:  # between two turns
                continue
            if running is not ahead:  # and has no part in what was shown
                before, ahead = shown, running
            shown = before + (1 - before) * _SHARE_OF_A_WAIT * running.share
            watch.progress(shown)
        return shown


def _watched(watch: LoadWatch, waited: float, running: _Running) -> LoadWatch:
    def progress(share: float) -> None:
        running.share = share
        watch.progress(waited + (1 - waited) * share)

    return replace(watch, progress=progress)
