"""BinaryPack, the byte format of PeerJS messages (wire, section 3).

It resembles MessagePack, but text and bytes have type bytes of their own. ``None`` stands for both
null and undefined. Two rules of the encoder exist for JavaScript peers, whose decoder has no zero
among its floats: a number without a fraction always travels as an integer, and float32 is never
written.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from poolhouse_node.wire.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["MAX_DEPTH", "MAX_VALUES", "pack", "unpack"]

MAX_DEPTH = 64
"""Arrays and maps inside each other, both ways."""

MAX_VALUES = 1 << 18
"""Values and keys in one received message. Without it a message of one-byte empty maps would take
seventy times its own size once decoded."""

_BITS_16 = struct.Struct(">H")
_BITS_32 = struct.Struct(">I")
_TYPED_32 = struct.Struct(">BI")
_TYPED_16 = struct.Struct(">BH")
_TYPED_DOUBLE = struct.Struct(">Bd")
_NAN = b"\xcb" + bytes(8)

# The order in which the encoder tries the forms of an integer is part of the format.
_INTEGERS: tuple[tuple[int, int, struct.Struct, int], ...] = (
    (0, 0xFF, struct.Struct(">BB"), 0xCC),
    (-0x80, 0, struct.Struct(">Bb"), 0xD0),
    (0, 0xFFFF, struct.Struct(">BH"), 0xCD),
    (-0x8000, 0, struct.Struct(">Bh"), 0xD1),
    (0, 0xFFFF_FFFF, struct.Struct(">BI"), 0xCE),
    (-0x8000_0000, 0, struct.Struct(">Bi"), 0xD2),
    (-(1 << 63), (1 << 63) - 1, struct.Struct(">Bq"), 0xD3),
    (0, (1 << 64) - 1, struct.Struct(">BQ"), 0xCF),
)


def pack(value: object, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Encode ``value``.

    Takes ``None``, booleans, numbers, text, byte buffers, lists, tuples and maps with text keys;
    numpy scalars as the number they hold, numpy arrays as their raw memory (little-endian, row
    by row). Raises :class:`WireError` for anything else, for infinities, for integers outside
    -2^63..2^64-1, and past ``max_depth``.
    """
    out = bytearray()
    _pack(value, out, max_depth)
    return bytes(out)


def _pack(value: object, out: bytearray, depth: int) -> None:
    if value is None:
        out.append(0xC0)
    elif isinstance(value, bool | np.bool_):
        out.append(0xC3 if value else 0xC2)
    elif isinstance(value, str):
        _pack_text(value, out)
    elif isinstance(value, int | np.integer):
        _pack_integer(int(value), out)
    elif isinstance(value, float | np.floating):
        _pack_float(float(value), out)
    elif isinstance(value, dict):
        _pack_map(value, out, depth)
    elif isinstance(value, list | tuple):
        _pack_array(value, out, depth)
    else:
        _pack_bytes(_raw_memory(value), out)


def _pack_integer(value: int, out: bytearray) -> None:
    if -32 <= value <= 127:
        out.append(value & 0xFF)
        return
    for low, high, form, type_byte in _INTEGERS:
        if low <= value <= high:
            out += form.pack(type_byte, value)
            return
    raise WireError("an integer outside 64 bits cannot be sent")


def _pack_float(value: float, out: bytearray) -> None:
    if value.is_integer():
        _pack_integer(int(value), out)
    elif math.isnan(value):
        out += _NAN
    elif math.isinf(value):
        raise WireError("infinity cannot be sent")
    else:
        out += _TYPED_DOUBLE.pack(0xCB, value)


def _pack_text(value: str, out: bytearray) -> None:
    try:
        data = value.encode()
    except UnicodeEncodeError:  # halves of a surrogate pair: joined, or replaced when alone
        data = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    _pack_length(len(data), 0xB0, 0xD8, out)
    out += data


def _pack_bytes(data: bytes | memoryview, out: bytearray) -> None:
    _pack_length(len(data), 0xA0, 0xDA, out)
    out += data


def _pack_array(items: Sequence[object], out: bytearray, depth: int) -> None:
    _check_depth(depth)
    _pack_length(len(items), 0x90, 0xDC, out)
    for item in items:
        _pack(item, out, depth - 1)


def _pack_map(entries: Mapping[object, object], out: bytearray, depth: int) -> None:
    _check_depth(depth)
    _pack_length(len(entries), 0x80, 0xDE, out)
    for key, value in entries.items():
        if not isinstance(key, str):
            raise WireError("the keys of a map must be text")
        _pack_text(key, out)
        _pack(value, out, depth - 1)


def _pack_length(length: int, short: int, long: int, out: bytearray) -> None:
    """Write a length in the form that text, bytes, arrays and maps share.

    ``short`` is the type byte with the length in its low bits, ``long`` the one with 16 bits
    after it; the one after ``long`` has 32.
    """
    if length <= 15:
        out.append(short | length)
    elif length <= 0xFFFF:
        out += _TYPED_16.pack(long, length)
    elif length <= 0xFFFF_FFFF:
        out += _TYPED_32.pack(long + 1, length)
    else:
        raise WireError("longer than a length of 32 bits can say")


