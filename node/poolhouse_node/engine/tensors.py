"""Tensors out of a model file onto a device, with progress, cancelling and checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from poolhouse_node.engine.keeping import ExactKeeper
from poolhouse_node.engine.quant import SUPPORTED_TYPES, dequantise
from poolhouse_node.engine.raw_matrix import RawMatrix
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray
    from torch import Tensor

    from poolhouse_node.engine.keeping import Keeper
    from poolhouse_node.weights.gguf import GgufFile
    from poolhouse_node.weights.gguf_header import TensorInfo

__all__ = ["LoadCancelled", "LoadWatch", "TensorLoader"]


class LoadCancelled(ShardError):
    """Loading stopped because the caller asked for it."""

    def __init__(self) -> None:
        super().__init__("Loading was cancelled.")


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """Who watches a load: ``progress`` gets 0..1, ``cancelled`` is asked before each tensor.

    ``waits`` hears that other loads come first.
    """

    progress: Callable[[float], None]
    cancelled: Callable[[], bool]
    waits: Callable[[], None] = lambda: None


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
        keeper: Keeper | None = None,
    ) -> None:
        """``keeper`` makes matrices of what is read; without one, of float32."""
        self._file = file
        self.keeper = keeper or ExactKeeper(device)
        self.device = device
        self._watch = watch
        self._done_bytes = 0
        self._total_bytes = sum(self._size_bytes(name) for name in names)

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A float32 tensor on the device.

        Raises :class:`ShardError` when it is missing, has another shape or an unknown type, and
        :class:`LoadCancelled`.
        """
        info = self._checked(name, shape)
        values = dequantise(self._file.tensor_data(name), info.type, shape).to(self.device)
        self._count(info)
        return values

    def matrix(self, name: str, shape: tuple[int, ...]) -> RawMatrix:
        """A matrix as the file has it, all axes but the last as rows. Raises as :meth:`tensor`."""
        info = self._checked(name, shape)
        if info.type not in SUPPORTED_TYPES:
            dequantise(self._file.tensor_data(name), info.type, shape)  # says what is supported
        rows = math.prod(shape[:-1])
        data = _unwritten(self._file.tensor_data(name)).view(rows, -1)
        self._count(info)
        return RawMatrix(data, info.type, shape[-1])

    def _checked(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        if self._watch.cancelled():
            raise LoadCancelled
        self._size_bytes(name)
        info = self._file.tensors[name]
        if info.shape != shape:
            raise ShardError(
                f"The tensor {name} of the model file has the shape {list(info.shape)}; "
                f"{list(shape)} fits the rest of the file."
            )
        return info

    def _count(self, info: TensorInfo) -> None:
        self._done_bytes += info.size_bytes
        self._watch.progress(self._done_bytes / max(1, self._total_bytes))

    def _size_bytes(self, name: str) -> int:
        info = self._file.tensors.get(name)
        if info is None:
            raise ShardError(f"The model file lacks the tensor {name}.")
        return info.size_bytes


class _Mapped:
    """Says of an array what torch asks for, that it may be written to, and keeps it alive.

    The map of a file may not: whoever wrote to the tensor would end the process. A copy instead
    would be the largest thing that a load needs besides what it makes.
    """

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self._array = array
        place, _ = array.__array_interface__["data"]
        self.__array_interface__ = array.__array_interface__ | {"data": (place, False)}


def _unwritten(array: NDArray[np.uint8]) -> Tensor:
    """A tensor over the very bytes of ``array``, for readers only."""
    return torch.from_numpy(np.asarray(_Mapped(array)))
