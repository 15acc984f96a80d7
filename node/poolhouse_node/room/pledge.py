"""What a device lends, as the host counts it (dealing, section 2; liveness, section 9)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GIB", "count_gb", "pledge_after_load_death", "pledge_gb"]

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
