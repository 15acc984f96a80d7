"""A device notes that it loads layers, so that a death meanwhile is known (liveness, section 9)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.room.pledge import count_gb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.device.tasks import Tasks
    from poolhouse_node.wire.messages.joining import Died
    from poolhouse_node.wire.messages.loading import ShareLimit

__all__ = ["LoadNotes", "NoNotes", "Notebook", "lower_share"]

NOTE_AGAIN_S = 60.0
"""A long load is noted again, because a death is told for ten minutes after its note."""
LEAST_SHARE_GB = 0.1
"""A device lowers what it lends no further than this."""


class Notebook(Protocol):
    """Where it is noted; what is there outlives the process."""

    def write(self) -> None:
        """This device loads layers now."""
        ...

    def clear(self) -> None:
        """It does not, or its death was told."""
        ...

    def death(self) -> Died | None:
        """What the note of a process that was killed says."""
        ...


class NoNotes:
    """For devices that keep nothing."""

    def write(self) -> None:
        """Nothing is kept."""

    def clear(self) -> None:
        """Nothing was kept."""

    def death(self) -> Died | None:
        """Nothing is known."""
        return None


@dataclass(slots=True)
class LoadNotes:
    """Keeps the note while layers load; tells of the former process until a host has heard it."""

    notebook: Notebook
    _died: Died | None = None
    _writing: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._died = self.notebook.death()

    @property
    def died(self) -> Died | None:
        """For the hello: this device was killed while it loaded, and no host knows."""
        return self._died

    def told(self) -> None:
        """A host let this device in, with the hello that said so."""
        if self._died is not None:
            self._died = None
            self.notebook.clear()

    def loading(self, tasks: Tasks, *, now: bool) -> None:
        """Loading begins, or has ended in whatever way."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if now:
            self.notebook.write()
            self._writing = tasks.spawn(self._write_again(), "notes of loading")
        else:
            self.notebook.clear()

    async def _write_again(self) -> None:
        while True:
            await asyncio.sleep(NOTE_AGAIN_S)
            self.notebook.write()


def lower_share(meta: Mapping[str, object], limit: ShareLimit) -> dict[str, object]:
    """What a device says of itself after ``ai-share``: it lends less, or holds no layers.

    A share only ever gets smaller by it, whatever a host says.
    """
    if limit.drop:
        return {**meta, "webgpu": False}
    if limit.gb is None:
        return dict(meta)
    lent_gb = min(limit.gb, count_gb(meta.get("contribGB")) or limit.gb)
    return {**meta, "contribGB": max(LEAST_SHARE_GB, lent_gb)}
