"""``poolhouse turn rotate``: another secret, while coturn and the control plane run."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from poolhouse_control.errors import SettingsError
from poolhouse_control.relay.coturn_settings import CoturnSettings
from poolhouse_control.relay.rotation import (
    FileList,
    RedisList,
    RedisStore,
    SqliteStore,
    retire,
    rotate,
)
from poolhouse_control.settings import Settings
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.running import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redis import Redis

    from poolhouse_control.relay.rotation import Rotation, SecretList, SecretStore

__all__ = ["change_secret"]

_DEADLINE_S: Final = 5.0
_NOT_READ: Final = ("POOLHOUSE_TURN_SECRET_FILE",)
"""The first rotation makes this file."""


async def change_secret(
    secret_file: Path | None, *, retire_only: bool, force: bool, as_json: bool
) -> int:
    """Rotate, or retire the secret before the newest. Secrets are never shown."""
    environ = {name: value for name, value in os.environ.items() if name not in _NOT_READ}
    coturn = CoturnSettings.load(environ)
    if not coturn.realm:
        raise SettingsError("POOLHOUSE_COTURN_REALM is missing: secrets are kept by realm.")
    lifetime_s = Settings.load(environ).turn_ttl_s
    with _places(coturn, secret_file) as (issuer, store):
        change = retire if retire_only else rotate
        done = change(issuer, store, lifetime_s=lifetime_s, force=force)
    _tell(done, lifetime_s, retire_only=retire_only, as_json=as_json)
    return 0


@contextlib.contextmanager
def _places(
    coturn: CoturnSettings, secret_file: Path | None
) -> Iterator[tuple[SecretList, SecretStore]]:
    """Where the control plane looks, and where coturn looks."""
    if coturn.secrets == "redis":
        with _redis(coturn.redis_url) as client:
            files = FileList(str(secret_file)) if secret_file is not None else None
            yield files or RedisList(client, coturn.realm), RedisStore(client, coturn.realm)
        return
    if coturn.secrets == "static":
        raise SettingsError(
            "coturn reads secrets in its file at the start only: keep them in SQLite or Redis "
            "(POOLHOUSE_COTURN_SECRETS) to change them while it runs."
        )
    if secret_file is None:
        raise SettingsError("Say with --secret-file what the control plane signs with.")
    yield FileList(str(secret_file)), SqliteStore(coturn.userdb, coturn.realm)


@contextlib.contextmanager
def _redis(url: str) -> Iterator[Redis]:
    try:
        from redis import Redis
        from redis.exceptions import RedisError
    except ImportError:
        raise CommandFailed("Redis needs a package: pip install 'poolhouse[redis]'.") from None
    try:
        with Redis.from_url(url, socket_timeout=_DEADLINE_S) as client:
            yield client
    except (RedisError, ValueError) as error:
        raise CommandFailed(f"Redis cannot be used: {type(error).__name__}.") from None


def _tell(done: Rotation, lifetime_s: int, *, retire_only: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(done)))
    elif retire_only:
        say(f"One secret is left; {done.removed} taken out of coturn's store.")
    else:
        say(
            f"Signing with a new secret; {done.kept} are accepted. The one before can go in "
            f"{lifetime_s} s: poolhouse turn rotate --retire."
        )
