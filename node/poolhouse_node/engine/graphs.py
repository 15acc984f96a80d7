"""Frames as CUDA graphs: fixed buffers, one launch, one synchronisation.

A graph repeats the launches it has seen with the same addresses, so everything that changes from
frame to frame is data in buffers that stay: columns, positions, block tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["FrameGraph", "Readback"]

_WARM_UPS = 2
"""Runs before a capture: the first ones compile kernels and open libraries."""


class FrameGraph:
    """``step`` captured once. It must not depend on anything but the contents of buffers."""

    __slots__ = ("_graph", "result")

    def __init__(
        self, step: Callable[[], Tensor], *, restore: Callable[[], object] = lambda: None
    ) -> None:
        """``restore`` is called after the runs that warm up, which change the buffers."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.result = step()
        restore()

    def replay(self) -> Tensor:
        """Run it; the result is the same buffer every time. Does not wait."""
        self._graph.replay()
        return self.result


class Readback:
    """Tensors to the host with pinned buffers: copies that are waited for together, once."""

    __slots__ = ("_buffers", "_done")

    def __init__(self, *like: Tensor) -> None:
        self._buffers = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in like
        ]
        self._done = torch.cuda.Event()

    def fetch(self, *tensors: Tensor) -> list[Tensor]:
        """The host's copies of ``tensors``, good until the next call. A synchronisation point."""
        for buffer, tensor in zip(self._buffers, tensors, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        self._done.record()
        self._done.synchronize()
        return self._buffers
