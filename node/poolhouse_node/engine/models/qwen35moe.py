"""The qwen35moe architecture (engine, sections 3 to 5): a hybrid with a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.engine.expert_weights import ExpertSizes
from poolhouse_node.engine.models.header import HeaderReader
from poolhouse_node.engine.models.hybrid import HybridConfig, HybridStack

if TYPE_CHECKING:
    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.models.layer_tensors import LayerTensors
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["Qwen35Moe", "Qwen35MoeConfig"]

_EXPERT_TENSORS = (
    "ffn_gate_inp.weight",
    "ffn_gate_exps.weight",
    "ffn_up_exps.weight",
    "ffn_down_exps.weight",
)
_SHARED_TENSORS = (
    "ffn_gate_inp_shexp.weight",
    "ffn_gate_shexp.weight",
    "ffn_up_shexp.weight",
    "ffn_down_shexp.weight",
)


@dataclass(frozen=True, slots=True)
class _ExpertsFfn:
    sizes: ExpertSizes

    @classmethod
    def read(cls, file: GgufFile) -> _ExpertsFfn:
        header = HeaderReader(file)
        sizes = ExpertSizes(
            count=header.count("expert_count"),
            used=header.count("expert_used_count"),
            width=header.count("expert_feed_forward_length"),
            shared_width=header.count_or_none("expert_shared_feed_forward_length"),
            normalised=header.flag("expert_weights_norm", default=True),
        )
        header.fits(sizes.used <= sizes.count)
        return cls(sizes)

    @property
    def tensor_names(self) -> tuple[str, ...]:
        return (*_EXPERT_TENSORS, *(_SHARED_TENSORS if self.sizes.shared_width else ()))

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(filter(None, (self.sizes.width, self.sizes.shared_width)))

    def load(self, tensors: LayerTensors, width: int) -> FeedForward:
        return tensors.expert_feed_forward(self.sizes, width)


class Qwen35MoeConfig(HybridConfig):
    """Sizes and constants of a qwen35moe file."""

    __slots__ = ()

    @classmethod
    def read(cls, file: GgufFile) -> HybridConfig:
        """Raises ``GgufError`` for a missing key, ``ShardError`` for sizes that cannot be."""
        return cls.read_with(file, _ExpertsFfn.read(file))


class Qwen35Moe(HybridStack):
    """Layers ``[lo, hi)``."""

    @staticmethod
    def tensor_names(file: GgufFile, layers: tuple[int, int]) -> list[str]:
        """The tensors of these layers; ``ShardError`` when one has others."""
        return Qwen35MoeConfig.read(file).tensor_names(file, range(*layers))
