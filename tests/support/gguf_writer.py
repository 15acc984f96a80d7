"""Writes small GGUF files: any metadata, any tensors, sound or broken on purpose."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType

__all__ = ["WRITABLE_TYPES", "GgufWriter", "TinyLlama", "quantise"]

type Value = int | float | bool | str | list[str] | list[int] | list[float]


@dataclass(slots=True)
class GgufWriter:
    """Collects metadata and tensors; :meth:`build` makes the bytes. Knobs break the file."""

    metadata: dict[str, Value] = field(default_factory=dict)
    tensors: dict[str, tuple[GgmlType, tuple[int, ...], bytes]] = field(default_factory=dict)
    alignment: int = 32
    version: int = 3
    magic: bytes = b"GGUF"

    def add(self, name: str, values: np.ndarray, kind: GgmlType = GgmlType.F32) -> np.ndarray:
        """Store ``values`` as ``kind``; gives back what a reader will see (float32)."""
        data, seen = quantise(values.astype(np.float32), kind)
        self.tensors[name] = (kind, values.shape, data)
        return seen

    def build(self) -> bytes:
        places = {
            name: (kind, shape, len(data)) for name, (kind, shape, data) in self.tensors.items()
        }
        out = bytearray(self.header(places))
        for _, _, data in self.tensors.values():
            out += data + b"\0" * (self._padded(len(data)) - len(data))
        return bytes(out)

    def header(self, places: dict[str, tuple[GgmlType, tuple[int, ...], int]]) -> bytes:
        """Everything before the data of tensors of so many bytes each, padded."""
        out = bytearray(self.magic)
        out += struct.pack("<IQQ", self.version, len(places), len(self.metadata))
        for key, value in self.metadata.items():
            out += _string(key) + _typed(value)
        offset = 0
        for name, (kind, shape, size_bytes) in places.items():
            out += _string(name) + struct.pack("<I", len(shape))
            out += struct.pack(f"<{len(shape)}Q", *reversed(shape))
            out += struct.pack("<IQ", kind, offset)
            offset += self._padded(size_bytes)
        return bytes(out + b"\0" * (self._padded(len(out)) - len(out)))

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path

    def _padded(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _typed(value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value) if value >= 0 else struct.pack("<Ii", 5, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value)
        case [str(), *_]:
            items = b"".join(_string(str(each)) for each in value)
            return struct.pack("<IIQ", 9, 8, len(value)) + items
        case [float(), *_]:
            return struct.pack(f"<IIQ{len(value)}f", 9, 6, len(value), *value)
        case _:
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def quantise(values: np.ndarray, kind: GgmlType) -> tuple[bytes, np.ndarray]:
    """Bytes of ``values`` as ``kind``, and the float32 values that these bytes stand for."""
    if kind is GgmlType.F32:
        return values.astype("<f4").tobytes(), values
    if kind is GgmlType.F16:
        halves = values.astype("<f2")
        return halves.tobytes(), halves.astype(np.float32)
    if kind is GgmlType.BF16:
        upper = (values.astype("<f4").view("<u4") >> 16).astype("<u2")
        seen = (upper.astype("<u4") << 16).view("<f4").reshape(values.shape)
        return upper.tobytes(), seen
    blocks = values.reshape(-1, BLOCKS[kind].values)
    data, seen = _BLOCKS[kind](blocks)
    return data.tobytes(), seen.astype(np.float32).reshape(values.shape)


def _q4_0(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = (np.abs(blocks).max(1, keepdims=True) / 7).astype("<f2")
    q = _levels(blocks, scale, 0.0, -8, 7)
    packed = np.concatenate([scale.view(np.uint8), _nibbles(q + 8)], axis=1)
    return packed, scale.astype(np.float32) * q


def _q4_1(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    least = blocks.min(1, keepdims=True).astype("<f2")
    scale = ((blocks.max(1, keepdims=True) - blocks.min(1, keepdims=True)) / 15).astype("<f2")
    q = _levels(blocks, scale, least.astype(np.float32), 0, 15)
    packed = np.concatenate([scale.view(np.uint8), least.view(np.uint8), _nibbles(q)], axis=1)
    return packed, scale.astype(np.float32) * q + least.astype(np.float32)


def _q8_0(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype("<f2")
    q = _levels(blocks, scale, 0.0, -127, 127)
    packed = np.concatenate([scale.view(np.uint8), q.astype(np.int8).view(np.uint8)], axis=1)
    return packed, scale.astype(np.float32) * q


def _levels(blocks: np.ndarray, scale: np.ndarray, least, low: int, high: int) -> np.ndarray:
    step = np.maximum(scale.astype(np.float32), 1e-12)
    return np.clip(np.rint((blocks - least) / step), low, high).astype(np.float32)


def _nibbles(q: np.ndarray) -> np.ndarray:
    small = q.astype(np.uint8)
    return small[:, :16] | (small[:, 16:] << 4)


_BLOCKS = {GgmlType.Q4_0: _q4_0, GgmlType.Q4_1: _q4_1, GgmlType.Q8_0: _q8_0}
WRITABLE_TYPES = (GgmlType.F32, GgmlType.F16, GgmlType.BF16, *_BLOCKS)
"""What :func:`quantise` can make of given values."""


@dataclass(slots=True)
class TinyLlama:
    """A random llama model: :meth:`write` puts it in a file, :attr:`weights` are what it holds."""

    layers: int = 4
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    ffn_width: int = 96
    vocabulary_size: int = 96
    rope_base: float = 10_000.0
    epsilon: float = 1e-5
    tied: bool = True
    kind: GgmlType = GgmlType.F32
    seed: int = 0
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def writer(self) -> GgufWriter:
        random = np.random.default_rng(self.seed)
        writer = GgufWriter(metadata=self._metadata())
        for name, shape in self._shapes().items():
            values = random.normal(0, 0.5 / np.sqrt(shape[-1]), shape)
            if len(shape) == 1:
                values = 1 + 0.1 * random.normal(size=shape)
            kind = self.kind if len(shape) == 2 else GgmlType.F32
            self.weights[name] = writer.add(name, values, kind)
        return writer

    def write(self, path: Path) -> Path:
        return self.writer().write(path)

    def _metadata(self) -> dict[str, Value]:
        return {
            "general.architecture": "llama",
            "general.name": "tiny",
            "llama.block_count": self.layers,
            "llama.context_length": 512,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.ffn_width,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.rope.freq_base": self.rope_base,
            "llama.rope.dimension_count": self.width // self.heads,
            "llama.attention.layer_norm_rms_epsilon": self.epsilon,
        }

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        width, ffn, kv = self.width, self.ffn_width, self.width // self.heads * self.kv_heads
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocabulary_size, width)}
        for layer in range(self.layers):
            shapes |= {
                f"blk.{layer}.{name}.weight": shape
                for name, shape in {
                    "attn_norm": (width,),
                    "attn_q": (width, width),
                    "attn_k": (kv, width),
                    "attn_v": (kv, width),
                    "attn_output": (width, width),
                    "ffn_norm": (width,),
                    "ffn_gate": (ffn, width),
                    "ffn_up": (ffn, width),
                    "ffn_down": (width, ffn),
                }.items()
            }
        shapes["output_norm.weight"] = (width,)
        if not self.tied:
            shapes["output.weight"] = (self.vocabulary_size, width)
        return shapes
