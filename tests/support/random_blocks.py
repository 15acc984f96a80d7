"""Random tensors in every type of GGUF, made as blocks: no quantiser, so as fast as random bytes.

Levels are uniform; scales are chosen so that values have mean 0 and the spread asked for.
"""

import numpy as np

from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType

__all__ = ["BLOCK_TYPES", "random_blocks", "values_of"]

type Bytes = np.ndarray
type Random = np.random.Generator


def random_blocks(kind: GgmlType, count: int, spread: float, random: Random) -> Bytes:
    """``count`` values of about ``spread`` (a standard deviation) as raw bytes."""
    if kind in _FLOATS:
        return _FLOATS[kind](random.standard_normal(count, np.float32) * np.float32(spread))
    block = BLOCKS[kind]
    raw = random.integers(0, 256, (count // block.values, block.size_bytes), np.uint8)
    _SCALES[kind](raw, spread, random)
    return raw.reshape(-1)


def values_of(raw: Bytes, kind: GgmlType, shape: tuple[int, ...]) -> np.ndarray:
    """What the bytes mean, by the reference package, float32."""
    import gguf

    if kind in (GgmlType.F32, GgmlType.F16):
        number = "<f4" if kind is GgmlType.F32 else "<f2"
        return raw.view(number).astype(np.float32).reshape(shape)
    return gguf.dequantize(raw, gguf.GGMLQuantizationType(kind.value)).reshape(shape)


def _halves(raw: Bytes, at: int, values: np.ndarray) -> None:
    raw[:, at : at + 2] = values.astype("<f2").reshape(-1, 1).view(np.uint8)


def _scale(raw: Bytes, spread: float, random: Random) -> np.ndarray:
    """A scale per block, up to a tenth off."""
    return spread * random.uniform(0.9, 1.1, len(raw))


def _q4_0(raw: Bytes, spread: float, random: Random) -> None:
    _halves(raw, 0, _scale(raw, spread / 4.6, random) * random.choice([-1, 1], len(raw)))


def _q4_1(raw: Bytes, spread: float, random: Random) -> None:
    scale = _scale(raw, spread / 4.6, random)
    _halves(raw, 0, scale)
    _halves(raw, 2, -7.5 * scale)


def _q5_0(raw: Bytes, spread: float, random: Random) -> None:
    _halves(raw, 0, _scale(raw, spread / 9.2, random) * random.choice([-1, 1], len(raw)))


def _q8_0(raw: Bytes, spread: float, random: Random) -> None:
    _halves(raw, 0, _scale(raw, spread / 74, random))


def _q4_k(raw: Bytes, spread: float, random: Random) -> None:
    _k_scales(raw, spread / (4.6 * 40), 7.5, random)


def _q5_k(raw: Bytes, spread: float, random: Random) -> None:
    _k_scales(raw, spread / (9.2 * 40), 15.5, random)


def _k_scales(raw: Bytes, spread: float, middle: float, random: Random) -> None:
    """Every group's least is its scale, so that ``dmin = middle * d`` gives a mean of 0."""
    scale = _scale(raw, spread, random)
    _halves(raw, 0, scale)
    _halves(raw, 2, middle * scale)
    groups = random.integers(17, 64, (len(raw), 8), np.uint8)
    first, last = groups[:, :4], groups[:, 4:]
    raw[:, 4:8] = raw[:, 8:12] = first | ((last >> 4) << 6)
    raw[:, 12:16] = (last & 15) | ((last & 15) << 4)


def _q6_k(raw: Bytes, spread: float, random: Random) -> None:
    signs = random.choice(np.array([-1, 1], np.int8), (len(raw), 16))
    raw[:, 192:208] = (random.integers(30, 110, (len(raw), 16), np.int8) * signs).view(np.uint8)
    _halves(raw, 208, _scale(raw, spread / (18.5 * 74), random))


def _bf16(values: np.ndarray) -> Bytes:
    return (values.view("<u4") >> 16).astype("<u2").view(np.uint8)


_FLOATS = {
    GgmlType.F32: lambda values: values.astype("<f4").view(np.uint8),
    GgmlType.F16: lambda values: values.astype("<f2").view(np.uint8),
    GgmlType.BF16: _bf16,
}
_SCALES = {
    GgmlType.Q4_0: _q4_0,
    GgmlType.Q4_1: _q4_1,
    GgmlType.Q5_0: _q5_0,
    GgmlType.Q8_0: _q8_0,
    GgmlType.Q4_K: _q4_k,
    GgmlType.Q5_K: _q5_k,
    GgmlType.Q6_K: _q6_k,
}
BLOCK_TYPES = (*_FLOATS, *_SCALES)
