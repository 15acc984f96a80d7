"""What Linux knows of another process: the CPU it used, the memory it holds, the port it has."""

from __future__ import annotations

import os
import re
from pathlib import Path

from poolhouse_node.cli.failures import CommandFailed

__all__ = ["cpu_s", "pid_listening_on", "resident_kb"]

_PROC = Path("/proc")
_LISTENING = "0A"
"""State of a socket in ``/proc/net/tcp``."""


def cpu_s(pid: int) -> float:
    """User and system time of all threads so far, to the clock tick (mostly 10 ms)."""
    # The name of the program, in parentheses, may hold spaces: count from behind it.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_kb(pid: int) -> int:
    """Memory that is not swapped out, in units of 1024 bytes."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", _read(pid, "status"), re.MULTILINE)
    if found is None:
        raise CommandFailed(f"Process {pid} has no memory any more.")
    return int(found[1])


def pid_listening_on(port: int) -> int | None:
    """The process that accepts connections at a TCP port; None if none of ours does."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for entry in _PROC.glob("[0-9]*/fd/*"):
        try:
            held = str(entry.readlink())
        except OSError:  # ended or closed meanwhile, or somebody else's
            continue
        if held in wanted:
            return int(entry.parts[2])
    return None


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def _read(pid: int, name: str) -> str:
    try:
        return (_PROC / str(pid) / name).read_text()
    except OSError:
        raise CommandFailed(f"Process {pid}, the measured server, is gone.") from None
