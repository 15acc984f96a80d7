"""What ``POST /api/turn`` answers, cleaned before anything believes it (relay, 3). No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from poolhouse_node.room.relays import credential_life_s
from poolhouse_node.rtc.peer import TurnServer

__all__ = [
    "MAX_ANSWER_BYTES",
    "IceEntry",
    "RelayGrant",
    "clean_servers",
    "is_relay_url",
    "is_stun_url",
    "read_grant",
    "split_servers",
]

MAX_ANSWER_BYTES: Final = 65_536
_MAX_ENTRIES: Final = 16
_MAX_URLS: Final = 16
_MAX_TEXT_CHARS: Final = 1024

_ADDRESS = r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
_RELAY = re.compile(rf"turns?:{_ADDRESS}(?:\?transport=(?:udp|tcp))?", re.IGNORECASE)
_STUN = re.compile(rf"stuns?:{_ADDRESS}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class IceEntry:
    """One entry of a list of ICE servers."""

    urls: tuple[str, ...]
    username: str | None = None
    credential: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RelayGrant:
    """Servers that a control plane lends, with at least one relay among them."""

    stun: tuple[str, ...]
    turn: tuple[TurnServer, ...]
    life_s: float


def is_relay_url(url: str) -> bool:
    """Is this a ``turn:`` or ``turns:`` URL that every engine takes?"""
    return _RELAY.fullmatch(url) is not None


def is_stun_url(url: str) -> bool:
    """Is this a ``stun:`` URL? ``stuns:`` is one too, but only where a person writes it."""
    return _STUN.fullmatch(url) is not None


def clean_servers(value: object) -> list[IceEntry]:
    """The entries that can be used; none at all when no relay is among them."""
    entries = value[:_MAX_ENTRIES] if isinstance(value, list) else []
    kept = [entry for entry in map(_clean_entry, entries) if entry is not None]
    has_relay = any(is_relay_url(url) for entry in kept for url in entry.urls)
    return kept if has_relay else []


def _clean_entry(value: object) -> IceEntry | None:
    if not isinstance(value, dict):
        return None
    said = value.get("urls")
    texts = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    urls = tuple(url for url in texts[:_MAX_URLS] if _is_answer_url(url))
    if not urls:
        return None
    if not any(is_relay_url(url) for url in urls):
        return IceEntry(urls)
    username, credential = value.get("username"), value.get("credential")
    if not (_is_secret(username) and _is_secret(credential)):
        return None
    return IceEntry(urls, username, credential)


def _is_answer_url(url: object) -> bool:
    if not isinstance(url, str) or len(url) > _MAX_TEXT_CHARS:
        return False
    return is_relay_url(url) or (is_stun_url(url) and not url.lower().startswith("stuns:"))


def _is_secret(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_TEXT_CHARS


def split_servers(entries: list[IceEntry]) -> tuple[tuple[str, ...], tuple[TurnServer, ...]]:
    """STUN addresses and relays of the entries, each once, in their order."""
    stun: dict[str, None] = {}
    turn: dict[TurnServer, None] = {}
    for entry in entries:
        for url in entry.urls:
            if is_relay_url(url):
                turn[TurnServer(url, entry.username or "", entry.credential or "")] = None
            else:
                stun[url] = None
    return tuple(stun), tuple(turn)


def read_grant(body: bytes) -> RelayGrant | None:
    """The body of a 200, or None when it holds nothing that can be used."""
    try:
        answer: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    stun, turn = split_servers(clean_servers(answer.get("iceServers")))
    return RelayGrant(stun, turn, credential_life_s(answer.get("ttl"))) if turn else None
