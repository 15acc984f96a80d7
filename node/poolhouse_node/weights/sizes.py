"""How many bytes a model's parts take in a deal (dealing, section 1, "Sizes used by the deal")."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DealSizes"]


@dataclass(frozen=True, slots=True)
class DealSizes:
    """Bytes as a deal counts them. Positions are of the context."""

    layer: int
    """Weights of one layer, as in the file."""
    kv_position: int
    """Keys and values of one position of one layer, in the room's usual format."""
    kv_position_q8: int | None
    """The same packed to 8 bits, where the model's engine can."""
    embedding: int
    output: int
    """Of a head of its own; 0 when it is the embedding."""
    draft_block: int

    def layer_bytes(self, context_size: int) -> int:
        """One layer with its state for a context."""
        return self.layer + context_size * self.kv_position

    @property
    def host_bytes(self) -> int:
        """What the host holds besides its layers: a tied table counts twice.

        A draft block brings one more copy of the table.
        """
        head = self.output or self.embedding
        drafts = self.draft_block + self.embedding if self.draft_block else 0
        return self.embedding + head + drafts
