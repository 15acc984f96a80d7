"""What the typed messages share: the base class and the types of their fields.

Three rules bound what a peer can make a receiver keep. Text for people is cut (:attr:`Message.CUT`)
rather than refused, because an error that is too long is still an error. Names of things (ids,
keys, URLs) that are too long make the message malformed, as do lists with too many entries.
Everything else is bounded by the largest message, 4 MiB (``chunks.MAX_MESSAGE_BYTES``).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, structs

__all__ = [
    "Bytes",
    "Flag",
    "Gigabytes",
    "Hex",
    "Id",
    "Layer",
    "Message",
    "Millis",
    "Number",
    "Position",
    "Secret",
    "Short",
    "Slot",
    "Url",
    "Version",
    "sent_dict",
    "sent_list",
]

_Exact = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
"""A whole number that JavaScript holds exactly, and that can be sent on."""
Flag = bool | _Exact
"""A yes or no. JavaScript peers send 1, 0, true or false; ask for its truth, send 1."""
Version = _Exact
"""A protocol version, as a peer says it."""

Id = Annotated[str, Meta(max_length=128)]
"""A peer id, an ask id, a catalogue key."""
Short = Annotated[str, Meta(max_length=256)]
Url = Annotated[str, Meta(max_length=2048)]
Hex = Annotated[str, Meta(max_length=64)]
"""A digest or a proof. Its form is checked where it is compared."""
Secret = Annotated[str, Meta(max_length=64)]
"""A nonce, key or pass as base64url text. Its form is checked by its user."""

Bytes = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
"""A size or an offset in a file: exact in JavaScript."""
Position = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
"""A place in the context, or a number of tokens."""
Layer = Annotated[int, Meta(ge=0, le=100_000)]
Slot = Annotated[int, Meta(ge=0, le=0xFFFF)]
Gigabytes = Annotated[float, Meta(ge=0, le=1 << 20)]
"""2^30 bytes."""
Number = Annotated[float, Meta(ge=-(1 << 53), le=1 << 53)]
"""A number that can be sent on: finite, and within 64 bits when it is whole."""
Millis = Number


def sent_dict() -> dict[str, Any]:
    """Default of a map that travels also when it is empty: peers read entries of it unasked."""
    return {}


def sent_list() -> list[Any]:
    """Default of a list that travels also when it is empty."""
    return []


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag=""):
    """A message on the data channel (wire, section 2).

    A field that is left at its default does not travel. Fields of this side's choosing are not
    checked when a message is made, only when one is received.
    """

    CUT: ClassVar[dict[str, int]] = {}
    """Text fields that are cut, when received and when made, and to how many characters."""

    def __post_init__(self) -> None:
        for name, length in self.CUT.items():
            value = getattr(self, name)
            if isinstance(value, str) and len(value) > length:
                structs.force_setattr(self, name, value[:length])
