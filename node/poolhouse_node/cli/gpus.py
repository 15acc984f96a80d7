"""GPUs of this machine, asked of NVIDIA's driver: torch, which knows as well, takes seconds."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

__all__ = ["Gpu", "find_gpus", "gpu_of", "spread"]

_DRIVER = "libcuda.so.1"
_NAME_BYTES = 128


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as CUDA sees it."""

    name: str
    memory_bytes: int


@functools.cache
def find_gpus(driver: str = _DRIVER) -> tuple[Gpu, ...]:
    """In the order in which CUDA counts them, ``CUDA_VISIBLE_DEVICES`` included.

    Empty where there is no driver or it finds none.
    """
    try:
        cuda = ctypes.CDLL(driver)
    except OSError:
        return ()
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(_gpu(cuda, number) for number in range(count.value))


def _gpu(cuda: ctypes.CDLL, number: int) -> Gpu:
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceGetName(name, _NAME_BYTES, device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return Gpu(name.value.decode(errors="replace"), memory.value)


def gpu_of(device: str) -> Gpu | None:
    """Which GPU ``--device`` means; ``None`` for a CPU, or one that is not there."""
    kind, _, number = device.partition(":")
    if kind not in {"auto", "cuda"}:
        return None
    gpus, index = find_gpus(), int(number) if number.isdecimal() else 0
    return gpus[index] if index < len(gpus) else None


def spread(device: str, count: int) -> list[str]:
    """``--device`` for each of ``count`` processes: over all GPUs, unless one is named."""
    gpus = len(find_gpus())
    if device not in {"auto", "cuda"} or not gpus:
        return [device] * count
    return [f"cuda:{number % gpus}" for number in range(count)]
