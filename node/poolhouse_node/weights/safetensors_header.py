"""The header of a safetensors file: bytes in, tensor places out. Pure, checked, bounded."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import msgspec

from poolhouse_node.weights.errors import SafetensorsError
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType
from poolhouse_node.weights.gguf_header import MAX_TENSOR_VALUES, MAX_TENSORS, TensorInfo

if TYPE_CHECKING:
    from poolhouse_node.weights.gguf_header import ByteSource

__all__ = ["MAX_HEADER_BYTES", "parse_safetensors"]

MAX_HEADER_BYTES = 1 << 26
"""Some 10,000 tensors take 1 MiB; the format itself allows 100 MB."""
MAX_DIMENSIONS = 8

_NUMBERS = {
    "F32": GgmlType.F32,
    "F16": GgmlType.F16,
    "BF16": GgmlType.BF16,
    "F64": GgmlType.F64,
    "I8": GgmlType.I8,
    "I16": GgmlType.I16,
    "I32": GgmlType.I32,
    "I64": GgmlType.I64,
}


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_names = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entry = msgspec.json.Decoder(_Entry)


def parse_safetensors(source: ByteSource, *, file_size: int, part: int = 0) -> list[TensorInfo]:
    """The tensors, by place; offsets count from the start of the file.

    ``source`` may be the beginning of a file of ``file_size`` bytes. Raises
    :class:`SafetensorsError`, with ``truncated`` set when ``source`` ends inside the header.
    """
    length = int.from_bytes(bytes(source[0:8]), "little")
    if len(source) < 8 or 8 + length > len(source):
        if length > MAX_HEADER_BYTES:
            raise SafetensorsError("This is not a safetensors file: its header would be too long.")
        raise SafetensorsError("The safetensors file ends inside its header.", truncated=True)
    if length > MAX_HEADER_BYTES:
        raise SafetensorsError(f"The safetensors file has a header of {length:,} bytes.")
    tensors = [
        _tensor(name, raw, 8 + length, file_size, part)
        for name, raw in _decode(bytes(source[8 : 8 + length])).items()
        if name != "__metadata__"
    ]
    return _without_overlap(sorted(tensors, key=lambda info: (info.offset, info.size_bytes)))


def _decode(text: bytes) -> dict[str, msgspec.Raw]:
    try:
        names = _names.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SafetensorsError("The header of the safetensors file is not sound JSON.") from error
    if len(names) > MAX_TENSORS:
        raise SafetensorsError(f"The safetensors file speaks of {len(names):,} tensors.")
    return names


def _tensor(name: str, raw: msgspec.Raw, start: int, file_size: int, part: int) -> TensorInfo:
    try:
        entry = _entry.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SafetensorsError(f"The entry of the tensor {name!r} is not sound.") from error
    kind = _NUMBERS.get(entry.dtype)
    if kind is None:
        raise SafetensorsError(
            f"The tensor {name!r} has type {entry.dtype!r}, which is not known here."
        )
    first, end = entry.data_offsets
    _check_shape(name, entry.shape, kind, end - first)
    if first < 0 or start + end > file_size:
        raise SafetensorsError(
            f"The safetensors file is cut short: the tensor {name!r} ends at byte {start + end:,}, "
            f"the file at {file_size:,}.",
            truncated=True,
        )
    return TensorInfo(name, kind, tuple(entry.shape), start + first, end - first, part)


def _check_shape(name: str, shape: list[int], kind: GgmlType, size_bytes: int) -> None:
    fits = len(shape) <= MAX_DIMENSIONS and all(0 < n <= MAX_TENSOR_VALUES for n in shape)
    values = prod(shape) if fits else 0
    if not 0 < values <= MAX_TENSOR_VALUES:
        raise SafetensorsError(f"The tensor {name!r} has an absurd shape: {shape[:9]}.")
    if size_bytes != values * BLOCKS[kind].size_bytes:
        raise SafetensorsError(f"The tensor {name!r} has another length than its shape needs.")


def _without_overlap(tensors: list[TensorInfo]) -> list[TensorInfo]:
    end = 0
    for info in tensors:
        if info.offset < end:
            raise SafetensorsError(f"The tensor {info.name!r} begins inside another one.")
        end = info.offset + info.size_bytes
    return tensors
