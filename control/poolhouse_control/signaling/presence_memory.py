"""Presence in the memory of one process: the default."""

from __future__ import annotations

import hmac
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_control.signaling.presence import (
    Claimed,
    Dropped,
    Parcel,
    Queued,
    QueueFull,
    RouteResult,
    Taken,
    token_digest,
)
from poolhouse_control.signaling.tally import TakeoverKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from poolhouse_control.signaling.limits import Limits
    from poolhouse_control.signaling.presence import Local, Owned

__all__ = ["MemoryPresence"]


@dataclass(slots=True)
class _Owner:
    digest: bytes
    epoch: int


@dataclass(slots=True)
class _Queue:
    number: int
    opened_at: float
    parcels: dict[int, Parcel] = field(default_factory=dict)
    size_bytes: int = 0


class MemoryPresence:
    """Owners and queues in dicts. No call ever waits, so each is one step by itself."""

    is_open = True
    is_stale = False

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._owners: dict[str, _Owner] = {}
        self._queues: dict[str, _Queue] = {}
        self._last_number = 0
        self._queued = 0
        self._queued_bytes = 0

    @property
    def queued(self) -> int:
        """Parcels that wait."""
        return self._queued

    async def claim(self, peer_id: str, token: str) -> Claimed | Taken:
        """Register an id. The same token takes it over; another token gets ``Taken``."""
        digest = token_digest(token)
        owner = self._owners.get(peer_id)
        if owner is not None and not hmac.compare_digest(owner.digest, digest):
            return Taken()
        epoch = self._next_number()
        self._owners[peer_id] = _Owner(digest, epoch)
        took_over = TakeoverKind.SAME_TOKEN if owner is not None else None
        waiting = self._close_queue(peer_id)
        return Claimed(epoch=epoch, took_over=took_over, waiting=waiting)

    async def release(self, peer_id: str, epoch: int, *, hand_over: bool = False) -> bool:
        """Free an id, if ``epoch`` is still that of its owner. There is nobody to hand it to."""
        if not self._owns(peer_id, epoch):
            return False
        del self._owners[peer_id]
        return True

    async def route(
        self, parcel: Parcel, now: float, *, may_wait: bool, hop: int = 0
    ) -> RouteResult:
        """Let a parcel wait for an absent peer, within the limits."""
        if not may_wait:
            return Dropped()
        queue = self._queues.get(parcel.dst)
        if not self._has_room(queue, parcel.size_bytes):
            return QueueFull()
        if queue is None:
            queue = self._queues[parcel.dst] = _Queue(self._next_number(), opened_at=now)
        ticket = self._next_number()
        queue.parcels[ticket] = parcel
        self._count(queue, 1, parcel.size_bytes)
        return Queued(ticket=ticket, queue=queue.number, waited_s=now - queue.opened_at)

    def post(self, parcel: Parcel, answered: Callable[[RouteResult | None], None]) -> bool:
        """There is no other process to post to."""
        return False

    async def touch(self, owned: Iterable[Owned]) -> list[Owned]:
        """Return the ids whose epoch is not the owner's."""
        return [pair for pair in owned if not self._owns(*pair)]

    async def expire(self, peer_id: str, tickets: Iterable[int]) -> list[int]:
        """Take waiting parcels back; return the tickets of those that still waited."""
        queue = self._queues.get(peer_id)
        if queue is None:
            return []
        still = [ticket for ticket in tickets if ticket in queue.parcels]
        for ticket in still:
            self._count(queue, -1, -queue.parcels.pop(ticket).size_bytes)
        if not queue.parcels:
            del self._queues[peer_id]
        return still

    async def holds(self, peer_id: str, token: str) -> bool:
        """Tell whether the id is registered now, with this token."""
        owner = self._owners.get(peer_id)
        return owner is not None and hmac.compare_digest(owner.digest, token_digest(token))

    async def confirm(self) -> None:
        """Nobody else can own what is kept here."""

    @asynccontextmanager
    async def running(self, local: Local) -> AsyncIterator[None]:
        """There are no others to hear from."""
        yield

    async def opened(self) -> None:
        """From the start."""

    async def leave(self) -> None:
        """There are no others to tell."""

    def _owns(self, peer_id: str, epoch: int) -> bool:
        owner = self._owners.get(peer_id)
        return owner is not None and owner.epoch == epoch

    def _close_queue(self, peer_id: str) -> tuple[Parcel, ...]:
        queue = self._queues.pop(peer_id, None)
        if queue is None:
            return ()
        self._count(queue, -len(queue.parcels), -queue.size_bytes)
        return tuple(queue.parcels.values())

    def _has_room(self, queue: _Queue | None, size_bytes: int) -> bool:
        limits = self._limits
        messages, waiting_bytes = (len(queue.parcels), queue.size_bytes) if queue else (0, 0)
        return (
            messages < limits.max_queued_per_peer
            and waiting_bytes + size_bytes <= limits.max_queued_bytes_per_peer
            and self._queued < limits.max_queued
            and self._queued_bytes + size_bytes <= limits.max_queued_bytes
        )

    def _count(self, queue: _Queue, messages: int, size_bytes: int) -> None:
        queue.size_bytes += size_bytes
        self._queued += messages
        self._queued_bytes += size_bytes

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number
