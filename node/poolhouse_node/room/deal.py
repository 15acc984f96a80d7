"""The deal: which device holds which layers, and what is missing when nobody can (dealing, 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from poolhouse_node.room.split import (
    layer_caps,
    phones_to_leave_out,
    split_by_memory,
    split_for_speed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Deal",
    "DealError",
    "Fit",
    "LeftOut",
    "ModelNeeds",
    "Seat",
    "SplitError",
    "deal_by_memory",
    "deal_exactly",
    "deal_for_speed",
    "does_it_fit",
    "ranges_of",
]

type LeftOut = Literal["unneeded", "small", "late"]


class DealError(Exception):
    """The layers cannot be dealt; the text is a sentence for a person."""


class SplitError(DealError):
    """The split fits no number of devices: the person has to say another one."""


@dataclass(frozen=True, slots=True)
class ModelNeeds:
    """Sizes the deal counts with (dealing, section 1)."""

    layers: int
    layer_bytes: int
    """One layer with its key/value rows for the room's whole context."""
    host_bytes: int
    """Embedding and head, held by the host besides its layers."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether pledges hold a model, and by how much they fall short (5.2)."""

    caps: list[int]
    missing_layers: int
    raise_bytes: list[float]
    """What each device alone would have to add; infinite when that would not help."""

    @property
    def fits(self) -> bool:
        return self.missing_layers == 0

    @property
    def short_bytes(self) -> float:
        """The smallest single raise that makes the model fit."""
        return 0 if self.fits else min(self.raise_bytes)


@dataclass(frozen=True, slots=True)
class Seat:
    """One device's part: layers ``[lo, hi)`` and the bytes it holds for them."""

    device: int
    lo: int
    hi: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Deal:
    """Seats in layer order, the host first; the other devices with the reason they hold none."""

    seats: list[Seat]
    left_out: dict[int, LeftOut] = field(default_factory=dict)


def does_it_fit(needs: ModelNeeds, pledges_bytes: Sequence[float | None]) -> Fit:
    """Compare pledges with what the model needs; index 0 is the host."""
    caps = layer_caps(pledges_bytes, needs.layer_bytes, needs.host_bytes)
    held = sum(caps)
    missing = max(0, needs.layers - held, 0 if caps[0] >= 1 else 1)
    if not missing:
        return Fit(caps, 0, [0.0] * len(caps))
    raises = [_raise_host(needs, pledges_bytes, caps)]
    for i in range(1, len(caps)):
        wanted = (caps[i] + needs.layers - held) * needs.layer_bytes - (pledges_bytes[i] or 0)
        raises.append(max(1, math.ceil(wanted)) if caps[0] >= 1 else math.inf)
    return Fit(caps, missing, raises)


def _raise_host(needs: ModelNeeds, pledges_bytes: Sequence[float | None], caps: list[int]) -> float:
    own_layers = max(1, needs.layers - sum(caps[1:]))
    wanted = needs.host_bytes + own_layers * needs.layer_bytes - (pledges_bytes[0] or 0)
    return max(1, math.ceil(wanted))


def deal_by_memory(
    needs: ModelNeeds,
    pledges_bytes: Sequence[float | None],
    phones: Sequence[bool] = (),
    *,
    deal_phones: bool = False,
) -> Deal:
    """Deal in proportion to pledges (5.3). Raises :class:`DealError` when they do not hold it."""
    caps = _caps_or_refuse(needs, pledges_bytes)
    left_out = _too_small(caps)
    if not deal_phones:
        left_out |= _unneeded_phones(needs, caps, phones, left_out)
    offers = [pledge or 0 for pledge in pledges_bytes]
    offers[0] -= needs.host_bytes
    most = [0 if i in left_out else cap for i, cap in enumerate(caps)]
    assigned = split_by_memory(needs.layers, offers, most)
    if assigned is None:  # does_it_fit said otherwise
        raise DealError("The pledges do not hold the model.")
    return _seat(needs, assigned, left_out)


def deal_for_speed(
    needs: ModelNeeds,
    pledges_bytes: Sequence[float | None],
    layer_ms: Sequence[float | None],
    phones: Sequence[bool] = (),
) -> Deal:
    """Deal to the quickest devices first (5.5). Raises :class:`DealError` as by memory."""
    caps = _caps_or_refuse(needs, pledges_bytes)
    assigned, _ = split_for_speed(needs.layers, caps, layer_ms, phones)
    return _seat(needs, assigned, _too_small(caps))


def deal_exactly(needs: ModelNeeds, split: Sequence[int], devices: int) -> Deal:
    """Deal as the person said, host first (``--split``). Pledges are not asked.

    Raises :class:`DealError` when the split is not one: a wrong sum, more entries than devices, or
    a device with no layer.
    """
    if sum(split) != needs.layers or any(count < 1 for count in split):
        shown = ",".join(str(count) for count in split)
        raise SplitError(
            f"The split {shown} is not one of {needs.layers} layers: "
            "every device needs at least one and together they must hold all."
        )
    if len(split) > devices:
        raise DealError(
            f"The split names {len(split)} devices, but {devices} can hold layers in this room."
        )
    assigned = [*split, *([0] * (devices - len(split)))]
    return _seat(needs, assigned, {})


def _caps_or_refuse(needs: ModelNeeds, pledges_bytes: Sequence[float | None]) -> list[int]:
    fit = does_it_fit(needs, pledges_bytes)
    if not fit.fits:
        raise DealError("The pledges do not hold the model.")
    return fit.caps


def _too_small(caps: Sequence[int]) -> dict[int, LeftOut]:
    return {i: "small" for i, cap in enumerate(caps) if cap < 1 and i > 0}


def _unneeded_phones(
    needs: ModelNeeds, caps: Sequence[int], phones: Sequence[bool], small: dict[int, LeftOut]
) -> dict[int, LeftOut]:
    usable = [0 if i in small else cap for i, cap in enumerate(caps)]
    return {
        i: "unneeded" for i in phones_to_leave_out(needs.layers, usable, phones) if i not in small
    }


def _seat(needs: ModelNeeds, assigned: Sequence[int], left_out: dict[int, LeftOut]) -> Deal:
    seats = [
        Seat(i, lo, hi, (hi - lo) * needs.layer_bytes + (needs.host_bytes if i == 0 else 0))
        for i, (lo, hi) in enumerate(ranges_of(assigned))
        if hi > lo
    ]
    unneeded: dict[int, LeftOut] = {
        i: "unneeded" for i, count in enumerate(assigned) if not count and i not in left_out
    }
    return Deal(seats, left_out | unneeded)


def ranges_of(assigned: Sequence[int]) -> list[tuple[int, int]]:
    """Half-open, contiguous layer ranges from layer counts."""
    ranges, lo = [], 0
    for count in assigned:
        ranges.append((lo, lo + count))
        lo += count
    return ranges
