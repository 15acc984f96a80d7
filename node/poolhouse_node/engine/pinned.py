"""Bytes to a device and back without waiting more than once: pinned pages, kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["Download", "Upload", "pinned_page"]

_TURNS = 4
"""Uploads whose copies may wait at once: frames of several rooms lie behind each other."""


def pinned_page(size_bytes: int, device: torch.device) -> Tensor:
    """Zeros of the host, bytes, which ``device`` copies from and to without waiting."""
    return torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")


class Upload:
    """Copies of up to ``size_bytes`` to buffers of one device, in stream order."""

    __slots__ = ("_done", "_is_device", "_next", "_pages", "_views")

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        self._is_device = device.type == "cuda"
        self._pages = [pinned_page(size_bytes, device) for _ in range(_TURNS)]
        self._views = [page.numpy() for page in self._pages]
        self._done: list[torch.cuda.Event | None] = [None] * _TURNS
        self._next = 0

    def send(self, data: bytes | NDArray[np.uint8], to: Tensor) -> None:
        """``to`` (bytes, as many as ``data``) holds a copy when the stream gets there.

        ``data`` is the caller's again at once.
        """
        turn, self._next = self._next, (self._next + 1) % _TURNS
        waiting = self._done[turn]
        if waiting is not None:
            waiting.synchronize()
        size = len(data)
        self._views[turn][:size] = np.frombuffer(data, np.uint8)
        to.copy_(self._pages[turn][:size], non_blocking=self._is_device)
        if self._is_device:
            self._done[turn] = waiting or torch.cuda.Event()
            self._done[turn].record()


class Download:
    """Tensors to the host, all waited for together."""

    __slots__ = ("_done", "_pages")

    def __init__(self) -> None:
        self._pages: list[Tensor] = []
        self._done: torch.cuda.Event | None = None

    def fetch(self, *tensors: Tensor) -> list[NDArray[np.uint8]]:
        """Bytes of contiguous ``tensors``, good until the next call. A synchronisation point."""
        flat = [tensor.reshape(-1).view(torch.uint8) for tensor in tensors]
        if not flat[0].is_cuda:
            return [each.numpy() for each in flat]
        pages = [self._page(place, each.numel()) for place, each in enumerate(flat)]
        for page, each in zip(pages, flat, strict=True):
            page.copy_(each, non_blocking=True)
        self._done = self._done or torch.cuda.Event()
        self._done.record()
        self._done.synchronize()
        return [page.numpy() for page in pages]

    def _page(self, place: int, size_bytes: int) -> Tensor:
        while len(self._pages) <= place:
            self._pages.append(torch.empty(0, dtype=torch.uint8, pin_memory=True))
        if self._pages[place].numel() < size_bytes:
            self._pages[place] = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
        return self._pages[place][:size_bytes]
