"""Changes the secret that credentials are signed with, while everything runs.

coturn looks secrets up in its database whenever an allocation is made, and takes each one there.
So: coturn learns the new secret, then the control plane signs with it, and the one before stays
until the credentials it signed have ended. At no moment is a credential refused that was good.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from poolhouse_control.errors import SettingsError
from poolhouse_control.parsing import secret_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redis import Redis

__all__ = [
    "FileList",
    "RedisList",
    "RedisStore",
    "Rotation",
    "SecretList",
    "SecretStore",
    "SqliteStore",
    "issuer_key",
    "retire",
    "rotate",
]

_SECRET_BYTES: Final = 32


class SecretList(Protocol):
    """What the control plane signs with: the newest first, at most two."""

    def read(self) -> tuple[str, ...]:
        """Return it; empty when there is none yet."""
        ...

    def changed_at(self) -> float:
        """Unix time of the last write; 0 when there was none."""
        ...

    def write(self, entries: Sequence[str]) -> None:
        """Replace it in one step."""
        ...


class SecretStore(Protocol):
    """What coturn accepts, in any order."""

    def add(self, secret: str) -> None:
        """Accept a secret from now on."""
        ...

    def keep_only(self, kept: Iterable[str]) -> int:
        """Accept no other secrets; return how many were taken out."""
        ...


@dataclass(frozen=True, slots=True)
class Rotation:
    """What was done, without telling a secret."""

    kept: int
    """Secrets that are accepted now."""
    removed: int
    """Secrets that are no longer."""


def rotate(
    issuer: SecretList,
    store: SecretStore,
    *,
    lifetime_s: float,
    force: bool = False,
    now_s: float | None = None,
) -> Rotation:
    """Sign with a new secret from now on; the one before stays accepted.

    ``lifetime_s`` is how long credentials live: a secret before the last one may only go when
    nothing that it signed is good any more, unless ``force`` says so.

    Raises:
        SettingsError: it is too early, or something cannot be read or written.
    """
    former = issuer.read()
    if len(former) > 1 and not force:
        _check_age(issuer, lifetime_s, now_s)
    fresh = secrets.token_hex(_SECRET_BYTES)
    kept = (fresh, *former[:1])
    for secret in reversed(kept):  # the first rotation may find a database that knows neither
        store.add(secret)
    issuer.write(kept)
    return Rotation(len(kept), store.keep_only(kept))


def retire(
    issuer: SecretList,
    store: SecretStore,
    *,
    lifetime_s: float,
    force: bool = False,
    now_s: float | None = None,
) -> Rotation:
    """Accept only the newest secret from now on.

    Raises:
        SettingsError: there is none, it is too early, or something cannot be read or written.
    """
    former = issuer.read()
    if not former:
        raise SettingsError("There is no relay secret yet: run poolhouse turn rotate.")
    if len(former) > 1 and not force:
        _check_age(issuer, lifetime_s, now_s)
    store.add(former[0])
    if len(former) > 1:
        issuer.write(former[:1])
    return Rotation(1, store.keep_only(former[:1]))


def _check_age(issuer: SecretList, lifetime_s: float, now_s: float | None) -> None:
    age_s = (time.time() if now_s is None else now_s) - issuer.changed_at()
    if age_s < lifetime_s:
        raise SettingsError(
            "Credentials signed with the secret before this one may still be in use: wait "
            f"{int(lifetime_s - age_s) + 1} s, or say --force to cut them off."
        )


# ---- what the control plane reads ---------------------------------------------------------------


class FileList:
    """A file of secrets, one a line: what ``POOLHOUSE_TURN_SECRET_FILE`` names."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def read(self) -> tuple[str, ...]:
        """Return its lines; empty when the file is not there yet."""
        if not self._path.exists():
            return ()
        return secret_lines(str(self._path), "The relay secret")

    def changed_at(self) -> float:
        """Unix time of the last write."""
        try:
            return self._path.stat().st_mtime
        except OSError:
            return 0.0

    def write(self, entries: Sequence[str]) -> None:
        """Put another file in its place, with the same owner and rights; new ones are private."""
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(beside.unlink, missing_ok=True)
                descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write("".join(f"{entry}\n" for entry in entries))
                    file.flush()
                    os.fsync(file.fileno())
                self._copy_rights(beside)
                beside.replace(self._path)
        except OSError as error:
            raise SettingsError(f"{self._path} cannot be written: {error.strerror}.") from None

    def _copy_rights(self, beside: Path) -> None:
        if not self._path.exists():
            return
        former = self._path.stat()
        beside.chmod(former.st_mode & 0o777)
        own = beside.stat()
        if (own.st_uid, own.st_gid) != (former.st_uid, former.st_gid):
            os.chown(beside, former.st_uid, former.st_gid)


