"""Settings of the coturn whose file ``poolhouse turn config`` writes: ``POOLHOUSE_COTURN_*``."""

from __future__ import annotations

import difflib
import ipaddress
import math
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from poolhouse_control import parsing
from poolhouse_control.errors import SettingsError
from poolhouse_control.parsing import Key, choice, flag, setting, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CoturnSettings", "describe"]

_PREFIX = "POOLHOUSE_COTURN_"
_BYTES_PER_S = whole(0, 10**15)
_PORT = whole(1, 65535)


def _realm(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9.-]{0,127}", value.strip()):
        raise ValueError("a domain name such as turn.example.org")
    return value.strip()


def _word(value: str) -> str:
    """One line without spaces or quotes: what coturn reads as it is written."""
    if not re.fullmatch(r"""[^\s"'#]{0,512}""", value.strip()):
        raise ValueError("without spaces, quotes and '#'")
    return value.strip()


def _addresses(value: str) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_address(item)) for item in parsing.comma_list(value))
    except ValueError:
        raise ValueError("a comma list of addresses of this machine") from None


def _mapped(value: str) -> tuple[str, ...]:
    items = parsing.comma_list(value)
    try:
        for item in items:
            for part in item.split("/", 1):
                ipaddress.ip_address(part)
    except ValueError:
        raise ValueError("a comma list of PUBLIC or PUBLIC/PRIVATE addresses") from None
    return items


def _lines(value: str) -> tuple[str, ...]:
    items = parsing.comma_list(value)
    if any(not item.isprintable() for item in items):
        raise ValueError("a comma list of lines such as verbose,relay-threads=2")
    return items


@dataclass(frozen=True, slots=True, kw_only=True)
class CoturnSettings:
    """What a ``turnserver.conf`` says. ``load`` checks values; the constructor trusts them."""

    realm: str = setting("", _realm, "Domain of the relay; coturn's REST credentials need one.")
    listening_ips: tuple[str, ...] = setting(
        (), _addresses, "Addresses to listen on; empty for every one."
    )
    relay_ips: tuple[str, ...] = setting(
        (), _addresses, "Addresses to relay from; empty for the one the client came to."
    )
    external_ips: tuple[str, ...] = setting(
        (), _mapped, "Behind NAT: PUBLIC or PUBLIC/PRIVATE, what clients are told."
    )
    port: int = setting(3478, _PORT, "Port of UDP and TCP.")
    tls_port: int = setting(5349, _PORT, "Port of TLS and DTLS; 443 passes more firewalls.")
    min_port: int = setting(49152, whole(1024, 65535), "First port of relayed traffic.")
    max_port: int = setting(65535, whole(1024, 65535), "Last port of relayed traffic.")
    tls_cert: str = setting("", _word, "File of the certificate chain; without it no TLS.")
    tls_key: str = setting("", _word, "File of its private key.")
    user_quota: int = setting(
        0,
        whole(0, 100_000),
        "Allocations at a time by label; 0 for no limit. Needs POOLHOUSE_TURN_LABELS.",
    )
    total_quota: int = setting(1200, whole(1, 64_000), "Allocations at a time in all.")
    max_bps: int = setting(
        1_000_000,
        _BYTES_PER_S,
        "Bytes a second of one allocation, each way; 0 for no limit, if BPS_CAPACITY is 0 too.",
    )
    bps_capacity: int = setting(
        60_000_000,
        _BYTES_PER_S,
        "Bytes a second of all allocations; 0 for no limit. coturn reserves MAX_BPS of it for "
        "each, so it also limits their number.",
    )
    max_lifetime_s: int = setting(
        3600, whole(60, 86_400), "Longest time until a client must refresh its allocation."
    )
    stale_nonce_s: int = setting(600, whole(60, 86_400), "Life of a nonce.")
    allowed_peers: tuple[str, ...] = setting(
        (),
        _lines,
        "Addresses or FIRST-LAST that a relay may send to although a deny rule covers them.",
    )
    secrets: str = setting(
        "static",
        choice("static", "sqlite", "redis"),
        "Where coturn finds its secrets: in the file (a change needs a restart), or live in "
        "SQLite or Redis, where poolhouse turn rotate changes them.",
    )
    userdb: str = setting("/var/lib/turn/turndb", _word, "The SQLite file.")
    redis_url: str = setting(
        "", _word, "The Redis, as redis://:PASSWORD@HOST:PORT/NUMBER.", secret=True
    )
    redis_url_file: str = setting("", _word, "File that holds that address, instead.")
    log: str = setting("syslog", choice("syslog", "stdout"), "Where the log goes.")
    verbose: bool = setting(False, flag, "Log each session.")
    pidfile: str = setting("/run/turnserver/turnserver.pid", _word, "Where the process id goes.")
    run_as: str = setting("turnserver", _word, "User and group after the start; empty to stay.")
    extra: tuple[str, ...] = setting(
        (), _lines, "More lines for the file, each checked: verbose,relay-threads=2."
    )

    @property
    def most_allocations(self) -> int:
        """How many fit at a time: a reservation of bandwidth each, the last one of what is left."""
        if not (self.bps_capacity and self.max_bps):
            return self.total_quota
        return min(self.total_quota, math.ceil(self.bps_capacity / self.max_bps))

    @classmethod
    def load(cls, environ: Mapping[str, str], **arguments: Any) -> Self:
        """Merge arguments over ``environ`` over defaults, and check all.

        Raises:
            SettingsError: a bad value, or a variable of our prefix that is no setting.
        """
        known = {_PREFIX + each.name.upper() for each in fields(cls)}
        for variable in sorted(environ):
            if variable.startswith(_PREFIX) and variable not in known:
                near = difflib.get_close_matches(variable, known, n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise SettingsError(f"There is no setting {variable}.{hint}")
        return cls(**parsing.load_values(cls, environ, _PREFIX, arguments))


def describe() -> list[Key]:
    """List every setting, for the reference page."""
    return parsing.describe(CoturnSettings, _PREFIX)
