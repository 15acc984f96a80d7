"""A model of a catalogue shape, of random weights: the layers, and what a host has besides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from poolhouse_node.engine.layers.delta_net import DeltaNet, DeltaSizes
from poolhouse_node.engine.layers.feed_forward import DenseFeedForward
from poolhouse_node.engine.layers.normed_attention import AttentionSizes, NormedAttention
from poolhouse_node.engine.layers.rope import RotaryTable
from poolhouse_node.engine.models.blocks import Block
from poolhouse_node.engine.models.hybrid import HybridConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from poolhouse_node.cli.bench.shape_weights import WeightMaker
    from poolhouse_node.cli.bench.shapes import Shape
    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.models.blocks import Mixer
    from poolhouse_node.engine.models.hybrid import HybridFfn

__all__ = ["EPSILON", "config_of", "make_blocks"]

EPSILON = 1e-6
_TAPS = 4


@dataclass(frozen=True, slots=True)
class _NoFile:
    """The feed-forward networks of a model that is not read from a file."""


def config_of(shape: Shape) -> HybridConfig:
    """The sizes as the models keep them. A dense model is a hybrid whose every layer attends."""
    key_heads, value_heads = shape.delta_heads if shape.is_hybrid else (1, 1)
    return HybridConfig(
        layers=shape.layers,
        draft_blocks=0,
        width=shape.width,
        attention=AttentionSizes(
            shape.heads, shape.kv_heads, shape.head_size, gated=shape.is_hybrid
        ),
        rotated=shape.rotated,
        rope_base=shape.rope_base,
        delta=DeltaSizes(key_heads, value_heads, shape.delta_size, _TAPS),
        attention_interval=4 if shape.is_hybrid else 1,
        epsilon=EPSILON,
        ffn=cast("HybridFfn", _NoFile()),
    )


def make_blocks(
    shape: Shape,
    layers: tuple[int, int],
    make: WeightMaker,
    *,
    context_size: int,
    device: torch.device,
) -> list[Block]:
    """Layers ``[lo, hi)``."""
    config = config_of(shape)
    rope = RotaryTable(shape.rotated, shape.rope_base, context_size, device)
    places = zip(range(*layers), config.places(layers), strict=True)
    return [
        Block(
            mixer_norm=_norm(make, shape.width),
            mixer=(
                _attention(config, make, place, rope)
                if config.attends(layer)
                else _delta(config, make, place)
            ),
            ffn_norm=_norm(make, shape.width),
            ffn=_ffn(shape, make),
            epsilon=EPSILON,
        )
        for layer, place in places
    ]


def _norm(make: WeightMaker, size: int) -> Tensor:
    return make.vector(size, mean=1.0, spread=0.1)


def _attention(config: HybridConfig, make: WeightMaker, place: int, rope: RotaryTable) -> Mixer:
    sizes = config.attention
    return NormedAttention(
        sizes=sizes,
        layer=place,
        query_key_value=make.matrix(sizes.query_rows + 2 * sizes.kv_rows, config.width),
        query_norm=_norm(make, sizes.head_size),
        key_norm=_norm(make, sizes.head_size),
        output=make.matrix(config.width, sizes.mixed_width),
        rope=rope,
        epsilon=EPSILON,
    )


def _delta(config: HybridConfig, make: WeightMaker, place: int) -> Mixer:
    sizes = config.delta
    rows = sizes.channels + sizes.value_width + 2 * sizes.value_heads
    return DeltaNet(
        sizes=sizes,
        layer=place,
        inputs=make.matrix(rows, config.width),
        taps=make.vector(_TAPS * sizes.channels, spread=0.5).view(_TAPS, sizes.channels),
        decay_bias=make.vector(sizes.value_heads),
        decay_scale=-make.vector(sizes.value_heads).abs() - 0.01,
        norm=_norm(make, sizes.size),
        output=make.matrix(config.width, sizes.value_width),
        epsilon=EPSILON,
    )


def _ffn(shape: Shape, make: WeightMaker) -> FeedForward:
    if shape.experts:
        return make.experts(shape.experts, shape.experts_used, shape.width, shape.ffn_width)
    return DenseFeedForward(
        gate_up=make.matrix(2 * shape.ffn_width, shape.width),
        down=make.matrix(shape.width, shape.ffn_width),
    )
