"""Devices that were killed while they loaded their layers, on the host (liveness, section 9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.room.pledge import pledge_after_load_death
from poolhouse_node.wire.messages.loading import ShareLimit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.device.events import Share
    from poolhouse_node.room.roster import Member
    from poolhouse_node.wire.messages.joining import Died

__all__ = ["LoadDeaths"]

type _Death = tuple[str, float | None]
"""What tells one death of a device from the next: ``at``, or else ``ago``."""


@dataclass(slots=True)
class LoadDeaths:
    """Lowers the share of devices that die of it; they are known by name.

    Only names that were dealt layers are kept, so that nobody can fill it with names.
    """

    layer_gb: float
    """One layer with its caches."""
    _layers: dict[str, int] = field(default_factory=dict)
    """How many layers each device of the last deal has, also of one that failed."""
    _seen: dict[str, list[_Death]] = field(default_factory=dict)
    _most_gb: dict[str, float] = field(default_factory=dict)

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
        death: _Death = ("ago", died.ago) if died.at is None else ("at", died.at)
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
