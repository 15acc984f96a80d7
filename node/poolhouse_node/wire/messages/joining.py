"""Coming in, proving who one is, staying alive (joining; liveness, sections 1 and 6)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from poolhouse_node.wire.binarypack import pack
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.messages.base import (
    Flag,
    Gigabytes,
    Hex,
    Id,
    Message,
    Millis,
    Number,
    Secret,
    Version,
    sent_dict,
)

__all__ = [
    "Admit",
    "Auth",
    "AuthProof",
    "Bye",
    "Died",
    "Hello",
    "Leaving",
    "Lobby",
    "Member",
    "Mesh",
    "Ping",
    "Pledge",
    "Pong",
    "Roster",
    "relaxed_hello",
]

DeviceMeta = Annotated[dict[str, Any], Meta(max_length=64)]
"""What a device says about itself: untrusted, at most 64 entries.

In a hello, entries that could not be sent on in a roster or are longer than 4 KiB are left out, as
are those past 8 KiB in all: a roster of the most links that a host takes must fit one message.
"""

_META_BYTES = 8192
_META_ENTRY_BYTES = 4096
_META_DEPTH = 8


class Died(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A page tells that it was killed (liveness, section 9)."""

    during: Annotated[str, Meta(max_length=256)] = ""
    ago: Number | None = None
    """Seconds."""
    at: Millis | None = None
    loading: Flag = False


class Hello(Message, frozen=True, kw_only=True, tag="hello", rename={"pass_": "pass"}):
    """The first message each side sends on a main connection (joining, section 2).

    A field that is not what it should be counts as missing: an odd hello is a device of another
    kind, not a broken link.
    """

    CUT: ClassVar = {"name": 400}

    name: str | Number | None = None
    """Not cleaned yet; the room does that, and takes numbers as names."""
    meta: DeviceMeta = msgspec.field(default_factory=sent_dict)
    v: int = 1
    """Protocol version: 1 when missing, -1 when not a whole number in 0..999999."""
    auth: Version | None = None
    """1 or more: this device proves its links."""
    died: Died | None = None
    join: Flag = False
    """It can wait in the lobby."""
    jc: Hex | None = None
    """Commitment to the joiner's nonce."""
    kc: Flag = False
    """It will prove an invite key."""
    pid: Hex | None = None
    """Id of the pass that it will prove."""
    back: Flag = False
    """It is coming back."""
    key: Secret | None = None
    """Raw invite key of a device from before the proofs; never sent."""
    pass_: Secret | None = None
    """Raw pass of such a device; never sent."""
    gate: Flag = False
    """Host: it holds new devices until it lets them in."""
    ask: Flag | None = None
    """Host: it asks its person before letting one in."""


def relaxed_hello(raw: dict[str, Any]) -> dict[str, Any]:
    """``raw`` without the fields of a hello that could not be read (see :class:`Hello`)."""
    fields = {name: value for name, value in raw.items() if _fits(name, value)}
    for name in _NUMBERS & fields.keys():
        fields[name] = _whole_number(fields[name])
    if "meta" in fields:
        fields["meta"] = _what_can_be_sent_on(fields["meta"])
    return fields


def _what_can_be_sent_on(meta: dict[str, Any]) -> dict[str, Any]:
    """One odd guest must not keep the host from packing its roster."""
    kept, left_bytes = {}, _META_BYTES
    for name, value in meta.items():
        try:
            size_bytes = len(pack([name, value], max_depth=_META_DEPTH))
        except WireError:
            continue
        if size_bytes <= min(left_bytes, _META_ENTRY_BYTES):
            kept[name] = value
            left_bytes -= size_bytes
    return kept


def _fits(name: str, value: object) -> bool:
    hint = _HELLO_FIELDS.get(name)
    if value is None or hint is None:
        return name == "t"
    if name in _NUMBERS:
        return True
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True


def _whole_number(value: object) -> int:
    """A number, or numeric text as JavaScript would compare it, in 0..999999; else -1."""
    try:
        number = float(value) if isinstance(value, int | float | str) else -1.0
    except (ValueError, OverflowError):
        return -1
    return int(number) if 0 <= number <= 999_999 and number.is_integer() else -1


_NUMBERS = {"v", "auth"}
_HELLO_FIELDS = {field.encode_name: field.type for field in msgspec.structs.fields(Hello)}


class Auth(Message, frozen=True, kw_only=True, tag="auth"):
    """The host's challenge to a held device."""

    v: Version | None = None
    hn: Secret
    """The host's nonce."""


class AuthProof(Message, frozen=True, kw_only=True, tag="auth-proof"):
    """The device's answer, taken once."""

    jn: Secret
    """The nonce that the hello committed to."""
    kp: Hex | None = None
    """Proof of the invite key."""
    pp: Hex | None = None
    """Proof of the pass."""


class Admit(Message, frozen=True, kw_only=True, tag="admit", rename={"pass_": "pass"}):
    """The host lets a device in (joining, section 3)."""

    pass_: Secret | None = None
    """Brings the device back later."""
    via: Secret | None = None
    """``key`` or ``pass``: what the device proved. Other text is for the room to judge."""
    hp: Hex | None = None
    """The host's proof back."""
    mk: Secret | None = None
    """The room's mesh key."""


class Lobby(Message, frozen=True, kw_only=True, tag="lobby"):
    """The host's person is being asked."""


class Bye(Message, frozen=True, kw_only=True, tag="bye"):
    """Refused, or the room is over for this device. The reason is for a person."""

    CUT: ClassVar = {"reason": 300}

    reason: str = ""
    closed: Flag = False
    """The host closed the room for good: do not knock."""


class Leaving(Message, frozen=True, kw_only=True, tag="leaving"):
    """The sender is going: close this link now."""


class Mesh(Message, frozen=True, kw_only=True, tag="mesh"):
    """Proof of the room's mesh key on a link or a stripe (joining, section 6)."""

    v: Version | None = None
    p: Hex | None = None
    none: Flag = False
    """It has no mesh key, or no fingerprints to bind it to."""


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device of the roster."""

    id: Id
    name: Annotated[str, Meta(max_length=400)] = ""
    meta: DeviceMeta = msgspec.field(default_factory=sent_dict)
    a: Flag = False
    """It proves its links; believe it only from the room's creator."""


class Roster(Message, frozen=True, kw_only=True, tag="roster"):
    """Who is in, host first (joining, section 7). At most 1024 devices."""

    members: Annotated[list[Member], Meta(max_length=1024)]


class Pledge(Message, frozen=True, kw_only=True, tag="pledge"):
    """A device changed how much it lends."""

    gb: Gigabytes


class Ping(Message, frozen=True, kw_only=True, tag="ping"):
    """Asked on every link every 2.5 s. ``ts`` is the sender's own clock."""

    ts: Millis | None = None


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    """The answer, with the same ``ts``."""

    ts: Millis | None = None
