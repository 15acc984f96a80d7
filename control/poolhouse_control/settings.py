"""Every setting of the control plane, in one frozen object.

A value comes from an argument, else from the environment (``POOLHOUSE_<NAME>``), else from its
default. Secrets come from the environment or from a file, never from an argument.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from poolhouse_control.errors import SettingsError
from poolhouse_control.signaling.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["Key", "Settings", "TurnSettings", "describe"]

_PREFIX = "POOLHOUSE_"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})

_DEFAULT_TURN_TTL_S = 21_600
_MIN_TURN_TTL_S, _MAX_TURN_TTL_S = 600, 86_400


@dataclass(frozen=True, slots=True)
class Key:
    """What people must know of one setting."""

    name: str
    variable: str
    doc: str
    default: str


def _text(value: str) -> str:
    return value.strip()


def _flag(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError("1 or 0")
    return lowered in _TRUE


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,18}", value.strip()) or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        expected = f"a number of seconds from {low:g} to {high:g}"
        try:
            number = float(value)
        except ValueError:
            raise ValueError(expected) from None
        if not low <= number <= high:
            raise ValueError(expected)
        return number

    return parse


def _list(value: str) -> tuple[str, ...]:
    return tuple(item for part in value.split(",") if (item := part.strip()))


def _origins(value: str) -> tuple[str, ...]:
    origins = tuple(item.lower().rstrip("/") for item in _list(value))
    if not all(re.fullmatch(r"https?://[^/\s?#@]+", item) for item in origins):
        raise ValueError("a comma list of origins such as https://room.example.org")
    return origins


def _path(value: str) -> str:
    path = f"/{value.strip().strip('/')}/".replace("//", "/")
    if not re.fullmatch(r"/(?:[A-Za-z0-9._~-]+/)*", path):
        raise ValueError("a path of letters, digits, '.', '_', '~', '-' and '/'")
    return path


def _api_key(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", value.strip()):
        raise ValueError("1 to 64 letters, digits, '-' or '_'")
    return value.strip()


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return value.strip().lower()

    return parse


def _turn_ttl(value: str) -> int:
    """Relay credentials, 2: the leading integer, held to its range, else the default."""
    number = re.match(r"\s*([+-]?\d{1,18})", value)
    if number is None:
        return _DEFAULT_TURN_TTL_S
    return min(max(int(number[1]), _MIN_TURN_TTL_S), _MAX_TURN_TTL_S)


def _key(
    default: Any, parse: Callable[[str], Any], doc: str, *, alias: str = "", secret: bool = False
) -> Any:
    """Declare a setting. ``alias`` is a variable other deployments use for the same thing."""
    metadata = {"parse": parse, "doc": doc, "alias": alias}
    return field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The relay whose credentials ``POST /api/turn`` hands out."""

    secret: str
    urls: tuple[str, ...]
    host: str
    ttl_s: int
    allowed_origins: tuple[str, ...]
    public_url: str

    def __repr__(self) -> str:
        """Leave the secret out."""
        return f"TurnSettings(host={self.host!r}, urls={self.urls!r}, ttl_s={self.ttl_s})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one control plane runs. ``load`` checks values; the constructor trusts them."""

    host: str = _key("0.0.0.0", _text, "Address that signaling and the API listen on.")  # noqa: S104 - others must reach it
    port: int = _key(8080, _whole(0, 65535), "Its port; 0 takes a free one.")
    admin_host: str = _key("127.0.0.1", _text, "Address of metrics and health. Keep it private.")
    admin_port: int = _key(9090, _whole(0, 65535), "Its port; 0 takes a free one.")
    public_url: str = _key(
        "",
        _text,
        "Address people use, e.g. https://room.example.org, when a proxy stands in front.",
    )
    path: str = _key("/", _path, "Path under which PeerJS clients find signaling.")
    key: str = _key("peerjs", _api_key, "API key PeerJS clients must give. It is no secret.")
    allow_discovery: bool = _key(False, _flag, "Let anyone list all ids at {path}{key}/peers.")
    origins: tuple[str, ...] = _key(
        (), _origins, "Origins of pages that may use signaling; empty for all."
    )
    max_peers: int = _key(5000, _whole(1, 10_000_000), "Ids that may be registered at a time.")
    expire_after_s: float = _key(
        5.0, _seconds(0.01, 600), "How long a message waits for a peer that is not there."
    )
    sweep_every_s: float = _key(
        0.5, _seconds(0.01, 60), "How often waiting messages and silent peers are looked at."
    )
    alive_timeout_s: float = _key(
        120.0, _seconds(0.05, 86_400), "Silence after which a peer is cut. Browsers need over 60."
    )
    ping_interval_s: float = _key(
        20.0, _seconds(0.05, 3600), "How often the server pings each socket."
    )
    ping_timeout_s: float = _key(
        20.0, _seconds(0.05, 3600), "How long the answer to a ping may take."
    )
    close_grace_s: float = _key(
        5.0, _seconds(0.01, 60), "Time for a client to finish closing before it is cut off."
    )
    max_message_bytes: int = _key(
        256 * 1024, _whole(65_536, 16 * 1024 * 1024), "Largest signaling message."
    )
    shutdown_timeout_s: float = _key(
        3.0, _seconds(0.1, 600), "Time for open sockets and requests to end at shutdown."
    )
    log_level: str = _key(
        "info", _choice("debug", "info", "warning", "error"), "Least severity that is logged."
    )
    log_format: str = _key(
        "auto", _choice("auto", "json", "text"), "auto: text on a terminal, else JSON."
    )
    turn_secret: str = _key(
        "",
        _text,
        "Shared secret of coturn (use-auth-secret).",
        alias="TURN_SECRET",
        secret=True,
    )
    turn_secret_file: str = _key("", _text, "File that holds the secret, instead.")
    turn_urls: tuple[str, ...] = _key(
        (), _list, "Relay addresses, e.g. turn:relay.example.org:3478.", alias="TURN_URLS"
    )
    turn_host: str = _key(
        "", _text, "Host of the relay, when turn_urls is not given.", alias="TURN_HOST"
    )
    turn_ttl_s: int = _key(
        _DEFAULT_TURN_TTL_S,
        _turn_ttl,
        "Seconds that relay credentials live, held to 600 to 86400.",
        alias="TURN_TTL",
    )
    turn_allowed_origins: tuple[str, ...] = _key(
        (),
        _list,
        "Other origins that may ask for relay credentials; '*' stands inside one host label.",
        alias="TURN_ALLOWED_ORIGINS",
    )

    @classmethod
    def load(cls, environ: Mapping[str, str], **arguments: Any) -> Self:
        """Merge arguments (None: not given) over ``environ`` over defaults, and check all.

        Raises:
            SettingsError: a value, an unknown name or a secret given as an argument.
        """
        values: dict[str, Any] = {}
        for setting in fields(cls):
            variable, raw = _look_up(setting.name, setting.metadata["alias"], environ)
            if raw is not None:
                values[setting.name] = _parse(variable, raw, setting.metadata["parse"])
        values |= _checked_arguments(cls, arguments)
        return cls(**_with_secret(values))

    @property
    def limits(self) -> Limits:
        """Bounds of the signaling server."""
        return Limits(
            max_peers=self.max_peers,
            expire_after_s=self.expire_after_s,
            alive_timeout_s=self.alive_timeout_s,
            close_grace_s=self.close_grace_s,
        )

    @property
    def turn(self) -> TurnSettings:
        """What the relay part needs."""
        return TurnSettings(
            secret=self.turn_secret,
            urls=self.turn_urls,
            host=self.turn_host,
            ttl_s=self.turn_ttl_s,
            allowed_origins=self.turn_allowed_origins,
            public_url=self.public_url,
        )


