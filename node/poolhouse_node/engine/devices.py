"""Which device computes, and setting its threads."""

from __future__ import annotations

import torch

from poolhouse_node.shard import ShardError

__all__ = ["pick_device", "set_threads"]


def pick_device(name: str) -> torch.device:
    """``auto`` is CUDA when there is one, else Apple's MPS, else the CPU.

    Raises :class:`ShardError` for a name torch does not know or a device that is not there.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built with CUDA
        raise ShardError(f"There is no compute device {name!r} here.") from error
    return device


def set_threads(threads: int) -> None:
    """Let torch use ``threads`` CPU threads in this process."""
    torch.set_num_threads(max(1, threads))
