"""Room codes, invite keys and the links that carry them (joining, section 1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ALPHABET",
    "Invite",
    "code_from_page",
    "format_code",
    "host_peer_id",
    "invite_link",
    "is_host_peer_id",
    "key_fragment",
    "key_from_fragment",
    "make_code",
    "parse_code",
    "parse_invite",
    "valid_secret",
]

ALPHABET = "ABCDEFGHJKMNPQRSTVWXYZ23456789"
"""Thirty characters that people do not mistake for each other."""

_HOST_ID_PREFIX = "pooled-room-"
_FAIR_BYTES = (
    240  # the largest multiple of 30 in a byte: above it the first letters would be favoured
)
_IGNORED = re.compile(r"[\s\-_.]+")
_CODE = re.compile(rf"(?:[{ALPHABET}]{{4}}|[{ALPHABET}]{{6}})\Z")
_SECRET = re.compile(r"[A-Za-z0-9_-]{22,64}\Z")
_ROOM_PATH = re.compile(r"/r/([^/]+)/?\Z")
_LONGEST_LINK = 2048


def parse_code(text: str | None) -> str:
    """The code a person typed, in upper case and without separators; ``""`` when it is none."""
    if not text or len(text) > _LONGEST_LINK:
        return ""
    code = _IGNORED.sub("", text.upper())
    return code if _CODE.match(code) else ""


def format_code(code: str) -> str:
    """A code as it is shown: six characters in two groups, anything else as it is."""
    return f"{code[:3]}-{code[3:]}" if len(code) == 6 else code


def make_code(draw: Callable[[int], bytes], length: int = 6) -> str:
    """A new code of random bytes; ``draw(n)`` gives ``n`` of them (``secrets.token_bytes``)."""
    letters = ""
    while len(letters) < length:
        letters += "".join(ALPHABET[b % 30] for b in draw(2 * length) if b < _FAIR_BYTES)
    return letters[:length]


def host_peer_id(code: str) -> str:
    """The id under which the host of a room is registered at the signaling server."""
    return _HOST_ID_PREFIX + code


def is_host_peer_id(peer_id: str) -> bool:
    """Is this the id of a room's host?"""
    return peer_id.startswith(_HOST_ID_PREFIX)


def valid_secret(text: object) -> bool:
    """Does this look like an invite key or a pass: 22 to 64 characters of base64url?"""
    return isinstance(text, str) and _SECRET.match(text) is not None


def key_from_fragment(fragment: str) -> str:
    """The first valid invite key among the parts of a link's fragment, or ``""``."""
    for part in fragment.removeprefix("#").split("&"):
        name, _, value = part.partition("=")
        key = value.split("=")[0]  # base64 padding that someone added
        if name == "k" and valid_secret(key):
            return key
    return ""


def key_fragment(key: str) -> str:
    """The fragment that carries an invite key, with its ``#``; ``""`` for a key that is none."""
    return f"#k={key}" if valid_secret(key) else ""


def invite_link(site: str, code: str, key: str = "", *, signal: str = "") -> str:
    """The link that a host shows, for a site that serves ``/r/<code>``.

    ``site`` is the address of the page, such as ``https://pool.example``. ``signal`` names the
    signaling server when the page would not try the right one by itself.
    """
    query = f"?signal={quote(signal, safe=':/')}" if signal else ""
    return f"{site.rstrip('/')}/r/{code}{query}{key_fragment(key)}"


def code_from_page(path: str, query: str, fragment: str) -> str:
    """The code in the address of a room's page: ``/r/<code>``, ``?code=`` or the fragment."""
    in_path = _ROOM_PATH.search(path)
    return (
        parse_code(in_path[1] if in_path else "")
        or parse_code(_query_value(query.removeprefix("?"), "code"))
        or parse_code(fragment.removeprefix("#"))
    )


@dataclass(frozen=True, slots=True)
class Invite:
    """What a person gave to join a room."""

    code: str
    key: str = ""
    """The invite key, or ``""`` when only the code is known."""
    signal: str = ""
    """The signaling server that the link names, unchecked (``servers.parse_server``)."""


def parse_invite(text: str) -> Invite | None:
    """Read a bare code or a room's link; ``None`` when it is neither.

    Stricter than the public bridge about the letters of a code (joining, section 1): a typing
    error is told at once instead of by a signaling server that knows no such room.
    """
    text = text.strip()
    if code := parse_code(text):
        return Invite(code)
    link = _split(text)
    if link is None:
        return None
    last_part = link.path.rstrip("/").rpartition("/")[2]
    code = (
        parse_code(_query_value(link.query, "code"))
        or parse_code(last_part)
        or parse_code(link.fragment)
    )
    if not code:
        return None
    return Invite(code, key_from_fragment(link.fragment), _query_value(link.query, "signal"))


def _split(text: str) -> SplitResult | None:
    if len(text) > _LONGEST_LINK:
        return None
    try:
        return urlsplit(text)
    except ValueError:  # brackets that are no IPv6 address
        return None


def _query_value(query: str, name: str) -> str:
    try:
        values = parse_qs(query, max_num_fields=64)
    except ValueError:  # too many fields
        return ""
    return values.get(name, [""])[0]
