"""Making a shard out of a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.engine.devices import pick_device
from poolhouse_node.engine.head import Head
from poolhouse_node.engine.models import Llama, LlamaConfig, check_architecture
from poolhouse_node.engine.tensors import LoadWatch, TensorLoader
from poolhouse_node.engine.torch_shard import TorchShard
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.errors import GgufError
from poolhouse_node.weights.gguf import open_gguf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["load_shard"]


def load_shard(
    path: Path,
    layers: tuple[int, int],
    *,
    context_size: int,
    host: bool,
    device: str = "auto",
    progress: Callable[[float], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> TorchShard:
    """Load layers ``[lo, hi)``; with ``host`` the embedding and head as well.

    Reads only the tensors it needs. ``progress`` gets 0..1; ``cancelled`` is asked before each
    tensor. Raises :class:`ShardError` with a sentence for a person (``LoadCancelled`` when asked
    to stop).
    """
    try:
        with open_gguf(path) as file:
            return _load(
                file,
                layers,
                context_size=context_size,
                host=host,
                device=pick_device(device),
                watch=LoadWatch(progress, cancelled),
            )
    except GgufError as error:
        raise ShardError(str(error)) from error


def _load(
    file: GgufFile,
    layers: tuple[int, int],
    *,
    context_size: int,
    host: bool,
    device: torch.device,
    watch: LoadWatch,
) -> TorchShard:
    check_architecture(file)
    config = LlamaConfig.read(file)
    lo, hi = layers
    if not 0 <= lo < hi <= config.layers:
        raise ShardError(f"Layers {lo} to {hi} are not in a model of {config.layers} layers.")
    if context_size < 1:
        raise ShardError("A context needs at least one position.")
    names = Llama.tensor_names(file, layers) + (Head.tensor_names(file) if host else [])
    loader = TensorLoader(file, names, device, watch)
    head = Head.load(file, config.width, config.epsilon, loader) if host else None
    part = Llama(config, layers, loader, context_size=context_size, device=device)
    return TorchShard(
        part, layers, width=config.width, context_size=context_size, device=device, head=head
    )
