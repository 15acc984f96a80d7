"""The header of a GGUF file: bytes in, metadata and tensor places out.

Pure: works on any buffer that starts at byte 0 of the file, whole or cut short (a shard that
loads by range reads just a prefix: dealing, section 8). Nothing is allocated by a count that the
buffer could not hold, and large arrays (the tokenizer's) are decoded when asked for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.weights.errors import GgufError
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_ALIGNMENT", "GgufHeader", "LazyArray", "Scalar", "TensorInfo", "parse_header"]

DEFAULT_ALIGNMENT = 32
MAGIC = b"GGUF"
MAX_ALIGNMENT = 1 << 16
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 1 << 16
MAX_TENSORS = 1 << 20
MAX_METADATA = 1 << 16
MAX_ARRAY = 1 << 24
MAX_TENSOR_VALUES = 1 << 40

type Scalar = int | float | bool | str

_STRING, _ARRAY = 8, 9
_FORMATS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U64 = struct.Struct("<Q")


class ByteSource(Protocol):
    """What is read from: ``bytes``, a memoryview or an mmap."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> bytes | memoryview: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. ``shape`` is [rows, columns]: the file's list, reversed."""

    name: str
    type: GgmlType
    shape: tuple[int, ...]
    offset: int
    """Absolute, in bytes from the start of the file."""
    size_bytes: int
    part: int = 0
    """Which file of a model in several files, from 0."""


