"""The qwen35 architecture (engine, sections 3 to 5): a hybrid with dense feed-forward networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.engine.models.header import HeaderReader
from poolhouse_node.engine.models.hybrid import HybridConfig, HybridStack
from poolhouse_node.engine.models.layer_tensors import FFN_TENSORS

if TYPE_CHECKING:
    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.models.layer_tensors import LayerTensors
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["Qwen35", "Qwen35Config"]


@dataclass(frozen=True, slots=True)
class _DenseFfn:
    ffn_width: int

    @property
    def tensor_names(self) -> tuple[str, ...]:
        return FFN_TENSORS

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.ffn_width,)

    def load(self, tensors: LayerTensors, width: int) -> FeedForward:
        return tensors.feed_forward(width, self.ffn_width)


class Qwen35Config(HybridConfig):
    """Sizes and constants of a qwen35 file."""

    __slots__ = ()

    @classmethod
    def read(cls, file: GgufFile) -> HybridConfig:
        """Raises ``GgufError`` for a missing key, ``ShardError`` for sizes that cannot be."""
        return cls.read_with(file, _DenseFfn(HeaderReader(file).count("feed_forward_length")))


class Qwen35(HybridStack):
    """Layers ``[lo, hi)``."""

    @staticmethod
    def tensor_names(file: GgufFile, layers: tuple[int, int]) -> list[str]:
        """The tensors of these layers; ``ShardError`` when one has others."""
        return Qwen35Config.read(file).tensor_names(file, range(*layers))
