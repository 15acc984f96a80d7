"""The qwen3 architecture (engine, section 2): llama with a norm per query and key head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from poolhouse_node.engine.kernel_fit import KernelSizes
from poolhouse_node.engine.layers.normed_attention import AttentionSizes
from poolhouse_node.engine.layers.rope import RotaryTable
from poolhouse_node.engine.models.blocks import Block, BlockStack
from poolhouse_node.engine.models.header import HeaderReader, check_layer_tensors
from poolhouse_node.engine.models.layer_tensors import (
    ATTENTION_TENSORS,
    FFN_TENSORS,
    LayerTensors,
)
from poolhouse_node.engine.state import AttentionShape, StateShape

if TYPE_CHECKING:
    import torch

    from poolhouse_node.engine.tensors import TensorLoader
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["Qwen3", "Qwen3Config"]

_LAYER_TENSORS = ("attn_norm.weight", *ATTENTION_TENSORS, "ffn_norm.weight", *FFN_TENSORS)


@dataclass(frozen=True, slots=True)
class Qwen3Config:
    """Sizes and constants, all read from the file."""

    layers: int
    width: int
    attention: AttentionSizes
    rotated: int
    rope_base: float
    ffn_width: int
    epsilon: float

    @classmethod
    def read(cls, file: GgufFile) -> Qwen3Config:
        """Raises ``GgufError`` for a missing key, :class:`ShardError` for sizes that cannot be."""
        header = HeaderReader(file)
        attention = read_attention(header, gated=False)
        return cls(
            layers=header.count("block_count"),
            width=header.count("embedding_length"),
            attention=attention,
            rotated=header.rotated(attention.head_size),
            rope_base=header.number("rope.freq_base", 10_000.0),
            ffn_width=header.count("feed_forward_length"),
            epsilon=header.number("attention.layer_norm_rms_epsilon"),
        )

    @property
    def kernel_sizes(self) -> KernelSizes:
        sizes = self.attention
        return KernelSizes(
            self.width, (sizes.head_size,), sizes.group, (sizes.mixed_width, self.ffn_width)
        )

    def state_shape(self, layers: tuple[int, int], context_size: int) -> StateShape:
        """The state a room needs for layers ``[lo, hi)``."""
        sizes = self.attention
        attention = AttentionShape(layers[1] - layers[0], sizes.kv_heads, sizes.head_size)
        return StateShape(context_size, attention=attention)


def read_attention(header: HeaderReader, *, gated: bool) -> AttentionSizes:
    """Sizes of the attention of qwen models."""
    heads = header.count("attention.head_count")
    head_size = header.count("attention.key_length", header.count("embedding_length") // heads)
    sizes = AttentionSizes(
        heads=heads,
        kv_heads=header.count("attention.head_count_kv", heads),
        head_size=head_size,
        gated=gated,
    )
    header.fits(sizes.heads % sizes.kv_heads == 0)
    header.fits(header.count("attention.value_length", head_size) == head_size)
    return sizes


class Qwen3(BlockStack):
    """Layers ``[lo, hi)``."""

    def __init__(
        self,
        config: Qwen3Config,
        layers: tuple[int, int],
        loader: TensorLoader,
        *,
        context_size: int,
        device: torch.device,
    ) -> None:
        rope = RotaryTable(config.rotated, config.rope_base, context_size, device)
        super().__init__(
            [
                _load_block(config, LayerTensors(loader, layer), layer - layers[0], rope)
                for layer in range(*layers)
            ],
            partial(config.state_shape, layers),
            rope.held_bytes,
        )

    @staticmethod
    def tensor_names(file: GgufFile, layers: tuple[int, int]) -> list[str]:
        """The tensors of these layers; :class:`ShardError` when one has others."""
        names = [f"blk.{layer}.{name}" for layer in range(*layers) for name in _LAYER_TENSORS]
        check_layer_tensors(file, range(*layers), names)
        return names


def _load_block(config: Qwen3Config, tensors: LayerTensors, place: int, rope: RotaryTable) -> Block:
    width, epsilon = config.width, config.epsilon
    return Block(
        mixer_norm=tensors.tensor("attn_norm.weight", width),
        mixer=tensors.attention(config.attention, width, place, rope, epsilon),
        ffn_norm=tensors.tensor("ffn_norm.weight", width),
        ffn=tensors.feed_forward(width, config.ffn_width),
        epsilon=epsilon,
    )
