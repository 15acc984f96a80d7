"""Devices that were killed while they loaded their layers, on the host (liveness, section 9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.room.pledge import pledge_after_load_death
from poolhouse_node.room.record import LIMITS_KEPT, RecordedDeath, RecordedLimit
from poolhouse_node.wire.messages.loading import ShareLimit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.device.events import Share
    from poolhouse_node.room.record import RoomMemory
    from poolhouse_node.room.roster import Member
    from poolhouse_node.wire.messages.joining import Died

__all__ = ["LoadDeaths"]


@dataclass(slots=True)
class LoadDeaths:
    """Lowers the share of devices that die of it; they are known by name.

    Only names that were dealt layers are kept, so that nobody can fill it with names.
    """

    layer_gb: float
    """One layer with its caches."""
    _layers: dict[str, int] = field(default_factory=dict)
    """How many layers each device of the last deal has, also of one that failed."""
    _seen: dict[str, list[RecordedDeath]] = field(default_factory=dict)
    _most_gb: dict[str, float] = field(default_factory=dict)

    @classmethod
    def taken_up(cls, layer_gb: float, memory: RoomMemory | None) -> LoadDeaths:
        """What a host before this one knew; it may have been ended before a death was told."""
        deaths = cls(layer_gb)
        if memory is not None:
            deaths._layers = {seat.name: seat.hi - seat.lo for seat in memory.seats[1:]}
            deaths._most_gb = {limit.name: limit.most_gb for limit in memory.limits}
            deaths._seen = {limit.name: list(limit.deaths) for limit in memory.limits}
        return deaths

    def limits(self) -> list[RecordedLimit]:
        """For the host after this one."""
        newest = list(self._most_gb.items())[-LIMITS_KEPT:]
        return [
            RecordedLimit(name=name, most_gb=most_gb, deaths=self._seen[name])
            for name, most_gb in newest
        ]

    def dealt(self, shares: Sequence[Share]) -> None:
        """Layers are dealt; ``shares`` begin with the host's own."""
        self._layers = {share.name: share.hi - share.lo for share in shares[1:]}

    def came(self, member: Member, died: Died | None) -> ShareLimit | None:
        """A device came in, under its final name: note what it may be dealt.

        Returns what to tell it when this is news of a death; the layers have to be dealt again.
        """
        member.most_gb = self._most_gb.get(member.name)
        if died is None or not died.loading or not self._is_news(member.name, died):
            return None
        return self._lower(member)

    def _is_news(self, name: str, died: Died) -> bool:
        death = RecordedDeath(at=died.at, ago=died.ago if died.at is None else None)
        seen = self._seen.get(name, [])
        if name not in self._layers or death in seen:
            return False
        self._seen[name] = [*seen[-1:], death]  # the second is the last that changes anything
        return True

    def _lower(self, member: Member) -> ShareLimit:
        layers = self._layers[member.name]
        most_gb = pledge_after_load_death(
            layers=layers,
            layer_gb=self.layer_gb,
            share_gb=member.pledge_gb,
            deaths=len(self._seen[member.name]),
        )
        member.most_gb = self._most_gb[member.name] = most_gb or 0.0
        what = f"{member.name} was killed while it loaded {_count(layers)}"
        if not most_gb:
            return ShareLimit(drop=1, why=f"{what}. It is dealt no more of them, and may ask.")
        return ShareLimit(
            gb=most_gb, why=f"{what}. It is dealt at most {most_gb:g} GB from now on."
        )


def _count(layers: int) -> str:
    return "1 layer" if layers == 1 else f"{layers} layers"
