"""What the hybrid models share (engine, section 3): DeltaNet layers, every few a full attention.

The two architectures differ in their feed-forward networks only, which are handed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.engine.kernel_fit import KernelSizes
from poolhouse_node.engine.layers.delta_net import DeltaNet, DeltaSizes
from poolhouse_node.engine.layers.rope import RotaryTable
from poolhouse_node.engine.models.blocks import Block, BlockStack
from poolhouse_node.engine.models.header import HeaderReader, check_layer_tensors
from poolhouse_node.engine.models.layer_tensors import ATTENTION_TENSORS, LayerTensors
from poolhouse_node.engine.models.qwen3 import read_attention
from poolhouse_node.engine.state import AttentionShape, RecurrentShape, StateShape
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.layers.normed_attention import AttentionSizes
    from poolhouse_node.engine.models.blocks import Mixer
    from poolhouse_node.engine.tensors import TensorLoader
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["DRAFT_TENSORS", "HybridConfig", "HybridFfn", "HybridStack", "load_attention_block"]

_NORM_TENSORS = ("attn_norm.weight", "post_attention_norm.weight")
_DELTA_TENSORS = (
    "attn_qkv.weight",
    "attn_gate.weight",
    "ssm_beta.weight",
    "ssm_alpha.weight",
    "ssm_dt.bias",
    "ssm_a",
    "ssm_conv1d.weight",
    "ssm_norm.weight",
    "ssm_out.weight",
)
DRAFT_TENSORS = (
    "nextn.eh_proj.weight",
    "nextn.enorm.weight",
    "nextn.hnorm.weight",
    "nextn.shared_head_norm.weight",
)


class HybridFfn(Protocol):
    """The feed-forward networks of one architecture."""

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Of one layer, without ``blk.<layer>.`` in front."""
        ...

    @property
    def widths(self) -> tuple[int, ...]:
        """Values between the matrices of each kind of network."""
        ...

    def load(self, tensors: LayerTensors, width: int) -> FeedForward:
        """Take one layer's."""
        ...


@dataclass(frozen=True, slots=True)
class HybridConfig:
    """Sizes and constants, all read from the file."""

    layers: int
    """Without draft blocks, which follow them in the file."""
    draft_blocks: int
    width: int
    attention: AttentionSizes
    rotated: int
    rope_base: float
    delta: DeltaSizes
    attention_interval: int
    """The last layer of every so many attends in full."""
    epsilon: float
    ffn: HybridFfn

    @classmethod
    def read_with(cls, file: GgufFile, ffn: HybridFfn) -> HybridConfig:
        """Raises ``GgufError`` for a missing key, :class:`ShardError` for sizes that cannot be."""
        header = HeaderReader(file)
        blocks, draft_blocks = (
            header.count("block_count"),
            header.count_or_none("nextn_predict_layers"),
        )
        header.fits(blocks > draft_blocks)
        attention = read_attention(header, gated=True)
        return cls(
            layers=blocks - draft_blocks,
            draft_blocks=draft_blocks,
            width=header.count("embedding_length"),
            attention=attention,
            rotated=header.rotated(attention.head_size),
            rope_base=header.number("rope.freq_base", 10_000.0),
            delta=_read_delta(header),
            attention_interval=header.count("full_attention_interval", 4),
            epsilon=header.number("attention.layer_norm_rms_epsilon"),
            ffn=ffn,
        )

    def attends(self, layer: int) -> bool:
        """Full attention; a draft block always has it (engine, section 6)."""
        return layer >= self.layers or (layer + 1) % self.attention_interval == 0

    def places(self, layers: tuple[int, int]) -> list[int]:
        """Each layer's place among those of its kind in ``[lo, hi)``."""
        seen = {True: 0, False: 0}
        places = []
        for layer in range(*layers):
            kind = self.attends(layer)
            places.append(seen[kind])
            seen[kind] += 1
        return places

    @property
    def kernel_sizes(self) -> KernelSizes:
        attention, delta = self.attention, self.delta
        inputs = (attention.mixed_width, delta.value_width, *self.ffn.widths)
        heads = (attention.head_size, delta.size)
        return KernelSizes(self.width, heads, attention.group, inputs)

    def state_shape(self, layers: tuple[int, int], context_size: int) -> StateShape:
        """The state a room needs for layers ``[lo, hi)``; kinds that are not there are ``None``."""
        attending = sum(self.attends(layer) for layer in range(*layers))
        recurring = layers[1] - layers[0] - attending
        sizes, delta = self.attention, self.delta
        recurrent = RecurrentShape(
            layers=recurring,
            heads=delta.value_heads,
            key_size=delta.size,
            value_size=delta.size,
            channels=delta.channels,
            taps=delta.taps,
        )
        attention = AttentionShape(attending, sizes.kv_heads, sizes.head_size)
        return StateShape(
            context_size,
            attention=attention if attending else None,
            recurrent=recurrent if recurring else None,
        )

    def layer_tensors(self, layer: int) -> list[str]:
        """All names of one layer."""
        mixer = ATTENTION_TENSORS if self.attends(layer) else _DELTA_TENSORS
        drafting = DRAFT_TENSORS if layer >= self.layers else ()
        short = (*_NORM_TENSORS, *mixer, *self.ffn.tensor_names, *drafting)
        return [f"blk.{layer}.{name}" for name in short]

    def tensor_names(self, file: GgufFile, layers: Iterable[int]) -> list[str]:
        """All names of ``layers``; :class:`ShardError` when the file has others in them."""
        layers = list(layers)
        names = [name for layer in layers for name in self.layer_tensors(layer)]
        check_layer_tensors(file, layers, names)
        return names


