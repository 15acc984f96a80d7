"""What the control groups of this process allow it: a container's limits, or those of a unit.

Limits of version 2 are read, at each level: a group may not use more than the groups above it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["core_limit", "memory_left_bytes", "memory_limit_bytes", "own_groups"]

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_UNREADABLE = (OSError, ValueError, IndexError, ZeroDivisionError)


def own_groups(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> tuple[Path, ...]:
    """Folders of this process's group and of those above it, the innermost first.

    A container sees its own group as the root, unless it shares the machine's view.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
        path = next(line for line in lines if line.startswith("0::")).removeprefix("0::/")
    except (OSError, ValueError, StopIteration):
        return (root,)
    inner = root / path
    if ".." in inner.parts or not inner.is_dir():  # a group outside what this process may see
        return (root,)
    return (inner, *(each for each in inner.parents if each.is_relative_to(root)))


def memory_limit_bytes(groups: Iterable[Path] | None = None) -> int | None:
    """The least of ``memory.max``; ``None`` without any."""
    limits = map(_memory_limit, own_groups() if groups is None else groups)
    return min((limit for limit in limits if limit is not None), default=None)


def memory_left_bytes(groups: Iterable[Path] | None = None) -> int | None:
    """What may still be taken below the limits, cached files counted as free."""
    left = map(_memory_left, own_groups() if groups is None else groups)
    return min((each for each in left if each is not None), default=None)


def core_limit(groups: Iterable[Path] | None = None) -> float | None:
    """The least of ``cpu.max``, in cores. It does not show in the number of cores."""
    limits = map(_core_limit, own_groups() if groups is None else groups)
    return min((limit for limit in limits if limit is not None), default=None)


def _memory_limit(group: Path) -> int | None:
    try:
        return int((group / "memory.max").read_text(encoding="ascii"))
    except _UNREADABLE:  # no such group, or "max"
        return None


def _memory_left(group: Path) -> int | None:
    limit = _memory_limit(group)
    try:
        used = int((group / "memory.current").read_text(encoding="ascii"))
        stat = (group / "memory.stat").read_text(encoding="ascii")
        files = [int(line.split()[1]) for line in stat.splitlines() if "active_file" in line]
    except _UNREADABLE:
        return limit
    return None if limit is None else max(0, limit - used + sum(files))


def _core_limit(group: Path) -> float | None:
    try:
        allowed_us, period_us = (group / "cpu.max").read_text(encoding="ascii").split()
        return int(allowed_us) / int(period_us)
    except _UNREADABLE:
        return None
