"""A worker's note on disk that it loads layers, which outlives a process that is killed."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.cli.state import RoomState
    from poolhouse_node.wire.messages.joining import Died

__all__ = ["LoadNotebook"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadNotebook:
    """One device's note of one room. Satisfies ``device.load_notes.Notebook``.

    A disk that takes no note keeps nobody from loading: all that is lost is the word of a death.
    """

    state: RoomState
    device: str
    clock: Callable[[], float] = time.time

    def write(self) -> None:
        """Loading, now."""
        try:
            self.state.save_loading(self.device, self.clock())
        except OSError as error:
            log.warning("loading.not_noted: %s", error)

    def clear(self) -> None:
        """Not loading."""
        try:
            self.state.clear_loading(self.device)
        except OSError as error:
            log.warning("loading.not_cleared: %s", error)

    def death(self) -> Died | None:
        """Was the process before this one killed while it loaded?"""
        return self.state.load_death(self.device, self.clock())
