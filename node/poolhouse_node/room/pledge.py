"""What a device lends, as the host counts it (dealing, section 2; liveness, section 9)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "COMPUTER",
    "GIB",
    "PledgeRule",
    "count_gb",
    "pledge_after_load_death",
    "pledge_gb",
    "pledge_rule",
]

GIB = 2**30
"""Pledges are said in GB, which means this many bytes."""

UNSAID_GB = 0.5
KIND_CAPS_GB = {"iPhone": 1.0, "iPad": 1.0, "Android": 1.0, "Android tablet": 1.0}
"""Phones and tablets: the host cannot know their memory and promises no more for them."""


def count_gb(value: object) -> float:
    """A positive, finite number as it is; anything else a peer may send is 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if math.isfinite(value) and value > 0 else 0.0


@dataclass(frozen=True, slots=True)
class PledgeRule:
    """What a kind of device may lend, in GB. ``default_gb`` of ``None``: by its memory."""

    min_gb: float
    default_gb: float | None
    max_gb: float
    step_gb: float
    is_capped: bool
    """The host may promise no more for it, whatever it says."""


COMPUTER = PledgeRule(1.0, None, 64.0, 1.0, is_capped=False)


def pledge_rule(kind: str, memory_gb: float | None = None) -> PledgeRule:
    """The rule for a device of ``kind`` (``meta.ua``) that reports so much memory, if it does."""
    if kind not in KIND_CAPS_GB:
        return COMPUTER
    most_gb = KIND_CAPS_GB[kind]
    if kind.startswith("Android") and memory_gb is not None:
        most_gb = 0.5 if memory_gb <= 2 else 1.0 if memory_gb < 8 else 2.0
    return PledgeRule(0.5, 0.5, most_gb, 0.5, is_capped=True)


def pledge_gb(meta: Mapping[str, object], lowered_gb: float | None = None) -> float:
    """Memory a device lends in GB: what it said, held to the caps of its kind.

    ``lowered_gb`` is a share the host lowered after the device was killed while loading.
    """
    said = count_gb(meta.get("contribGB")) or count_gb(meta.get("maxBufGB")) / 2 or UNSAID_GB
    caps = [KIND_CAPS_GB.get(str(meta.get("ua"))), count_gb(meta.get("pledgeMax")), lowered_gb]
    return min([said, *(cap for cap in caps if cap)])


def pledge_after_load_death(
    *, layers: int, layer_gb: float, share_gb: float, deaths: int
) -> float | None:
    """New share in GB of a device that was killed while it loaded; ``None``: deal without it."""
    if deaths >= 2 or layers <= 1:
        return None
    half = max(layer_gb, min(share_gb / 2, layers // 2 * layer_gb))
    return None if half >= share_gb else round(half, 2)
