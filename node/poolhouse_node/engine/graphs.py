"""Frames as CUDA graphs: fixed buffers, one launch, one synchronisation.

A graph repeats the launches it has seen with the same addresses, so everything that changes from
frame to frame is data in buffers that stay: columns, positions, block tables.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from torch import Tensor

__all__ = ["FrameGraph", "FrameGraphs", "without_captures"]

_FAILURES_MAX = 3
"""Captures that may fail before nothing is captured any more."""
_log = logging.getLogger(__name__)
_CAPTURING = threading.Lock()
"""One capture at a time in a process: it begins with a wait for the whole device, which spoils any
other that is under way."""


@contextlib.contextmanager
def without_captures() -> Iterator[None]:
    """Inside, no thread captures: kernels may be compiled and loaded. Frames run as they are."""
    with _CAPTURING:
        yield


class FrameGraph:
    """``step`` captured once. It must not depend on anything but the contents of buffers.

    It must have run before, with the same shapes: the first runs compile kernels and open
    libraries, which a capture does not allow.
    """

    __slots__ = ("_graph", "result")

    def __init__(
        self,
        step: Callable[[], Tensor],
        memory: tuple[int, int] | None = None,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """``memory`` is shared by graphs that never run at the same time. ``stream`` is where they
        are captured: by default torch's own one, which is on the first device that captured."""
        self._graph = torch.cuda.CUDAGraph()
        current = torch.cuda.current_stream()
        try:
            # Other threads load models meanwhile: only what this one does may end the capture.
            with torch.cuda.graph(
                self._graph, pool=memory, stream=stream, capture_error_mode="thread_local"
            ):
                self.result = step()
        finally:
            torch.cuda.set_stream(current)  # a capture that fails leaves its own one behind

    def replay(self) -> Tensor:
        """Run it; the result is the same buffer every time. Does not wait."""
        self._graph.replay()
        return self.result


class FrameGraphs:
    """Steps by key: each runs as it is the first time, and as a graph from then on.

    On devices without graphs, and while another thread captures, a run is as it is.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_capturing = device.type == "cuda"
        self._memory = torch.cuda.graph_pool_handle() if self._is_capturing else None
        self._stream = torch.cuda.Stream(device) if self._is_capturing else None
        self._graphs: dict[Hashable, FrameGraph | None] = {}
        self._failures = 0
        self._clock: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        self._timed = False

    def keep_time(self) -> None:
        """From now on :meth:`last_s` says what graphs take."""
        if self._is_capturing:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._clock = start, end

    def last_s(self) -> float | None:
        """Seconds of the device for the last graph, which was waited for; ``None`` before one ran
        with a clock. A run that was not a graph leaves the one before."""
        if self._clock is None or not self._timed:
            return None
        start, end = self._clock
        return float(start.elapsed_time(end)) / 1e3

    def run(self, key: Hashable, step: Callable[[], Tensor]) -> Tensor:
        """The result is good until the next run."""
        if not self._is_capturing or key not in self._graphs:
            self._graphs[key] = None
            return step()
        graph = self._graphs[key] or self._capture(key, step)
        if graph is None:
            return step()
        if self._clock is None:
            return graph.replay()
        start, end = self._clock
        start.record()
        result = graph.replay()
        end.record()
        self._timed = True
        return result

    def _capture(self, key: Hashable, step: Callable[[], Tensor]) -> FrameGraph | None:
        if self._failures >= _FAILURES_MAX or not _CAPTURING.acquire(blocking=False):
            return None
        try:
            graph = self._graphs[key] = FrameGraph(step, self._memory, self._stream)
        except RuntimeError as error:
            # Nothing was computed: the frame runs as it is. That costs speed, not an answer.
            self._failures += 1
            _log.warning("graph.not-captured: %s", str(error).partition("\n")[0])
            return None
        finally:
            _CAPTURING.release()
        return graph

    def forget(self) -> None:
        """Buffers have moved: capture anew."""
        self._graphs = dict.fromkeys(self._graphs)
