"""Has coturn itself read a file, and reports the lines that it would ignore.

The program is started on a free loopback port, with the lines that bind addresses or give up rights
taken out, and is ended as soon as it has read its file.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from poolhouse_control.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["try_with_coturn"]

_DEADLINE_S: Final = 10.0
_READ: Final = b"Relay ports initialization done"
_COMPLAINT: Final = re.compile(
    r"Bad configuration format|CONFIG(?:URATION)? (?:ERROR|ALERT)|ERROR:"
)
_LEFT_OUT: Final = frozenset(
    """
    listening-ip relay-ip external-ip listening-port tls-listening-port alt-listening-port
    alt-tls-listening-port tcp-proxy-port aux-server listening-device relay-device userdb
    redis-userdb redis-statsdb pidfile log-file syslog no-stdout-log proc-user proc-group daemon
    cert pkey
    """.split()  # noqa: SIM905 - a list of words reads better so
)


async def try_with_coturn(text: str, program: str = "turnserver") -> list[str]:
    """Start coturn with ``text`` and return its complaints; empty when there are none.

    Raises:
        SettingsError: coturn is not on this machine, or does not start.
    """
    path = shutil.which(program)
    if path is None:
        raise SettingsError(
            f"{program} is not on this machine: install coturn, or leave --try out."
        )
    with tempfile.TemporaryDirectory(prefix="poolhouse-") as folder:
        file = Path(folder) / "turnserver.conf"
        file.touch(mode=0o600)
        file.write_text(_harmless(text, Path(folder)), encoding="utf-8")
        # The log's place on the command line: else a file is left in the system's log folder.
        async with _running(path, "-c", str(file), "--log-file", "stdout") as process:
            return await _complaints(process)


def _harmless(text: str, folder: Path) -> str:
    lines = [line for line in text.splitlines() if line.partition("=")[0].strip() not in _LEFT_OUT]
    own = ("listening-ip=127.0.0.1", "relay-ip=127.0.0.1", "listening-port=0")
    files = (f"userdb={folder / 'turndb'}", f"pidfile={folder / 'pid'}", "no-tls", "no-dtls")
    missing = [line for line in (*own, *files) if line not in lines]
    return "\n".join([*lines, *missing, ""])


@contextlib.asynccontextmanager
async def _running(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _complaints(process: asyncio.subprocess.Process) -> list[str]:
    assert process.stdout is not None
    found: dict[str, None] = {}
    try:
        async with asyncio.timeout(_DEADLINE_S):
            async for line in process.stdout:
                if _COMPLAINT.search(said := line.decode("utf-8", "replace")):
                    found[re.sub(r"^\d+: : ", "", said.strip())] = None
                if _READ in line:
                    return list(found)
    except TimeoutError:
        pass
    if found:
        return list(found)
    raise SettingsError("coturn does not start with this file, and does not say why.")