def describe() -> list[Key]:
    """List every setting, for help texts and the reference page."""
    return [
        Key(
            name=setting.name,
            variable=_PREFIX + setting.name.upper(),
            doc=setting.metadata["doc"],
            default=str(setting.default) if setting.default is not MISSING else "",
        )
        for setting in fields(Settings)
    ]


def _look_up(name: str, alias: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    variable = _PREFIX + name.upper()
    if variable not in environ and alias and alias in environ:
        return alias, environ[alias]
    return variable, environ.get(variable)


def _parse(label: str, raw: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(raw)
    except ValueError as error:
        raise SettingsError(f"{label} must be {error}, not {raw!r}.") from None


def _checked_arguments(cls: type[Settings], arguments: Mapping[str, Any]) -> dict[str, Any]:
    known = {setting.name: setting for setting in fields(cls)}
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in known:
            raise SettingsError(f"There is no setting named {name!r}.")
        if value is None:
            continue
        if not known[name].repr:
            variable = _PREFIX + name.upper()
            raise SettingsError(
                f"{name} is a secret: give it as {variable} or {variable}_FILE, not as an argument."
            )
        values[name] = _parse(name, _as_text(value), known[name].metadata["parse"])
    return values


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str):
        return value
    if isinstance(value, tuple | list):
        return ",".join(_items(value))
    return str(value)


def _items(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in values]


def _with_secret(values: dict[str, Any]) -> dict[str, Any]:
    """Read the secret's file. A file and a value at once would leave in doubt which counts."""
    file = values.get("turn_secret_file", "")
    if not file:
        return values
    if values.get("turn_secret"):
        raise SettingsError("Give the relay secret by value or by file, not both.")
    try:
        secret = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SettingsError(f"The relay secret cannot be read from {file}: {reason}.") from None
    if not secret:
        raise SettingsError(f"The relay secret file {file} is empty.")
    return values | {"turn_secret": secret}
