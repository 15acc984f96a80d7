"""Renders a ``turnserver.conf`` that is safe by default, or refuses to."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from poolhouse_control.errors import SettingsError
from poolhouse_control.relay.coturn_options import problems_in
from poolhouse_control.relay.denied import DENIED_RANGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jinja2 import Template

    from poolhouse_control.relay.coturn_settings import CoturnSettings

__all__ = ["redis_userdb", "render"]

_MIN_SECRET_CHARS: Final = 32
_MAX_SECRETS: Final = 2


def render(coturn: CoturnSettings, *, secrets: Sequence[str] = (), labels: bool = False) -> str:
    """Render the file.

    ``secrets`` (newest first, at most two) go into it only if coturn keeps them there; ``labels``
    tells whether every credential has a label of its own.

    Raises:
        SettingsError: the file would not be safe, or coturn would ignore a part of it.
    """
    _check(coturn, secrets, labels=labels)
    text = _template().render(
        coturn=coturn,
        secrets=secrets,
        denied=DENIED_RANGES,
        redis_userdb=redis_userdb(coturn.redis_url) if coturn.secrets == "redis" else "",
    )
    problems = problems_in(text)
    if problems:
        raise SettingsError("coturn's file: " + " ".join(problems))
    return text


def redis_userdb(url: str) -> str:
    """Turn ``redis://:PASSWORD@HOST:PORT/NUMBER`` into coturn's form.

    Raises:
        SettingsError: it has another form, or tells something coturn cannot be told.
    """
    shape = "POOLHOUSE_COTURN_REDIS_URL must be redis://:PASSWORD@HOST:PORT/NUMBER."
    try:
        parts = urlsplit(url)
        port = parts.port or 6379
    except ValueError:
        raise SettingsError(shape) from None
    number = parts.path.strip("/") or "0"
    if parts.scheme != "redis" or not parts.hostname or not number.isdecimal() or parts.username:
        raise SettingsError(shape)
    words = [f"ip={parts.hostname}", f"dbname={number}", f"port={port}", "connect_timeout=5"]
    if parts.password:
        words.insert(2, f"password={unquote(parts.password)}")
    if any(char.isspace() or char == '"' for word in words for char in word):
        raise SettingsError("coturn cannot read a Redis password with spaces or quotes.")
    return " ".join(words)


def _check(coturn: CoturnSettings, secrets: Sequence[str], *, labels: bool) -> None:
    if not coturn.realm:
        raise SettingsError("POOLHOUSE_COTURN_REALM is missing: REST credentials need a realm.")
    if bool(coturn.tls_cert) is not bool(coturn.tls_key):
        raise SettingsError("TLS needs both POOLHOUSE_COTURN_TLS_CERT and _TLS_KEY.")
    if coturn.user_quota and not labels:
        raise SettingsError(
            "POOLHOUSE_COTURN_USER_QUOTA counts by label: without POOLHOUSE_TURN_LABELS=1 all "
            "devices would share one."
        )
    ports = coturn.max_port - coturn.min_port
    if coturn.total_quota > ports:
        raise SettingsError(
            f"POOLHOUSE_COTURN_TOTAL_QUOTA is {coturn.total_quota}, but there are only "
            f"{max(ports, 0)} relay ports: each allocation takes one."
        )
    if coturn.bps_capacity and not coturn.max_bps:
        raise SettingsError(
            "POOLHOUSE_COTURN_BPS_CAPACITY is given out in parts of POOLHOUSE_COTURN_MAX_BPS, and "
            "coturn does not start without that: set it, or the capacity to 0."
        )
    if coturn.secrets == "static":
        _check_secrets(secrets)


def _check_secrets(secrets: Sequence[str]) -> None:
    if not 1 <= len(secrets) <= _MAX_SECRETS:
        raise SettingsError(
            f"coturn's file takes one or two secrets, not {len(secrets)}: give them as "
            "POOLHOUSE_TURN_SECRET_FILE, one a line, the newest first."
        )
    for secret in secrets:
        if len(secret) < _MIN_SECRET_CHARS:
            raise SettingsError(
                f"A relay secret has {len(secret)} characters; at least {_MIN_SECRET_CHARS} are "
                "needed, for example from: openssl rand -hex 32."
            )
        if not secret.isprintable() or any(char in " \"'#" for char in secret):
            raise SettingsError("coturn cannot read a secret with spaces, quotes or '#'.")


def _template() -> Template:
    import jinja2

    folder = resources.files("poolhouse_control.relay") / "templates"
    environment = jinja2.Environment(  # noqa: S701 - a plain text file, values are checked
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = (folder / "turnserver.conf.j2").read_text(encoding="utf-8")
    return environment.from_string(source.removesuffix("\n") + "\n")
