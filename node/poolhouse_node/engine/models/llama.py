"""The llama architecture (engine, section 2): layers ``[lo, hi)`` of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from poolhouse_node.engine.kernel_fit import KernelSizes
from poolhouse_node.engine.layers.normed_attention import AttentionSizes
from poolhouse_node.engine.layers.rope import RotaryTable, split_interleaved_rows
from poolhouse_node.engine.layers.rotary_attention import RotaryAttention
from poolhouse_node.engine.models.blocks import Block, BlockStack
from poolhouse_node.engine.models.header import check_layer_tensors
from poolhouse_node.engine.models.layer_tensors import FFN_TENSORS, LayerTensors
from poolhouse_node.engine.state import AttentionShape, StateShape
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from poolhouse_node.engine.tensors import TensorLoader
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["Llama", "LlamaConfig"]

_LAYER_TENSORS = (
    "attn_norm.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "ffn_norm.weight",
    *FFN_TENSORS,
)


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and constants, all read from the file."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    ffn_width: int
    rope_base: float
    epsilon: float

    @classmethod
    def read(cls, file: GgufFile) -> LlamaConfig:
        """Raises ``GgufError`` for a missing key, :class:`ShardError` for sizes that cannot be."""
        width = file.integer("llama.embedding_length")
        heads = file.integer("llama.attention.head_count")
        config = cls(
            layers=file.integer("llama.block_count"),
            width=width,
            heads=heads,
            kv_heads=file.integer("llama.attention.head_count_kv", heads),
            head_size=file.integer("llama.attention.key_length", width // max(1, heads)),
            ffn_width=file.integer("llama.feed_forward_length"),
            rope_base=file.number("llama.rope.freq_base", 10_000.0),
            epsilon=file.number("llama.attention.layer_norm_rms_epsilon"),
        )
        config._check(file)
        return config

    @property
    def attention(self) -> AttentionSizes:
        return AttentionSizes(self.heads, self.kv_heads, self.head_size, gated=False)

    @property
    def kernel_sizes(self) -> KernelSizes:
        sizes = self.attention
        return KernelSizes(
            self.width, (sizes.head_size,), sizes.group, (sizes.mixed_width, self.ffn_width)
        )

    def state_shape(self, layers: tuple[int, int], context_size: int) -> StateShape:
        """The state a room needs for layers ``[lo, hi)``."""
        attention = AttentionShape(layers[1] - layers[0], self.kv_heads, self.head_size)
        return StateShape(context_size, attention=attention)

    def _check(self, file: GgufFile) -> None:
        sizes = (self.layers, self.width, self.heads, self.kv_heads, self.head_size, self.ffn_width)
        if min(sizes) < 1 or self.head_size % 2 or self.heads % self.kv_heads:
            raise ShardError("The sizes in the model file's header do not fit each other.")
        if file.integer("llama.rope.dimension_count", self.head_size) != self.head_size:
            raise ShardError("This engine rotates whole heads; the model file asks for a part.")
        scaling = file.text("llama.rope.scaling.type", "none")
        if scaling != "none":
            raise ShardError(f"This engine cannot stretch positions ({scaling} rope scaling).")


class Llama(BlockStack):
    """Layers ``[lo, hi)``."""

    def __init__(
        self,
        config: LlamaConfig,
        layers: tuple[int, int],
        loader: TensorLoader,
        *,
        context_size: int,
        device: torch.device,
    ) -> None:
        rope = RotaryTable(config.head_size, config.rope_base, context_size, device)
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


def _load_block(config: LlamaConfig, tensors: LayerTensors, place: int, rope: RotaryTable) -> Block:
    return Block(
        mixer_norm=tensors.tensor("attn_norm.weight", config.width),
        mixer=_load_attention(config, tensors, place, rope),
        ffn_norm=tensors.tensor("ffn_norm.weight", config.width),
        ffn=tensors.feed_forward(config.width, config.ffn_width),
        epsilon=config.epsilon,
    )


def _load_attention(
    config: LlamaConfig, tensors: LayerTensors, place: int, rope: RotaryTable
) -> RotaryAttention:
    sizes, width = config.attention, config.width
    query = tensors.raw("attn_q.weight", sizes.query_rows, width)
    key = tensors.raw("attn_k.weight", sizes.kv_rows, width)
    value = tensors.raw("attn_v.weight", sizes.kv_rows, width)
    turned = [
        query.reordered(partial(_split, sizes.heads)),
        key.reordered(partial(_split, sizes.kv_heads)),
        value,
    ]
    return RotaryAttention(
        sizes=sizes,
        layer=place,
        query_key_value=tensors.keep(turned),
        output=tensors.matrix("attn_output.weight", width, sizes.mixed_width),
        rope=rope,
    )


def _split(heads: int, rows: Tensor) -> Tensor:
    return split_interleaved_rows(rows, heads)