def _read_delta(header: HeaderReader) -> DeltaSizes:
    sizes = DeltaSizes(
        key_heads=header.count("ssm.group_count"),
        value_heads=header.count("ssm.time_step_rank"),
        size=header.count("ssm.state_size"),
        taps=header.count("ssm.conv_kernel"),
    )
    header.fits(sizes.value_heads % sizes.key_heads == 0 and sizes.taps > 1)
    header.fits(header.count("ssm.inner_size", sizes.value_width) == sizes.value_width)
    return sizes


class HybridStack(BlockStack):
    """Layers ``[lo, hi)``."""

    def __init__(
        self,
        config: HybridConfig,
        layers: tuple[int, int],
        loader: TensorLoader,
        *,
        context_size: int,
        device: torch.device,
    ) -> None:
        if layers[1] > config.layers:
            raise ShardError(f"The model has {config.layers} layers besides its draft block.")
        rope = RotaryTable(config.rotated, config.rope_base, context_size, device)
        places = zip(range(*layers), config.places(layers), strict=True)
        super().__init__(
            [_load_block(config, loader, layer, place, rope) for layer, place in places],
            partial(config.state_shape, layers),
            rope.held_bytes,
        )


def _load_block(
    config: HybridConfig, loader: TensorLoader, layer: int, place: int, rope: RotaryTable
) -> Block:
    tensors = LayerTensors(loader, layer)
    if config.attends(layer):
        return load_attention_block(config, tensors, place, rope)
    return _block(config, tensors, _load_delta(config, tensors, place))


def load_attention_block(
    config: HybridConfig, tensors: LayerTensors, place: int, rope: RotaryTable
) -> Block:
    """A full-attention layer; ``place`` is its number among those of its part."""
    attention = tensors.attention(config.attention, config.width, place, rope, config.epsilon)
    return _block(config, tensors, attention)


def _block(config: HybridConfig, tensors: LayerTensors, mixer: Mixer) -> Block:
    return Block(
        mixer_norm=tensors.tensor("attn_norm.weight", config.width),
        mixer=mixer,
        ffn_norm=tensors.tensor("post_attention_norm.weight", config.width),
        ffn=config.ffn.load(tensors, config.width),
        epsilon=config.epsilon,
    )


def _load_delta(config: HybridConfig, tensors: LayerTensors, place: int) -> DeltaNet:
    sizes = config.delta
    inputs = {
        "attn_qkv.weight": sizes.channels,
        "attn_gate.weight": sizes.value_width,
        "ssm_beta.weight": sizes.value_heads,
        "ssm_alpha.weight": sizes.value_heads,
    }
    return DeltaNet(
        sizes=sizes,
        layer=place,
        inputs=tensors.stacked(inputs, config.width),
        taps=tensors.tensor("ssm_conv1d.weight", sizes.channels, sizes.taps).T.contiguous(),
        decay_bias=tensors.tensor("ssm_dt.bias", sizes.value_heads),
        decay_scale=tensors.tensor("ssm_a", sizes.value_heads),
        norm=tensors.tensor("ssm_norm.weight", sizes.size),
        output=tensors.matrix("ssm_out.weight", config.width, sizes.value_width),
        epsilon=config.epsilon,
    )
