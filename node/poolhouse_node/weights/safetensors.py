"""A model in safetensors with its ``config.json`` beside it, read as if it were a GGUF file."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from poolhouse_node.weights.errors import SafetensorsError
from poolhouse_node.weights.gguf import GgufFile
from poolhouse_node.weights.gguf_header import GgufHeader, TensorInfo
from poolhouse_node.weights.hub_config import MAX_CONFIG_BYTES, gguf_name, read_hub_config
from poolhouse_node.weights.parts import expected_parts, map_file
from poolhouse_node.weights.safetensors_header import parse_safetensors

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from poolhouse_node.weights.gguf_header import Scalar

__all__ = ["SafetensorsModel", "open_safetensors"]

_INTERLEAVED = {
    ".attn_q.weight": "llama.attention.head_count",
    ".attn_k.weight": "llama.attention.head_count_kv",
}
_PARTS = re.compile(r".+-00001-of-(\d{5})\.safetensors", re.ASCII)


class SafetensorsModel(GgufFile):
    """Names, metadata and row order are those of a GGUF of the same model."""

    __slots__ = ()

    def tensor_data(self, name: str) -> NDArray[np.uint8]:
        """The raw bytes of a tensor: a view, or a copy where the row order differs."""
        data = super().tensor_data(name)
        if self.architecture != "llama":
            return data
        key = next((key for end, key in _INTERLEAVED.items() if name.endswith(end)), None)
        return data if key is None else self._interleaved(data, name, key)

    def _interleaved(self, data: NDArray[np.uint8], name: str, key: str) -> NDArray[np.uint8]:
        """Row ``i + s * half`` of a head to where a llama GGUF has it, ``2i + s``."""
        rows = self.tensors[name].shape[0]
        heads = self.integer(key, self.integer("llama.attention.head_count"))
        if heads < 1 or rows % (2 * heads):
            raise SafetensorsError(f"The rows of {name} do not make {heads} heads.")
        halves = data.reshape(heads, 2, rows // heads // 2, -1)
        return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(-1)


def open_safetensors(path: Path) -> SafetensorsModel:
    """Map a file (of several, the first) and read its header and the ``config.json`` beside it.

    Raises :class:`SafetensorsError` when something is missing or not sound.
    """
    metadata, tied = read_hub_config(_config_text(path.with_name("config.json")))
    with contextlib.ExitStack() as opened:
        maps = [
            opened.enter_context(map_file(part, SafetensorsError)) for part in _part_paths(path)
        ]
        header = _merged(path, maps, metadata, tied=tied)
        opened.pop_all()
        return SafetensorsModel(path, maps, header)


def _config_text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        sentence = f"A safetensors model needs {path}: {error.strerror}."
        raise SafetensorsError(sentence) from error
    if len(text) > MAX_CONFIG_BYTES:
        raise SafetensorsError(f"{path} is too long for a model's configuration.")
    return text


def _part_paths(path: Path) -> list[Path]:
    found = _PARTS.fullmatch(path.name)
    return expected_parts(path, int(found[1])) if found else [path]


def _merged(
    path: Path, maps: Sequence[mmap.mmap], metadata: dict[str, Scalar], *, tied: bool
) -> GgufHeader:
    tensors: dict[str, TensorInfo] = {}
    for part, mapped in enumerate(maps):
        for info in parse_safetensors(mapped, file_size=len(mapped), part=part):
            name = gguf_name(info.name)
            if name in tensors:
                raise SafetensorsError(f"{path.name} holds the tensor {name!r} twice.")
            tensors[name] = replace(info, name=name)
    if tied:
        tensors.pop("output.weight", None)
    elif "output.weight" not in tensors:
        raise SafetensorsError(f"{path.name} has neither a head nor a tied one.")
    return GgufHeader(3, metadata, tensors, data_start=0, alignment=1)
