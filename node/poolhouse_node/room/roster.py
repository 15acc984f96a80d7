"""Who is in the room: names, facts of devices, the roster (joining, sections 7 and 9)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.room.names import NAME_CHARACTERS
from poolhouse_node.room.pledge import count_gb, pledge_gb
from poolhouse_node.wire.messages import joining

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "NAME_PROBE_S",
    "Member",
    "Roster",
    "clean_meta",
    "clean_name",
    "device_label",
    "namesake_to_probe",
    "renamed",
    "silent_namesakes",
    "unique_name",
]

NAMESAKE_QUIET_S = 1.0
NAME_PROBE_S = 1.5
"""A namesake that was pinged has this long to answer (section 9)."""
_UNWANTED = re.compile(r"[\x00-\x1f\x7f<>\"'`&]")
_KINDS = {
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Mac": "Mac",
    "Android": "Android phone",
    "Android tablet": "Android tablet",
}


def clean_name(name: object, peer_id: str) -> str:
    """A name fit to show; decision 5 says what stands in for a missing one."""
    if name is None:
        return peer_id
    cleaned = _UNWANTED.sub("", str(name)).strip()[:NAME_CHARACTERS]
    return cleaned or peer_id[:8]


def unique_name(name: str, taken: Iterable[str]) -> str:
    """``name``, or its first 36 characters and the lowest number from 2 that is free."""
    others = set(taken)
    if name not in others:
        return name
    number = 2
    while (numbered := f"{name[:36]} {number}") in others:
        number += 1
    return numbered


def clean_meta(meta: object, *, on_host: bool) -> dict[str, object]:
    """What is kept of a received ``meta`` (joining, section 2)."""
    kept = dict(meta) if isinstance(meta, dict) else {}
    if not on_host:
        return {key: value for key, value in kept.items() if key not in {"api", "ctx"}}
    if kept.get("api"):
        client = _UNWANTED.sub("", str(kept.get("client") or "")).strip()[:NAME_CHARACTERS]
        return {"api": 1, "webgpu": False, "ua": "API", "client": client}
    return kept


def device_label(meta: Mapping[str, object]) -> str:
    """A device in a few words: its kind and what it lends."""
    if meta.get("api"):
        return "API client"
    kind = _KINDS.get(str(meta.get("ua")), "computer")
    lent = count_gb(meta.get("contribGB"))
    if not meta.get("webgpu") or not lent:
        return f"{kind}, chat only"
    return f"{kind}, {_one_decimal(lent)} GB"


def _one_decimal(value: float) -> str:
    rounded = int(value * 10 + 0.5) / 10
    return f"{rounded:g}"


@dataclass(slots=True)
class Member:
    """A device in the room."""

    peer_id: str
    name: str
    meta: dict[str, object]
    proves_links: bool = False
    most_gb: float | None = None
    """The most the host deals it, after it was killed while it loaded; 0 is nothing."""

    @property
    def holds_layers(self) -> bool:
        """It may be dealt layers: it computes, is no API client, and did not die of them."""
        computes = bool(self.meta.get("webgpu")) and not self.meta.get("api")
        return computes and self.most_gb != 0

    @property
    def pledge_gb(self) -> float:
        """What it lends, as the host counts it."""
        return pledge_gb(self.meta, self.most_gb)


@dataclass(slots=True)
class Roster:
    """The members in the order they joined, the host first."""

    members: dict[str, Member] = field(default_factory=dict)

    def add(self, member: Member) -> Member:
        """Take a device in under a name no other member has."""
        taken = [other.name for key, other in self.members.items() if key != member.peer_id]
        member.name = unique_name(member.name, taken)
        self.members[member.peer_id] = member
        return member

    def remove(self, peer_id: str) -> Member | None:
        """Forget a device that left."""
        return self.members.pop(peer_id, None)

    def order_for_deal(self, seated: Sequence[str]) -> list[Member]:
        """Devices that may hold layers, the host first, then ``seated`` names in their order.

        The others follow by name. A re-deal moves as little as it can (decision 13).
        """
        host, *others = self.members.values()
        places = {name: place for place, name in enumerate(seated)}
        able = [member for member in others if member.holds_layers]
        able.sort(key=lambda member: (places.get(member.name, len(places)), member.name))
        return [host, *able]

    def name_of(self, peer_id: str) -> str:
        """The name to show for an id, also for one that is not in the room."""
        member = self.members.get(peer_id)
        return member.name if member else peer_id[:8]

    def proves(self, peer_id: str) -> bool | None:
        """Does a device prove its links? ``None`` when it is not listed."""
        member = self.members.get(peer_id)
        return None if member is None else member.proves_links

    def to_message(self) -> joining.Roster:
        """What everyone is sent on every change."""
        return joining.Roster(
            members=[
                joining.Member(
                    id=member.peer_id,
                    name=member.name,
                    meta=member.meta,
                    a=1 if member.proves_links else False,
                )
                for member in self.members.values()
            ]
        )


def namesake_to_probe(
    members: Iterable[Member],
    name: str,
    peer_id: str,
    heard_at: Mapping[str, float],
    now: float,
    *,
    is_back: bool = False,
) -> str | None:
    """Who else holds this name and may be dead; ``None`` when the newcomer just gets a number.

    A holder counts when its link was quiet for a second, and always when the newcomer says that it
    is coming back.
    """
    for member in _namesakes(members, name, peer_id):
        quiet_s = round(now - heard_at.get(member.peer_id, -math.inf), 6)
        if is_back or quiet_s >= NAMESAKE_QUIET_S:
            return member.peer_id
    return None


def silent_namesakes(
    members: Iterable[Member],
    name: str,
    peer_id: str,
    heard_at: Mapping[str, float],
    pinged_at: float,
) -> list[str]:
    """Holders of this name from whom nothing came since they were pinged: they are gone."""
    return [
        member.peer_id
        for member in _namesakes(members, name, peer_id)
        if heard_at.get(member.peer_id, -math.inf) < pinged_at
    ]


def renamed(
    members: Iterable[joining.Member], my_id: str, my_name: str, *, from_host: bool
) -> str | None:
    """The name that the host gave this device, when it is another one than its own."""
    given = next((entry.name for entry in members if entry.id == my_id), "")
    if not from_host or not given:
        return None
    name = clean_name(given, my_id)
    return name if name != my_name else None


def _namesakes(members: Iterable[Member], name: str, peer_id: str) -> Iterable[Member]:
    return (each for each in members if each.name == name and each.peer_id != peer_id)
