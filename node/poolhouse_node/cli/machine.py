"""What this machine is and may lend, without importing an engine."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from poolhouse_node.cli.gpus import find_gpus, gpu_of
from poolhouse_node.container import core_limit, memory_limit_bytes
from poolhouse_node.room.names import fit_name
from poolhouse_node.room.pledge import COMPUTER

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "container_gb",
    "default_name",
    "default_pledge_gb",
    "device_meta",
    "device_name",
    "fair_threads",
    "free_cores",
    "has_nvidia",
    "memory_gb",
    "usable_cores",
]

PLEDGE_SHARE = 0.5
"""Of the machine's memory, when nobody says a pledge."""
GPU_PLEDGE_SHARE = 0.9
GPU_WORK_GB = 1.5
"""For each process on a GPU: the driver's context, graphs, a prompt between two products."""
CONTAINER_WORK_GB = 4.0
"""For each process in a container with a limit: torch, buffers, cached files."""
LARGEST_BINDING_MB = 1 << 20
"""torch binds no buffers: no limit of this kind holds a room's context down."""


def memory_gb() -> float:
    """Physical memory in GB of 2^30 bytes, whoever may use it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def container_gb(groups: Iterable[Path] | None = None) -> float | None:
    """What a container or a unit allows, in GB; ``None`` if that is no less than the machine."""
    limit = memory_limit_bytes(groups)
    return limit / 2**30 if limit is not None and limit / 2**30 < memory_gb() else None


def default_pledge_gb(
    devices_here: int = 1, device: str = "cpu", groups: Iterable[Path] | None = None
) -> float:
    """What a device that computes on ``device`` lends unless told otherwise, to one decimal.

    Most of its GPU's memory, what a container's limit leaves besides the work, or half of the
    machine's memory, shared by the ``devices_here``.
    """
    gpu = gpu_of(device)
    if gpu is not None:
        on_one = -(-devices_here // max(1, len(find_gpus())))
        share = gpu.memory_bytes / 2**30 * GPU_PLEDGE_SHARE / on_one - GPU_WORK_GB
    elif (limit := container_gb(groups)) is not None:
        return _container_share_gb(limit / devices_here)
    else:
        share = memory_gb() * PLEDGE_SHARE / devices_here
    return round(min(max(share, COMPUTER.min_gb), COMPUTER.max_gb), 1)


def _container_share_gb(limit_gb: float) -> float:
    """Nobody else uses that memory, but whoever takes more is killed: no least share here."""
    share = max(limit_gb * PLEDGE_SHARE, limit_gb - CONTAINER_WORK_GB)
    return round(min(max(share, 0.1), COMPUTER.max_gb), 1)


def usable_cores() -> int:
    """Cores this process may run on, whoever else uses them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_cores(groups: Iterable[Path] | None = None) -> float:
    """Cores that this process may use and nobody was using in the last minute."""
    idle = usable_cores() - os.getloadavg()[0]
    limit = core_limit(groups)
    return idle if limit is None else min(idle, limit)


def fair_threads(cores: float, devices_here: int = 1) -> int:
    """Threads for one of ``devices_here`` devices on a machine with ``cores`` free: at least 1.

    One thread too many costs far more than one too few: threads wait for each other at barriers,
    and on a busy machine the slowest of them is asleep.
    """
    return max(1, round(cores) // max(1, devices_here))


def has_nvidia() -> bool:
    """A driver of NVIDIA is loaded, so that torch finds a GPU most likely."""
    return Path("/dev/nvidiactl").exists()


def default_name() -> str:
    """The host name, which Kubernetes makes the pod name: stable, so that a seat is kept."""
    return fit_name(socket.gethostname().partition(".")[0] or "poolhouse")


def device_name(said: str | None) -> str:
    """What the person or the orchestrator called this device, as long as a room takes it."""
    return fit_name(said) if said else default_name()


def device_meta(*, pledge_gb: float | None, device: str = "cpu") -> dict[str, object]:
    """What this device says about itself (joining, section 2). No pledge: ask only."""
    gpu = gpu_of(device)
    meta: dict[str, object] = {
        "ua": "Mac" if platform.system() == "Darwin" else "Device",
        "webgpu": pledge_gb is not None,
        "native": "poolhouse",
        "gpu": gpu.name if gpu else f"{platform.machine()} CPU",
        "gbps": 0,
        "maxBindMB": LARGEST_BINDING_MB,
    }
    return meta | ({"contribGB": pledge_gb} if pledge_gb is not None else {})
