"""Who holds which layers, as a host tells its room (dealing, section 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.wire.messages.loading import Load

__all__ = ["ModelPart", "comes_before", "read_layers"]

DIGITS_MAX = 6
DEFAULT_CONTEXT, DEFAULT_KV_FORMAT = 2048, "f16"
"""For a host that does not say (dealing, section 1)."""


@dataclass(frozen=True, slots=True)
class ModelPart:
    """What must be equal for a device to keep its layers when it comes back (decision 10)."""

    model: str
    layers: tuple[int, int]
    context_size: int
    kv_format: str
    offload: object = None

    @classmethod
    def of(cls, load: Load) -> ModelPart:
        """The part that ``ai-load`` asks for; what it leaves out has defaults."""
        return cls(
            load.model,
            load.range,
            load.ctx or DEFAULT_CONTEXT,
            load.kv or DEFAULT_KV_FORMAT,
            load.offload,
        )


def read_layers(text: str) -> tuple[int, int] | None:
    """``"0–19"``, an en dash and both ends inclusive, as ``(0, 20)``; ``None`` for other text."""
    first, dash, last = text.partition("–")
    if not (dash and _is_number(first) and _is_number(last)):
        return None
    return int(first), int(last) + 1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX


def comes_before(sender: str, lo: int, held: Mapping[str, tuple[int, int]]) -> bool:
    """May ``sender`` send frames to a device whose layers begin at ``lo``?

    Only the device whose layers end there may. Until the host has said who that is, anyone may:
    hosts are free to deal first and tell later.
    """
    before = {name for name, (_, end) in held.items() if end == lo}
    return not before or sender in before
