"""Which device computes, and with how many threads."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from poolhouse_node.shard import ShardError

__all__ = ["fair_threads", "free_cores", "pick_device", "set_threads"]

_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


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


def free_cores(quota: Path = _CPU_QUOTA) -> float:
    """Cores that this process may use and nobody was using in the last minute."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min((cores or 1) - os.getloadavg()[0], _quota_cores(quota))


def _quota_cores(quota: Path) -> float:
    """What the container may use in all; its limit does not show in the number of cores."""
    try:
        allowed_us, period_us = quota.read_text(encoding="ascii").split()
        return int(allowed_us) / int(period_us)
    except (OSError, ValueError, ZeroDivisionError):  # no container, or "max"
        return float("inf")


def fair_threads(cores: float, devices_here: int = 1) -> int:
    """Threads for one of ``devices_here`` devices on a machine with ``cores`` free: at least 1.

    One thread too many costs far more than one too few: threads wait for each other at barriers,
    and on a busy machine the slowest of them is asleep.
    """
    return max(1, round(cores) // max(1, devices_here))


def set_threads(threads: int) -> None:
    """Let torch use ``threads`` CPU threads in this process."""
    torch.set_num_threads(max(1, threads))
