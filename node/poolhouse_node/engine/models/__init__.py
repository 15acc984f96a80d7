"""Architectures, one file each, chosen by the model file's ``general.architecture``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.engine.models.llama import Llama, LlamaConfig
from poolhouse_node.engine.models.qwen3 import Qwen3, Qwen3Config
from poolhouse_node.engine.models.qwen35 import Qwen35, Qwen35Config
from poolhouse_node.engine.models.qwen35moe import Qwen35Moe, Qwen35MoeConfig
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from poolhouse_node.engine.kernel_fit import KernelSizes
    from poolhouse_node.engine.models.blocks import Block
    from poolhouse_node.engine.state import RoomPass, StateShape
    from poolhouse_node.weights.gguf import GgufFile

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Config",
    "Model",
    "find_architecture",
]


class Config(Protocol):
    """Sizes of a model as its file's header gives them."""

    @property
    def layers(self) -> int:
        """Layers a room deals; a draft block is not one of them."""
        ...

    @property
    def width(self) -> int:
        """Values of a hidden state."""
        ...

    @property
    def epsilon(self) -> float:
        """Of the norms, the final one among them."""
        ...

    @property
    def kernel_sizes(self) -> KernelSizes:
        """What decides whether kernels compute it."""
        ...

    def state_shape(self, layers: tuple[int, int], context_size: int) -> StateShape:
        """The state a room needs for layers ``[lo, hi)``, known before anything is loaded."""
        ...


class Model(Protocol):
    """The weights of layers ``[lo, hi)``, for any number of rooms."""

    held_bytes: int
    blocks: Sequence[Block]
    """The layers, for who runs them in a way of its own."""

    def state_shape(self, context_size: int) -> StateShape:
        """The state a room needs for these layers."""
        ...

    def run(self, x: Tensor, this_pass: RoomPass) -> Tensor:
        """Hidden states [n, width] of the pass's columns through the layers."""
        ...


@dataclass(frozen=True, slots=True)
class Architecture:
    """How a file of one architecture is read and its layers are made."""

    read_config: Callable[[GgufFile], Config]
    """Raises ``GgufError`` for a missing key, :class:`ShardError` for sizes that cannot be."""
    tensor_names: Callable[[GgufFile, tuple[int, int]], list[str]]
    """The tensors of layers ``[lo, hi)``; :class:`ShardError` for one nobody knows."""
    load: Callable[..., Model]
    """``load(config, layers, loader, *, context_size, device)``."""


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(LlamaConfig.read, Llama.tensor_names, Llama),
    "qwen3": Architecture(Qwen3Config.read, Qwen3.tensor_names, Qwen3),
    "qwen35": Architecture(Qwen35Config.read, Qwen35.tensor_names, Qwen35),
    "qwen35moe": Architecture(Qwen35MoeConfig.read, Qwen35Moe.tensor_names, Qwen35Moe),
}


def find_architecture(file: GgufFile) -> Architecture:
    """Raise :class:`ShardError` unless this engine computes the file's architecture."""
    found = ARCHITECTURES.get(file.architecture)
    if found is None:
        known = ", ".join(ARCHITECTURES)
        raise ShardError(
            f"This engine cannot compute the architecture {file.architecture!r}, only {known}."
        )
    return found
