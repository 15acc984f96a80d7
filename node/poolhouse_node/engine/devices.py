"""Which device computes, and setting its threads."""

from __future__ import annotations

import contextlib

import torch

from poolhouse_node.compilers import cuda_fault
from poolhouse_node.shard import ShardError

__all__ = ["has_kernels", "on_device", "pick_device", "set_threads"]


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA (or ROCm, which torch calls so too), else Apple's MPS, else the CPU.

    Raises :class:`ShardError` for a name torch does not know or a device that is not there.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.empty(1, device=name).device  # with its number, where there may be several
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise ShardError(f"There is no compute device {name!r} here.") from error
    return device


def on_device(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Inside, what is launched without naming a device goes to ``device``, whatever its number."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        return torch.cuda.device(device)
    return contextlib.nullcontext()


def has_kernels(device: torch.device) -> bool:
    """Our kernels run there: a CUDA or ROCm device, Triton, and the C compiler that it needs."""
    return device.type == "cuda" and cuda_fault() is None


def set_threads(threads: int) -> None:
    """Let torch use ``threads`` CPU threads in this process."""
    torch.set_num_threads(max(1, threads))