def issuer_key(realm: str) -> str:
    """Key of the list that the control planes of a realm sign with."""
    return f"poolhouse/turn/{realm}/secrets"


class RedisList:
    """A list in the Redis that coturn uses: what ``POOLHOUSE_TURN_SECRET_REDIS_URL`` names."""

    def __init__(self, client: Redis, realm: str) -> None:
        self._client = client
        self._key = issuer_key(realm)
        self._time_key = f"{self._key}/changed-at"

    def read(self) -> tuple[str, ...]:
        """Return its entries."""
        entries: list[bytes] = self._client.lrange(self._key, 0, 1)  # type: ignore[assignment] # a client that waits
        return tuple(entry.decode() for entry in entries)

    def changed_at(self) -> float:
        """Unix time of the last write."""
        value = self._client.get(self._time_key)
        return float(value) if isinstance(value, bytes) else 0.0

    def write(self, entries: Sequence[str]) -> None:
        """Replace the list in one transaction."""
        with self._client.pipeline(transaction=True) as step:
            step.delete(self._key)
            step.rpush(self._key, *entries)
            step.set(self._time_key, str(time.time()))
            step.execute()


# ---- what coturn reads --------------------------------------------------------------------------


class SqliteStore:
    """coturn's SQLite database. Written here: its own tool shows the secret to every process."""

    def __init__(self, path: str, realm: str) -> None:
        self._path = path
        self._realm = realm

    def add(self, secret: str) -> None:
        """Accept a secret from now on."""
        with self._changing() as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS turn_secret (realm varchar(127) default '',"
                " value varchar(256), primary key (realm, value))"
            )
            database.execute(
                "INSERT OR IGNORE INTO turn_secret (realm, value) VALUES (?, ?)",
                (self._realm, secret),
            )

    def keep_only(self, kept: Iterable[str]) -> int:
        """Accept no other secrets; return how many were taken out."""
        wanted = set(kept)
        with self._changing() as database:
            rows = database.execute(
                "SELECT value FROM turn_secret WHERE realm = ?", (self._realm,)
            ).fetchall()
            gone = [value for (value,) in rows if value not in wanted]
            database.executemany(
                "DELETE FROM turn_secret WHERE realm = ? AND value = ?",
                [(self._realm, value) for value in gone],
            )
        return len(gone)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        try:
            # SQLite would make a new file that everybody can read.
            Path(self._path).touch(mode=0o600)
            with contextlib.closing(sqlite3.connect(self._path, timeout=5.0)) as database, database:
                yield database
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SettingsError(f"{self._path} cannot be changed: {reason}.") from None


class RedisStore:
    """coturn's secrets in Redis: a set for each realm."""

    def __init__(self, client: Redis, realm: str) -> None:
        self._client = client
        self._key = f"turn/realm/{realm}/secret"

    def add(self, secret: str) -> None:
        """Accept a secret from now on."""
        self._client.sadd(self._key, secret)

    def keep_only(self, kept: Iterable[str]) -> int:
        """Accept no other secrets; return how many were taken out."""
        wanted = {secret.encode() for secret in kept}
        members: set[bytes] = self._client.smembers(self._key)  # type: ignore[assignment] # a client that waits
        gone = members - wanted
        if gone:
            self._client.srem(self._key, *gone)
        return len(gone)
