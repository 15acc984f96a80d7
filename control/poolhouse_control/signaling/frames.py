"""Frames of the WebSocket protocol (RFC 6455, section 5.2), as far as the short path needs them."""

from __future__ import annotations

from typing import Final, NamedTuple

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without the C extension
    from websockets.utils import apply_mask

__all__ = ["CLOSE", "WHOLE_TEXT", "Extent", "is_fragment", "measure", "text_frame", "unmasked"]

WHOLE_TEXT: Final = 0x81
"""First byte of a text message in one frame."""
CLOSE: Final = 0x88
_FIN: Final = 0x80
_CONTROL: Final = 0x08
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_LENGTH_16, _LENGTH_64 = 126, 127


class Extent(NamedTuple):
    """Where a client's frame lies. A frame that is not masked has a negative size."""

    start: int
    """Of its payload; the mask stands before it."""
    size: int


def measure(data: bytes, at: int) -> Extent | None:
    """Measure the frame that begins ``at``; None while its header is not whole."""
    left = len(data) - at
    if left < 2:
        return None
    second = data[at + 1]
    if second < _MASKED:
        return Extent(at, -1)
    size = second - _MASKED
    if size < _LENGTH_16:
        start = at + 2 + _MASK_BYTES
        return Extent(start, size) if left >= 2 + _MASK_BYTES else None
    length_end = at + (4 if size == _LENGTH_16 else 10)
    start = length_end + _MASK_BYTES
    if len(data) < start:
        return None
    return Extent(start, int.from_bytes(data[at + 2 : length_end]))


def unmasked(data: bytes, extent: Extent) -> bytes:
    """The payload as the client wrote it."""
    start, size = extent
    return apply_mask(data[start : start + size], data[start - _MASK_BYTES : start])


def is_fragment(first: int, *, in_message: bool) -> bool:
    """Tell whether more of a message has to come after the frame with this first byte."""
    return in_message if first & _CONTROL else not first & _FIN


def text_frame(payload: bytes) -> bytes:
    """One whole frame, unmasked, as servers send them."""
    size = len(payload)
    if size < _LENGTH_16:
        return bytes((WHOLE_TEXT, size)) + payload
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2) + payload
    return b"\x81\x7f" + size.to_bytes(8) + payload
