"""Where the secret that signs credentials comes from, also while it is being changed.

coturn accepts every secret it knows; the control plane signs with the newest. So a rotation shows
here as another first line of a file, or another first entry of a list in Redis.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from poolhouse_control.errors import RelayUnavailable, SettingsError
from poolhouse_control.parsing import secret_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["FileSecret", "FixedSecret", "PolledSecret", "SecretSource"]

_LOOK_EVERY_S: Final = 1.0


class SecretSource(Protocol):
    """Knows the newest secret."""

    async def newest(self) -> str:
        """Return it.

        Raises:
            RelayUnavailable: there is none.
        """
        ...


class FixedSecret:
    """A secret that stays."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    async def newest(self) -> str:
        """Return it."""
        return self._secret


class FileSecret:
    """The first line of a file, read again when the file changes."""

    def __init__(
        self, path: str, secret: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = Path(path)
        self._secret = secret
        self._clock = clock
        self._looked_at = clock()
        self._stamp = self._file_stamp()

    async def newest(self) -> str:
        """Return it. A file that cannot be read now leaves the last secret in force."""
        if self._clock() - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = self._clock()
            self._reread()
        return self._secret

    def _reread(self) -> None:
        stamp = self._file_stamp()
        if stamp in (None, self._stamp):
            return
        try:
            self._secret = secret_lines(str(self._path), "The relay secret")[0]
        except SettingsError:  # being replaced
            return
        self._stamp = stamp

    def _file_stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size


class PolledSecret:
    """A secret that is fetched, kept for ``every_s``, and outlives a failure to fetch it."""

    def __init__(
        self,
        fetch: Callable[[], Awaitable[str | None]],
        *,
        every_s: float = 5.0,
        timeout_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._due_at = 0.0
        self._secret: str | None = None
        self._lock = asyncio.Lock()

    async def newest(self) -> str:
        """Return it."""
        async with self._lock:
            if self._secret is None or self._clock() >= self._due_at:
                self._secret = await self._fetched() or self._secret
                self._due_at = self._clock() + self._every_s
        if self._secret is None:
            raise RelayUnavailable("The store of relay secrets holds none, or is away.")
        return self._secret

    async def _fetched(self) -> str | None:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._fetch()
        except Exception:  # noqa: BLE001 - a store of any kind may fail in its own ways
            return None
