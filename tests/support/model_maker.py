"""Random models of any shape as real files: GGUF (whole or split) and safetensors.

Every tensor is drawn from the seed and its own name, so that a file is written one tensor at a
time whatever its size, and the same values come back for a comparison.
"""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType
from tests.support.gguf_writer import GgufWriter
from tests.support.model_shapes import ModelShape
from tests.support.random_blocks import BLOCK_TYPES, random_blocks, values_of

__all__ = ["ModelMaker"]

_F32_ONLY = ("ssm_conv1d.weight", "ffn_gate_inp.weight")


@dataclass(frozen=True, slots=True)
class ModelMaker:
    """The model of one shape and seed."""

    shape: ModelShape

    def kind(self, name: str) -> GgmlType:
        """Of one tensor: as converters do, vectors and small tables stay float32."""
        dimensions = self.shape.tensors()[name]
        if len(dimensions) == 1 or name.endswith(_F32_ONLY):
            return GgmlType.F32
        wanted = self.shape.kind
        if wanted is None:
            wanted = BLOCK_TYPES[zlib.crc32(name.encode()) % len(BLOCK_TYPES)]
        for kind in (wanted, GgmlType.Q8_0):
            if dimensions[-1] % BLOCKS[kind].values == 0:
                return kind
        return GgmlType.F32

    def raw(self, name: str) -> np.ndarray:
        """The bytes of one tensor."""
        dimensions = self.shape.tensors()[name]
        random = np.random.default_rng([self.shape.seed, zlib.crc32(name.encode())])
        if len(dimensions) == 1:
            return _vector(name, dimensions[0], random).astype("<f4").view(np.uint8)
        spread = 0.4 if name == "token_embd.weight" else 0.8 * dimensions[-1] ** -0.5
        return random_blocks(self.kind(name), int(np.prod(dimensions)), spread, random)

    def values(self, name: str) -> np.ndarray:
        """What a reader will see, float32."""
        return values_of(self.raw(name), self.kind(name), self.shape.tensors()[name])

    def all_values(self) -> dict[str, np.ndarray]:
        return {name: self.values(name) for name in self.shape.tensors()}

    def writer(self, names: list[str] | None = None) -> GgufWriter:
        """In memory; for small shapes and files that a test then breaks."""
        writer = GgufWriter(metadata=dict(self.shape.metadata()))
        shapes = self.shape.tensors()
        for name in names or shapes:
            writer.tensors[name] = (self.kind(name), shapes[name], self.raw(name).tobytes())
        return writer

    def header(self) -> bytes:
        """Everything before the data of tensors."""
        shapes = self.shape.tensors()
        places = {n: (self.kind(n), shapes[n], self._size_bytes(n)) for n in shapes}
        return GgufWriter(metadata=dict(self.shape.metadata())).header(places)

    def write_gguf(self, path: Path) -> Path:
        """Streamed: one tensor at a time is in memory."""
        with path.open("wb") as file:
            file.write(self.header())
            for name in self.shape.tensors():
                file.write(self.raw(name).data)
                file.write(bytes(-self._size_bytes(name) % 32))
        return path

    def write_split(self, folder: Path, parts: int) -> Path:
        """Tensors dealt to several files in order; gives the first."""
        names = list(self.shape.tensors())
        step = -(-len(names) // parts)
        for part in range(parts):
            writer = self.writer(names[part * step : (part + 1) * step])
            if part:
                writer.metadata = {}
            writer.metadata |= {
                "split.no": part,
                "split.count": parts,
                "split.tensors.count": len(names),
            }
            writer.write(folder / f"model-{part + 1:05}-of-{parts:05}.gguf")
        return folder / f"model-00001-of-{parts:05}.gguf"

    def write_safetensors(self, folder: Path, number: str = "BF16") -> Path:
        """``model.safetensors`` and ``config.json`` with the reference's names; gives the former.

        The shape's ``kind`` must be exact in ``number``.
        """
        from tests.support.model_reference import reference_config, reference_state

        config = reference_config(self.shape)
        (folder / "config.json").write_text(json.dumps(config))
        tensors = {
            name: (number, values.shape, _numbers(values, number))
            for name, values in reference_state(self).items()
            if not (self.shape.tied and name == "lm_head.weight")
        }
        path = folder / "model.safetensors"
        path.write_bytes(safetensors_bytes(tensors))
        return path

    def _size_bytes(self, name: str) -> int:
        block = BLOCKS[self.kind(name)]
        return int(np.prod(self.shape.tensors()[name])) // block.values * block.size_bytes


def safetensors_bytes(tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A file of named (number, shape, data)."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (number, shape, data) in tensors.items():
        offsets = [at, at + len(data)]
        header[name] = {"dtype": number, "shape": list(shape), "data_offsets": offsets}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(data for _, _, data in tensors.values())
    return len(text).to_bytes(8, "little") + text + body


def _numbers(values: np.ndarray, number: str) -> bytes:
    if number == "BF16":
        return (np.ascontiguousarray(values, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    return values.astype({"F32": "<f4", "F16": "<f2"}[number]).tobytes()


def _vector(name: str, size: int, random: np.random.Generator) -> np.ndarray:
    """Norms are near 1, decays forget between a little and a lot."""
    normal = random.standard_normal(size, np.float32)
    if name.endswith("ssm_a"):
        return -np.exp(normal)
    if name.endswith("ssm_dt.bias"):
        return normal - 1
    if name.endswith("ffn_gate_inp_shexp.weight"):
        return normal * size**-0.5
    return 1 + 0.2 * normal
