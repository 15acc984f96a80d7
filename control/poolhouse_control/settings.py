"""Every setting of the control plane, in one frozen object.

A value comes from an argument, else from the environment (``POOLHOUSE_<NAME>``), else from its
default. Secrets come from the environment or from a file, never from an argument.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from poolhouse_control import parsing
from poolhouse_control.errors import SettingsError
from poolhouse_control.parsing import (
    Key,
    choice,
    comma_list,
    flag,
    networks,
    seconds,
    setting,
    text,
    whole,
)
from poolhouse_control.signaling.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Key", "Settings", "describe"]

_PREFIX = "POOLHOUSE_"

_DEFAULT_TURN_TTL_S = 21_600
_MIN_TURN_TTL_S, _MAX_TURN_TTL_S = 600, 86_400
_DEFAULT_TURN_RATE = 10
_MAX_TURN_RATE = 10**9


def _origins(value: str) -> tuple[str, ...]:
    origins = tuple(item.lower().rstrip("/") for item in comma_list(value))
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


def _redis_url(value: str) -> str:
    url = value.strip()
    if url and not re.match(r"(?:rediss?|unix)://.", url):
        raise ValueError("an address such as redis://redis.example.org:6379")
    return url


def _redis_prefix(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,32}", value.strip()):
        raise ValueError("1 to 32 letters, digits, '_', '.', ':' or '-'")
    return value.strip()


def _turn_ttl(value: str) -> int:
    """Relay credentials, 2: the leading integer, held to its range, else the default."""
    number = re.match(r"\s*([+-]?\d{1,18})", value)
    if number is None:
        return _DEFAULT_TURN_TTL_S
    return min(max(int(number[1]), _MIN_TURN_TTL_S), _MAX_TURN_TTL_S)


def _turn_rate(value: str) -> int:
    """Relay credentials, 2: a positive whole number, else the default."""
    stripped = value.strip()
    number = int(stripped) if re.fullmatch(r"\d{1,18}", stripped) else 0
    return min(number, _MAX_TURN_RATE) or _DEFAULT_TURN_RATE


def _api_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/\s?#@]+(?:/[^\s?#]*)?", value.strip()):
        raise ValueError("an address such as https://api.example.org")
    return value.strip().rstrip("/")


def _words(value: str) -> tuple[str, ...]:
    return tuple(item for line in value.splitlines() for item in comma_list(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one control plane runs. ``load`` checks values; the constructor trusts them."""

    host: str = setting("0.0.0.0", text, "Address that signaling and the API listen on.")  # noqa: S104 - others must reach it
    port: int = setting(8080, whole(0, 65535), "Its port; 0 takes a free one.")
    admin_host: str = setting("127.0.0.1", text, "Address of metrics and health. Keep it private.")
    admin_port: int = setting(9090, whole(0, 65535), "Its port; 0 takes a free one.")
    public_url: str = setting(
        "",
        text,
        "Address people use, e.g. https://room.example.org, when a proxy stands in front.",
    )
    path: str = setting("/", _path, "Path under which PeerJS clients find signaling.")
    key: str = setting("peerjs", _api_key, "API key PeerJS clients must give. It is no secret.")
    allow_discovery: bool = setting(
        False, flag, "Let anyone list the ids of this replica at {path}{key}/peers."
    )
    origins: tuple[str, ...] = setting(
        (), _origins, "Origins of pages that may use signaling; empty for all."
    )
    max_peers: int = setting(
        5000, whole(1, 10_000_000), "Ids that may be registered at this replica."
    )
    expire_after_s: float = setting(
        5.0, seconds(0.01, 600), "How long a message waits for a peer that is not there."
    )
    sweep_every_s: float = setting(
        0.5, seconds(0.01, 60), "How often waiting messages and silent peers are looked at."
    )
    alive_timeout_s: float = setting(
        120.0, seconds(0.05, 86_400), "Silence after which a peer is cut. Browsers need over 60."
    )
    ping_interval_s: float = setting(
        20.0, seconds(0.05, 3600), "How often the server pings each socket."
    )
    ping_timeout_s: float = setting(
        20.0, seconds(0.05, 3600), "How long the answer to a ping may take."
    )
    close_grace_s: float = setting(
        5.0, seconds(0.01, 60), "Time for a client to finish closing before it is cut off."
    )
    max_message_bytes: int = setting(
        256 * 1024, whole(65_536, 16 * 1024 * 1024), "Largest signaling message."
    )
    shutdown_timeout_s: float = setting(
        3.0, seconds(0.1, 600), "Time for open sockets and requests to end at shutdown."
    )
    max_connects_per_s: int = setting(
        1000,
        whole(1, 1_000_000),
        "Sockets that are let in a second; twice as many at once. Others are told to come again.",
    )
    tls_cert: str = setting(
        "", text, "File of the certificate chain, to serve https and wss. Read again when changed."
    )
    tls_key: str = setting("", text, "File of its private key.")
    replicas: int = setting(
        1,
        whole(1, 1000),
        "How many control planes serve this address. Above 1 they need redis_url.",
    )
    redis_url: str = setting(
        "",
        _redis_url,
        "Redis or Valkey that replicas share, e.g. rediss://user:password@redis.example.org:6379.",
        secret=True,
        is_harmless=lambda value: "@" not in value,
    )
    redis_url_file: str = setting("", text, "File that holds that address, instead.")
    redis_cluster: bool = setting(False, flag, "Whether it is a Redis Cluster.")
    redis_prefix: str = setting(
        "ph", _redis_prefix, "What names there begin with: one for each installation."
    )
    redis_lease_s: float = setting(
        15.0,
        seconds(0.3, 600),
        "How long a replica may be silent before others may take over its ids.",
    )
    drain_delay_s: float = setting(
        5.0,
        seconds(0, 600),
        "With Redis: time for balancers to notice that a replica is about to end.",
    )
    drain_spread_s: float = setting(
        20.0,
        seconds(0, 3600),
        "With Redis: time over which an ending replica sends its clients to others.",
    )
    log_level: str = setting(
        "info", choice("debug", "info", "warning", "error"), "Least severity that is logged."
    )
    log_format: str = setting(
        "auto", choice("auto", "json", "text"), "auto: text on a terminal, else JSON."
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        networks,
        "Addresses and ranges of proxies whose X-Real-IP and X-Forwarded-For are believed.",
    )
    api_tokens: tuple[str, ...] = setting(
        (),
        _words,
        "Tokens of programs, which show one as Authorization: Bearer in place of an origin.",
        secret=True,
    )
    api_tokens_file: str = setting("", text, "File that holds them, one a line, instead.")
    turn_secret: str = setting(
        "",
        text,
        "Shared secret of coturn (use-auth-secret).",
        alias="TURN_SECRET",
        secret=True,
    )
    turn_secret_file: str = setting(
        "",
        text,
        "File that holds the secret, instead; the newest on the first line. Read again when it "
        "changes.",
    )
    turn_secret_redis_url: str = setting(
        "",
        text,
        "Redis that holds the secret, where poolhouse turn rotate puts it: coturn's own, as in "
        "POOLHOUSE_COTURN_REDIS_URL.",
        secret=True,
    )
    turn_secret_redis_url_file: str = setting("", text, "File that holds that address, instead.")
    turn_realm: str = setting("", text, "Realm of the secrets in Redis: POOLHOUSE_COTURN_REALM.")
    turn_urls: tuple[str, ...] = setting(
        (), comma_list, "Relay addresses, e.g. turn:relay.example.org:3478.", alias="TURN_URLS"
    )
    turn_host: str = setting(
        "", text, "Host of the relay, when turn_urls is not given.", alias="TURN_HOST"
    )
    turn_key_id: str = setting(
        "", text, "Key of Cloudflare's relay, which then goes before coturn.", alias="TURN_KEY_ID"
    )
    turn_key_api_token: str = setting(
        "", text, "API token of that key.", alias="TURN_KEY_API_TOKEN", secret=True
    )
    turn_key_api_token_file: str = setting("", text, "File that holds the token, instead.")
    turn_key_api_url: str = setting(
        "https://rtc.live.cloudflare.com", _api_url, "Where that API is."
    )
    turn_ice_servers: str = setting(
        "", text, "JSON list of ICE servers to hand out when no other relay is set.", secret=True
    )
    turn_ice_servers_file: str = setting("", text, "File that holds the list, instead.")
    turn_ttl_s: int = setting(
        _DEFAULT_TURN_TTL_S,
        _turn_ttl,
        "Seconds that relay credentials live, held to 600 to 86400.",
        alias="TURN_TTL",
    )
    turn_rate: int = setting(
        _DEFAULT_TURN_RATE,
        _turn_rate,
        "Relay credentials a client address (IPv6: its /64) gets in a minute.",
        alias="TURN_RATE",
    )
    turn_allowed_origins: tuple[str, ...] = setting(
        (),
        comma_list,
        "Other origins that may ask for relay credentials; '*' stands inside one host label.",
        alias="TURN_ALLOWED_ORIGINS",
    )
    turn_require: str = setting(
        "none",
        choice("none", "peer", "token"),
        "What a caller must prove: nothing more than its origin, a live signaling registration "
        "(its peer id and token in the body), or an API token.",
    )
    turn_labels: bool = setting(
        False,
        flag,
        "Give every credential a label of its own, so that coturn can count quotas by it.",
    )
    turn_probe_every_s: float = setting(
        30.0,
        seconds(0, 3600),
        "How often relay hosts are asked whether they are there; those that are not are left "
        "out. 0: never.",
    )

    @classmethod
    def load(cls, environ: Mapping[str, str], **arguments: Any) -> Self:
        """Merge arguments (None: not given) over ``environ`` over defaults, and check all.

        Raises:
            SettingsError: a value, an unknown name or a secret given as an argument.
        """
        settings = cls(**parsing.load_values(cls, environ, _PREFIX, arguments))
        _check_together(settings)
        return settings

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
    def turn_secrets(self) -> tuple[str, ...]:
        """Secrets of coturn, newest first."""
        return tuple(line for line in self.turn_secret.splitlines() if line)


def _check_together(settings: Settings) -> None:
    if settings.replicas > 1 and not settings.redis_url:
        raise SettingsError(
            f"{settings.replicas} replicas would each keep rooms of their own: "
            "give them a store to share with POOLHOUSE_REDIS_URL, or run one."
        )
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError(
            "A certificate needs its key: give both POOLHOUSE_TLS_CERT and POOLHOUSE_TLS_KEY."
        )


def describe() -> list[Key]:
    """List every setting, for help texts and the reference page."""
    return parsing.describe(Settings, _PREFIX)
