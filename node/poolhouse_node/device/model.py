"""What a host knows about the model it runs, without its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poolhouse_node.generate.tokenizer import Tokenizer
    from poolhouse_node.room.deal import ModelNeeds

__all__ = ["RoomModel"]


@dataclass(frozen=True, slots=True)
class RoomModel:
    """The model of a room."""

    key: str
    """What ``ai-load`` names it by."""
    label: str
    needs: ModelNeeds
    context_size: int
    """Positions every device builds its state for."""
    tokenizer: Tokenizer
