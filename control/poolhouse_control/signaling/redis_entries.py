"""A waiting message as a queue holds it: name (16 bytes), size (4 bytes), parcel.

``scripts/expire.lua`` reads name and size.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from poolhouse_control.signaling.redis_mail import Sent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from poolhouse_control.signaling.presence import Parcel

__all__ = ["entry_name", "pack_entry", "unpack_entries"]

_NAME_BYTES: Final = 16
_SIZE_BYTES: Final = 4

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Sent).decode


def entry_name(replica: str, ticket: int) -> bytes:
    """Name a waiting parcel, apart from those of every other replica."""
    return bytes.fromhex(replica) + ticket.to_bytes(8)


def pack_entry(name: bytes, parcel: Parcel) -> bytes:
    """Write a parcel for a queue."""
    return name + parcel.size_bytes.to_bytes(_SIZE_BYTES) + _encode(Sent.of(parcel))


def unpack_entries(entries: Iterable[bytes]) -> list[Parcel]:
    """Read what a queue held; what is unreadable is left out."""
    found: list[Parcel] = []
    for entry in entries:
        with contextlib.suppress(msgspec.DecodeError):
            found.append(_decode(entry[_NAME_BYTES + _SIZE_BYTES :]).parcel)
    return found