@dataclass(frozen=True)
class LazyArray:
    """An array of the metadata, decoded at first use of :attr:`values`.

    It reads the file it came from: after that is closed, only values already decoded remain.
    """

    source: ByteSource
    start: int
    count: int
    element_type: int

    def __len__(self) -> int:
        return self.count

    @cached_property
    def values(self) -> tuple[Scalar, ...]:
        """All elements. Raises :class:`GgufError` when the file was closed before."""
        try:
            if self.element_type == _STRING:
                reader = _Reader(self.source, self.start)
                return tuple(reader.text() for _ in range(self.count))
            form = _FORMATS[self.element_type]
            end = self.start + self.count * form.size
            return tuple(value for (value,) in form.iter_unpack(self.source[self.start : end]))
        except ValueError as error:
            raise GgufError("The GGUF file was closed before this array was read.") from error


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Everything before the tensor data."""

    version: int
    metadata: Mapping[str, Scalar | LazyArray]
    tensors: Mapping[str, TensorInfo]
    data_start: int
    alignment: int


def parse_header(source: ByteSource, *, file_size: int | None = None) -> GgufHeader:
    """Read a header; ``file_size`` (if known) also checks that every tensor ends inside.

    Raises :class:`GgufError`, with ``truncated`` set when ``source`` ends inside the header.
    """
    reader = _Reader(source, 0)
    version, tensor_count, value_count = _preamble(reader)
    metadata = _metadata(reader, value_count)
    alignment = _alignment(metadata)
    places = [_tensor_place(reader) for _ in range(tensor_count)]
    data_start = -(-reader.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for place in places:
        info = _checked(place, data_start, alignment, file_size)
        if info.name in tensors:
            raise GgufError(f"The GGUF file lists the tensor {info.name!r} twice.")
        tensors[info.name] = info
    return GgufHeader(version, metadata, tensors, data_start, alignment)


def _preamble(reader: _Reader) -> tuple[int, int, int]:
    if reader.take(4) != MAGIC:
        raise GgufError("This is not a GGUF file: it does not begin with GGUF.")
    version = reader.u32()
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        reason = "is big-endian" if swapped in (2, 3) else f"has version {version}"
        raise GgufError(f"The GGUF file {reason}; little-endian versions 2 and 3 can be read.")
    tensor_count, value_count = reader.u64(), reader.u64()
    # The smallest entries: name length + dimension count + type + offset; key length + type + u8.
    reader.expect_room(tensor_count, 24, MAX_TENSORS, "tensors")
    reader.expect_room(value_count, 13, MAX_METADATA, "metadata values")
    return version, tensor_count, value_count


def _metadata(reader: _Reader, count: int) -> dict[str, Scalar | LazyArray]:
    metadata: dict[str, Scalar | LazyArray] = {}
    for _ in range(count):
        key = reader.name("a metadata key")
        if key in metadata:
            raise GgufError(f"The GGUF file has the metadata key {key!r} twice.")
        metadata[key] = _value(reader, key)
    return metadata


def _value(reader: _Reader, key: str) -> Scalar | LazyArray:
    kind = reader.u32()
    if kind == _STRING:
        return reader.text()
    if kind == _ARRAY:
        return _array(reader, key)
    return reader.scalar(_format(kind, key))


def _array(reader: _Reader, key: str) -> LazyArray:
    element_type, count = reader.u32(), reader.u64()
    start = reader.position
    if element_type == _STRING:
        reader.expect_room(count, 8, MAX_ARRAY, f"strings in {key}")
        reader.skip_strings(count)
    else:
        size = _format(element_type, key).size
        reader.expect_room(count, size, MAX_ARRAY, f"values in {key}")
        reader.position += count * size
    return LazyArray(reader.source, start, count, element_type)


def _format(kind: int, key: str) -> struct.Struct:
    form = _FORMATS.get(kind)
    if form is None:
        what = "arrays of arrays" if kind == _ARRAY else f"values of type {kind}"
        raise GgufError(f"The GGUF metadata {key!r} holds {what}, which cannot be read.")
    return form


def _alignment(metadata: Mapping[str, Scalar | LazyArray]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if (
        not isinstance(alignment, int)
        or not 0 < alignment <= MAX_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        raise GgufError(f"The GGUF file has an impossible alignment: {alignment!r}.")
    return alignment


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    dimensions: tuple[int, ...]
    type_number: int
    relative_offset: int


def _tensor_place(reader: _Reader) -> _Place:
    name = reader.name("a tensor name")
    count = reader.u32()
    if not 1 <= count <= MAX_DIMENSIONS:
        raise GgufError(f"The tensor {name!r} has {count} dimensions; 1 to 4 are possible.")
    dimensions = tuple(reader.u64() for _ in range(count))
    return _Place(name, dimensions, reader.u32(), reader.u64())


def _checked(place: _Place, data_start: int, alignment: int, file_size: int | None) -> TensorInfo:
    name = place.name
    try:
        kind = GgmlType(place.type_number)
    except ValueError:
        sentence = f"The tensor {name!r} has type {place.type_number}, which is not known here."
        raise GgufError(sentence) from None
    size = _size_bytes(place, kind)
    if place.relative_offset % alignment:
        raise GgufError(f"The tensor {name!r} is not aligned to {alignment} bytes.")
    offset = data_start + place.relative_offset
    if file_size is not None and offset + size > file_size:
        raise GgufError(
            f"The GGUF file is cut short: the tensor {name!r} ends at byte {offset + size:,}, "
            f"the file at {file_size:,}.",
            truncated=True,
        )
    return TensorInfo(name, kind, place.dimensions[::-1], offset, size)


def _size_bytes(place: _Place, kind: GgmlType) -> int:
    block = BLOCKS[kind]
    values = prod(place.dimensions)
    if not 0 < values <= MAX_TENSOR_VALUES:
        raise GgufError(f"The tensor {place.name!r} has an absurd shape: {place.dimensions}.")
    if place.dimensions[0] % block.values:
        raise GgufError(
            f"The rows of tensor {place.name!r} hold {place.dimensions[0]} values, "
            f"which is not a multiple of {block.values} as {kind.name} needs."
        )
    return values // block.values * block.size_bytes


class _Reader:
    """A position in the buffer; every step is checked against the buffer's end."""

    __slots__ = ("_end", "position", "source")

    def __init__(self, source: ByteSource, position: int) -> None:
        self.source = source
        self.position = position
        self._end = len(source)

    def take(self, count: int) -> bytes:
        start, end = self.position, self.position + count
        if end > self._end:
            raise self._cut_short()
        self.position = end
        return bytes(self.source[start:end])

    def scalar(self, form: struct.Struct) -> Scalar:
        (value,) = form.unpack(self.take(form.size))
        return value  # type: ignore[no-any-return]  # struct is untyped; the formats above decide

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self) -> str:
        return self.take(self.u64()).decode("utf-8", "replace")

    def name(self, what: str) -> str:
        length = self.u64()
        if length > MAX_NAME_BYTES:
            raise GgufError(f"The GGUF file has {what} of {length:,} bytes.")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise GgufError(f"The GGUF file has {what} that is not text.") from None

    def skip_strings(self, count: int) -> None:
        """Step over strings; the hot loop of opening a file (some 100,000 to 500,000 rounds)."""
        source, position, last = self.source, self.position, self._end - 8
        unpack = _U64.unpack_from
        for _ in range(count):
            if position > last:
                raise self._cut_short()
            position += 8 + unpack(source, position)[0]
        if position > self._end:
            raise self._cut_short()
        self.position = position

    def expect_room(self, count: int, smallest_bytes: int, most: int, what: str) -> None:
        if count > most:
            raise GgufError(f"The GGUF file is damaged: it speaks of {count:,} {what}.")
        if count * smallest_bytes > self._end - self.position:
            raise GgufError(
                f"The GGUF file is cut short or damaged: it speaks of {count:,} {what}.",
                truncated=True,
            )

    def _cut_short(self) -> GgufError:
        return GgufError("The GGUF file is cut short: it ends inside its header.", truncated=True)
