"""How many layers each device gets (dealing, section 5). Index 0 is always the host."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["layer_caps", "phones_to_leave_out", "split_by_memory", "split_for_speed"]

PHONE_COST = 20
"""A phone that was never measured counts as this many times slower than a computer."""
SMALLEST_WEIGHT = 1e-9


def layer_caps(
    pledges_bytes: Sequence[float | None], layer_bytes: float, host_bytes: float
) -> list[int]:
    """Whole layers each pledge holds; the host's also carries embedding and head (5.1)."""
    rooms = [_positive(pledge) for pledge in pledges_bytes]
    if rooms:
        rooms[0] -= host_bytes
    return [math.floor(room / layer_bytes + 1e-9) if room > 0 else 0 for room in rooms]


def phones_to_leave_out(layers: int, caps: Sequence[float], phones: Sequence[bool]) -> list[int]:
    """Phones that are not needed because the computers hold every layer (5.4)."""
    without = [i for i, phone in enumerate(phones) if phone and i > 0]
    held = sum(math.floor(cap) for i, cap in enumerate(caps) if i not in without)
    return without if held >= layers else []


def split_by_memory(
    layers: int, rooms: Sequence[float | None], maximums: Sequence[float | None] | None = None
) -> list[int] | None:
    """Layers per device in proportion to the bytes each offers (5.3).

    ``maximums`` are the most layers each device can hold; a room always has them. ``None``: the
    maximums do not hold the model, nothing is dealt.
    """
    offers = [_positive(room) for room in rooms]
    if maximums is None:
        return _split_freely(layers, offers)
    most = [math.floor(_positive(maximum)) for maximum in maximums]
    if layers == 0:
        return [0] * len(offers)
    if most[0] < 1 or sum(most) < layers:
        return None
    return _split_within(layers, offers, most)


def _split_freely(layers: int, offers: list[float]) -> list[int]:
    weights = offers if any(offers) else [1.0] * len(offers)
    shares = [layers * weight / sum(weights) for weight in weights]
    assigned = [math.floor(share) for share in shares]
    for i in _by_fraction(shares)[: layers - sum(assigned)]:
        assigned[i] += 1
    _everyone_holds_one(assigned, [layers] * len(offers))
    return assigned


def _split_within(layers: int, offers: list[float], most: list[int]) -> list[int]:
    weights = _weights(offers, most)
    assigned = [0] * len(offers)
    while (left := layers - sum(assigned)) > 0:
        below = [i for i in range(len(offers)) if assigned[i] < most[i]]
        total = sum(weights[i] for i in below)
        shares = {i: left * weights[i] / total for i in below}
        for i, share in shares.items():
            assigned[i] += min(math.floor(share), most[i] - assigned[i])
        left = layers - sum(assigned)
        still = [i for i in below if assigned[i] < most[i]]
        for i in sorted(still, key=lambda i: (-(shares[i] % 1), i))[:left]:
            assigned[i] += 1
    _everyone_holds_one(assigned, most)
    return assigned


def _weights(offers: list[float], most: list[int]) -> list[float]:
    largest = max(offers)
    if largest == 0:
        return [1.0 if maximum else 0.0 for maximum in most]
    return [
        max(offer / largest, SMALLEST_WEIGHT) if maximum else 0.0
        for offer, maximum in zip(offers, most, strict=True)
    ]


def _everyone_holds_one(assigned: list[int], most: list[int]) -> None:
    """A device with room but no layer takes one from the device with the most.

    Only the host may take the last layer of another device.
    """
    for i in range(len(assigned)):
        if assigned[i] or most[i] < 1:
            continue
        richest = max(range(len(assigned)), key=lambda j: (assigned[j], -j))
        keeps_one = assigned[richest] > 1
        takes_last = i == 0 and assigned[richest] > 0
        if keeps_one or takes_last:
            assigned[richest] -= 1
            assigned[i] += 1


def split_for_speed(
    layers: int,
    caps: Sequence[float],
    layer_ms: Sequence[float | None],
    phones: Sequence[bool],
) -> tuple[list[int], int]:
    """Layers per device, quickest devices first, and how many layers did not fit (5.5)."""
    most = [math.floor(_positive(cap)) for cap in caps]
    costs = _costs(len(most), layer_ms, phones)
    order = sorted(range(len(most)), key=lambda i: (costs[i], i != 0, -most[i], i))
    assigned = [0] * len(most)
    assigned[0] = 1 if most[0] >= 1 and layers else 0
    left = layers - assigned[0]
    for i in order:
        taken = min(left, most[i] - assigned[i])
        assigned[i] += taken
        left -= taken
    short = left + (1 if most[0] < 1 and layers else 0)
    return ([0] * len(most), short) if short else (assigned, 0)


def _costs(count: int, layer_ms: Sequence[float | None], phones: Sequence[bool]) -> list[float]:
    measured = [_positive(layer_ms[i]) if i < len(layer_ms) else 0.0 for i in range(count)]
    unmeasured = 1.5 * max(measured, default=0.0) or 1.0
    is_phone = [i < len(phones) and phones[i] for i in range(count)]
    return [measured[i] or unmeasured * (PHONE_COST if is_phone[i] else 1) for i in range(count)]


def _positive(value: float | None) -> float:
    """Malformed and negative inputs count as zero."""
    if value is None or not isinstance(value, int | float) or math.isnan(value):
        return 0.0
    return max(float(value), 0.0)


def _by_fraction(shares: Sequence[float]) -> list[int]:
    return sorted(range(len(shares)), key=lambda i: (-(shares[i] % 1), i))
