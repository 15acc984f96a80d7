"""Tensors out of a model file onto a device, with progress, cancelling and checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.engine.quant import dequantise
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch
    from torch import Tensor

    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["LoadCancelled", "LoadWatch", "TensorLoader"]


class LoadCancelled(ShardError):
    """Loading stopped because the caller asked for it."""

    def __init__(self) -> None:
        super().__init__("Loading was cancelled.")


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """Who watches a load: ``progress`` gets 0..1, ``cancelled`` is asked before each tensor."""

    progress: Callable[[float], None]
    cancelled: Callable[[], bool]


class TensorLoader:
    """Reads the tensors of one shard, each once.

    ``names`` are all that will be taken: they measure the progress.
    """

    def __init__(
        self,
        file: GgufFile,
        names: Iterable[str],
        device: torch.device,
        watch: LoadWatch,
    ) -> None:
        self._file = file
        self.device = device
        self._watch = watch
        self._done_bytes = 0
        self._total_bytes = sum(self._size_bytes(name) for name in names)

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A float32 tensor on the device.

        Raises :class:`ShardError` when it is missing, has another shape or an unknown type, and
        :class:`LoadCancelled`.
        """
        if self._watch.cancelled():
            raise LoadCancelled
        size_bytes = self._size_bytes(name)
        info = self._file.tensors[name]
        if info.shape != shape:
            raise ShardError(
                f"The tensor {name} of the model file has the shape {list(info.shape)}; "
                f"{list(shape)} fits the rest of the file."
            )
        values = dequantise(self._file.tensor_data(name), info.type, shape).to(self.device)
        self._done_bytes += size_bytes
        self._watch.progress(self._done_bytes / max(1, self._total_bytes))
        return values

    def _size_bytes(self, name: str) -> int:
        info = self._file.tensors.get(name)
        if info is None:
            raise ShardError(f"The model file lacks the tensor {name}.")
        return info.size_bytes
