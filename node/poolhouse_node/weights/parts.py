"""Models in several files: which files, and one header out of many (dealing, section 8)."""

from __future__ import annotations

import mmap
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from poolhouse_node.weights.errors import GgufError, ModelFileError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from poolhouse_node.weights.gguf_header import GgufHeader, TensorInfo

__all__ = ["MAX_PARTS", "expected_parts", "map_file", "merge_parts", "split_count"]

MAX_PARTS = 1000
_PART_NAME = re.compile(r"(.+)-00001-of-(\d{5})(\.\w+)", re.ASCII)


def map_file(path: Path, error_type: type[ModelFileError]) -> mmap.mmap:
    """A whole file, read-only. Raises ``error_type`` when it cannot be opened."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:  # an empty file cannot be mapped
        raise error_type(f"{path.name} is empty.", truncated=True) from None
    except OSError as error:
        raise error_type(f"{path} cannot be opened: {error.strerror}.") from error


def split_count(header: GgufHeader) -> int:
    """In how many files the model is, by the header of the first.

    Raises :class:`GgufError` for an impossible count and for a file that is not the first.
    """
    count, number = (_integer(header, f"split.{key}", default) for key, default in _SPLIT_KEYS)
    if not 0 <= count <= MAX_PARTS:
        raise GgufError(f"The GGUF file says that its model is in {count} files.")
    if number != 0:
        raise GgufError("This is a later part of a model in several files; name the first.")
    return max(1, count)


_SPLIT_KEYS = (("count", 1), ("no", 0))


def expected_parts(first: Path, count: int) -> list[Path]:
    """All files of a model by the name of its first; :class:`ModelFileError` for another name."""
    found = _PART_NAME.fullmatch(first.name)
    if found is None or int(found[2]) != count or not 1 < count <= MAX_PARTS:
        raise ModelFileError(
            f"{first.name} is the first of {count} files, "
            f"which should be named like model-00001-of-{count:05}.gguf."
        )
    stem, total, suffix = found.groups()
    return [first.with_name(f"{stem}-{part:05}-of-{total}{suffix}") for part in range(1, count + 1)]


def merge_parts(headers: Sequence[GgufHeader]) -> GgufHeader:
    """Metadata of the first, the tensors of all.

    Raises :class:`GgufError` when the parts are not of one model.
    """
    first = headers[0]
    tensors: dict[str, TensorInfo] = {}
    for part, header in enumerate(headers):
        if part and (
            _integer(header, "split.count", 0) != len(headers)
            or _integer(header, "split.no", -1) != part
        ):
            raise GgufError(f"Part {part + 1} of the model's files belongs to another model.")
        for name, info in header.tensors.items():
            if name in tensors:
                raise GgufError(f"Two of the model's files hold the tensor {name!r}.")
            tensors[name] = replace(info, part=part)
    if _integer(first, "split.tensors.count", len(tensors)) != len(tensors):
        raise GgufError("The model's files do not hold as many tensors as the first one says.")
    return replace(first, tensors=tensors)


def _integer(header: GgufHeader, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise GgufError(f"The metadata {key!r} of the model file is not a whole number.")
    return value
