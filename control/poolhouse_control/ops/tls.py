"""The certificate of the public port, read again when its files change."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from poolhouse_control.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from structlog.typing import FilteringBoundLogger

__all__ = ["Certificate"]


class Certificate:
    """A context for servers. New connections get the newest certificate; old ones keep theirs."""

    def __init__(self, cert: str, key: str) -> None:
        """Load both files.

        Raises:
            SettingsError: they cannot be used.
        """
        self._files = (Path(cert), Path(key))
        self.context = _load(*self._files)
        self._seen = self._look()

    def refresh(self) -> bool:
        """Load the files if they changed; True if they did.

        Raises:
            SettingsError: they cannot be used. The certificate at hand stays in use.
        """
        now = self._look()
        if now == self._seen:
            return False
        # Into a context of its own first: a pair that does not match must not replace the good one.
        _load(*self._files)
        self.context.load_cert_chain(*self._files)
        self._seen = now
        return True

    @asynccontextmanager
    async def watching(self, log: FilteringBoundLogger, *, every_s: float) -> AsyncIterator[None]:
        """Look at the files now and then while open."""
        watcher = asyncio.create_task(self._watch(log, every_s))
        try:
            yield
        finally:
            watcher.cancel()

    async def _watch(self, log: FilteringBoundLogger, every_s: float) -> None:
        complained = ""
        while True:
            await asyncio.sleep(every_s)
            try:
                if self.refresh():
                    complained = ""
                    log.info("certificate.reloaded")
            except SettingsError as error:  # half written, perhaps: once is enough to say so
                if str(error) != complained:
                    complained = str(error)
                    log.warning("certificate.unusable", reason=complained)

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        """Identity and time of the files: renewals replace them, or what links point to."""
        try:
            stats = [file.stat() for file in self._files]
        except OSError:
            return ()
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in stats)


def _load(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An encrypted key would make OpenSSL ask at the terminal: an empty word makes it fail.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingsError(
            f"The certificate {cert} with the key {key} cannot be used: {reason}."
        ) from None
    return context
