"""Architectures, one file each, chosen by the model file's ``general.architecture``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.engine.models.llama import Llama, LlamaConfig
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["Llama", "LlamaConfig", "check_architecture"]


def check_architecture(file: GgufFile) -> None:
    """Raise :class:`ShardError` unless this engine computes the file's architecture."""
    name = file.architecture
    if name != "llama":
        raise ShardError(f"This engine cannot compute the architecture {name!r}, only llama.")