def _raw_memory(value: object) -> bytes | memoryview:
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise WireError("an array of objects has no raw memory")
        return value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, memoryview):
        return value.cast("B") if value.c_contiguous else value.tobytes()
    raise WireError(f"a {type(value).__name__} cannot be sent")


def _check_depth(depth: int) -> None:
    if depth <= 0:
        raise WireError("nested too deep")


def unpack(data: bytes | bytearray | memoryview) -> Any:
    """Decode the first value of ``data``; bytes after it are ignored.

    Byte strings come back as ``bytes`` of their own, so that the message may be let go. Raises
    :class:`WireError` for lengths and items past the end, keys and texts that are not text,
    and past :data:`MAX_DEPTH` or :data:`MAX_VALUES`. Memory stays within about 100 bytes a value
    above the size of ``data``.
    """
    return _Unpacker(data).value(MAX_DEPTH)


class _Unpacker:
    """One pass over one message."""

    __slots__ = ("_at", "_data", "_end", "_values")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = memoryview(data).cast("B")
        self._end = len(self._data)
        self._at = 0
        self._values = 0

    def value(self, depth: int) -> Any:
        kind = self._take(1)[0]
        if kind <= 0x7F:
            return kind
        if kind >= 0xE0:
            return kind - 256
        if kind >= 0xC0:
            return _READERS[kind](self, depth)
        return _SHORT_READERS[kind >> 4](self, kind & 0x0F, depth)

    def _take(self, size: int) -> memoryview:
        end = self._at + size
        if end > self._end:
            raise WireError("the message ends before its value does")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def text(self, length: int, _depth: int) -> str:
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise WireError("text that is not UTF-8") from error

    def raw(self, length: int, _depth: int) -> bytes:
        return bytes(self._take(length))

    def array(self, count: int, depth: int) -> list[Any]:
        self._open(count, count, depth)
        return [self.value(depth - 1) for _ in range(count)]

    def map(self, count: int, depth: int) -> dict[str, Any]:
        self._open(count, 2 * count, depth)
        entries: dict[str, Any] = {}
        for _ in range(count):
            key = self.value(depth - 1)
            if not isinstance(key, str):
                raise WireError("the keys of a map must be text")
            entries[key] = self.value(depth - 1)
        return entries

    def _open(self, count: int, smallest_size: int, depth: int) -> None:
        """Refuse a count before anything is made for it: a value takes one byte at least."""
        _check_depth(depth)
        self._values += count
        if smallest_size > self._end - self._at:
            raise WireError("the message ends before its items do")
        if self._values > MAX_VALUES:
            raise WireError(f"more than {MAX_VALUES} values in one message")


_SHORT_READERS: dict[int, Callable[[_Unpacker, int, int], Any]] = {
    0x8: _Unpacker.map,
    0x9: _Unpacker.array,
    0xA: _Unpacker.raw,
    0xB: _Unpacker.text,
}


def _constant(value: bool | None) -> Callable[[_Unpacker, int], Any]:
    return lambda _unpacker, _depth: value


def _number(form: str) -> Callable[[_Unpacker, int], Any]:
    compiled = struct.Struct(form)
    return lambda unpacker, _depth: unpacker.number(compiled)


def _sized(
    read: Callable[[_Unpacker, int, int], Any], form: struct.Struct
) -> Callable[[_Unpacker, int], Any]:
    return lambda unpacker, depth: read(unpacker, unpacker.number(form), depth)


def _unused(_unpacker: _Unpacker, _depth: int) -> Any:
    raise WireError("a type byte that the format does not have")


_READERS: dict[int, Callable[[_Unpacker, int], Any]] = {
    **dict.fromkeys(range(0xC0, 0xE0), _unused),
    **dict.fromkeys((0xC0, 0xC1, 0xD4, 0xD5, 0xD6, 0xD7), _constant(None)),
    0xC2: _constant(False),
    0xC3: _constant(True),
    0xCA: _number(">f"),
    0xCB: _number(">d"),
    0xCC: _number(">B"),
    0xCD: _number(">H"),
    0xCE: _number(">I"),
    0xCF: _number(">Q"),
    0xD0: _number(">b"),
    0xD1: _number(">h"),
    0xD2: _number(">i"),
    0xD3: _number(">q"),
    0xD8: _sized(_Unpacker.text, _BITS_16),
    0xD9: _sized(_Unpacker.text, _BITS_32),
    0xDA: _sized(_Unpacker.raw, _BITS_16),
    0xDB: _sized(_Unpacker.raw, _BITS_32),
    0xDC: _sized(_Unpacker.array, _BITS_16),
    0xDD: _sized(_Unpacker.array, _BITS_32),
    0xDE: _sized(_Unpacker.map, _BITS_16),
    0xDF: _sized(_Unpacker.map, _BITS_32),
}
