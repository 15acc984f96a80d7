"""A room as its host sees it now, in plain values: for ``poolhouse room status``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from poolhouse_node.room.roster import device_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.doorman import Waiting
    from poolhouse_node.device.events import Share
    from poolhouse_node.device.keeper import ChainKeeper
    from poolhouse_node.device.questions import Questions
    from poolhouse_node.room.roster import Member

__all__ = ["room_state", "room_status"]


def room_state(keeper: ChainKeeper, questions: Questions) -> str:
    """What the room does now, in a few words, or the sentence that says why it cannot answer."""
    if keeper.is_dealing:
        return "loading the model"
    if keeper.degraded is not None:
        return keeper.degraded
    if questions.answering is None:
        return "waiting for devices"
    if not keeper.is_whole:
        return keeper.awaited() or "waiting"
    return "answering" if questions.is_busy else "online"


def room_status(
    *,
    code: str,
    state: str,
    members: Iterable[Member],
    peers: Mapping[str, Peer],
    shares: Iterable[Share],
    waiting: Iterable[Waiting],
    waits_for: tuple[str, float, float | None] | None = None,
) -> dict[str, object]:
    """Who is here, link by link, who waits, and what the room does or waits for."""
    layers = {share.name: [share.lo, share.hi] for share in shares}
    return {
        "code": code,
        "state": state,
        "waits_for": _awaited(waits_for),
        "devices": [
            _device(member, peers.get(member.peer_id), layers.get(member.name))
            for member in members
        ],
        "waiting": [
            {"name": each.name, "label": each.label, "digits": each.digits} for each in waiting
        ],
    }


def _awaited(waits_for: tuple[str, float, float | None] | None) -> dict[str, object] | None:
    """What a chain that is not whole waits for; ``deal_in_s`` is null when it waits for ever."""
    if waits_for is None:
        return None
    what, since_s, deal_in_s = waits_for
    rest = None if deal_in_s is None else round(deal_in_s, 1)
    return {"what": what, "since_s": round(since_s, 1), "deal_in_s": rest}


def _device(member: Member, peer: Peer | None, layers: list[int] | None) -> dict[str, object]:
    """``peer`` is ``None`` for the host itself; times in ms and s."""
    rtt_s = peer.rtt_s if peer else None
    now = asyncio.get_running_loop().time()
    return {
        "name": member.name,
        "label": device_label(member.meta),
        "layers": layers,
        "rtt_ms": None if rtt_s is None else round(rtt_s * 1000, 2),
        "transport": peer.link.transport if peer else "",
        "heard_s": round(now - peer.link.heard_at, 2) if peer else None,
    }
