"""Shards of random weights of a catalogue shape, as rooms use them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from poolhouse_node.cli.bench.shape_model import EPSILON, config_of, make_blocks
from poolhouse_node.cli.bench.shape_weights import DenseWeights, KernelWeights
from poolhouse_node.engine.head import Head
from poolhouse_node.engine.model_part import ModelPart
from poolhouse_node.engine.models.blocks import BlockStack
from poolhouse_node.engine.torch_shard import TorchShard

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from poolhouse_node.cli.bench.shapes import Shape
    from poolhouse_node.engine.layers.linear import Table
    from poolhouse_node.engine.models.blocks import Block

__all__ = ["head_quant", "make_shard", "shard_of"]


def head_quant(quant: str) -> str:
    """The catalogue's heads are Q6_K, which is multiplied as eight bits."""
    return "bf16" if quant == "bf16" else "q8_0"


def make_shard(
    shape: Shape,
    layers: tuple[int, int],
    device: torch.device,
    *,
    quant: str,
    seed: int,
    context: int,
    with_head: bool,
) -> TorchShard:
    """One room's, of weights of its own: packed on CUDA, elsewhere float32."""
    on_kernels = device.type == "cuda"
    make = KernelWeights(seed, device, quant) if on_kernels else DenseWeights(seed, device)
    blocks = make_blocks(shape, layers, make, context_size=context, device=device)
    head: Head | None = None
    if with_head:
        size = (shape.vocabulary_size, shape.width)
        table = cast("Table", make.matrix(*size))
        output = (
            cast("Table", make.matrix(*size, head_quant(quant)))
            if isinstance(make, KernelWeights)
            else table
        )
        norm = make.vector(shape.width, mean=1.0, spread=0.1)
        head = Head(shape.vocabulary_size, table, norm, output, EPSILON)
    return shard_of(shape, layers, device, blocks, head, context=context, on_kernels=on_kernels)


def shard_of(
    shape: Shape,
    layers: tuple[int, int],
    device: torch.device,
    blocks: Sequence[Block],
    head: Head | None,
    *,
    context: int,
    on_kernels: bool,
) -> TorchShard:
    """One room's, of weights that are there."""
    stack = BlockStack(blocks, partial(config_of(shape).state_shape, layers), 0)
    part = ModelPart(
        layers,
        shape.width,
        context,
        device,
        stack,
        head,
        precision="packed" if on_kernels else "exact",
        on_kernels=on_kernels,
    )
    return TorchShard(part, saved_states=0)
