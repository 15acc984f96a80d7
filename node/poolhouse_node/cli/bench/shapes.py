"""Sizes of catalogue models for a bench without their files (engine, sections 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass

from poolhouse_node.cli.failures import CommandFailed

__all__ = ["SHAPES", "Shape", "find_shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """One architecture's sizes. ``delta_heads`` are key and value heads, (0, 0) without any."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    rotated: int
    rope_base: float
    ffn_width: int
    vocabulary_size: int
    delta_heads: tuple[int, int] = (0, 0)
    delta_size: int = 128
    experts: int = 0
    experts_used: int = 0
    """``ffn_width`` is then that of one expert, and of the shared one."""

    @property
    def is_hybrid(self) -> bool:
        """Three of four layers are recurrent, and attention has gates."""
        return self.delta_heads != (0, 0)


def _dense(layers: int, width: int, heads: int, ffn_width: int) -> Shape:
    return Shape(layers, width, heads, 8, 128, 128, 1e6, ffn_width, 151_936)


SHAPES = {
    "qwen3-0.6b": _dense(28, 1024, 16, 3072),
    "qwen3-1.7b": _dense(28, 2048, 16, 6144),
    "qwen3-4b": _dense(36, 2560, 32, 9728),
    "qwen3.8-27b": Shape(64, 5120, 24, 4, 256, 64, 1e7, 17408, 248_320, (16, 48)),
    "qwen3.6-35b-moe": Shape(
        40, 2048, 16, 2, 256, 64, 1e7, 512, 248_320, (16, 32), experts=256, experts_used=8
    ),
    "qwen3.5-122b-moe": Shape(
        48, 3072, 32, 2, 256, 64, 1e7, 1024, 248_320, (16, 64), experts=256, experts_used=8
    ),
    # Small enough for a test, with every kind of layer.
    "tiny": Shape(8, 128, 4, 2, 32, 32, 1e4, 256, 512, (2, 4), 32),
    "tiny-moe": Shape(4, 128, 4, 2, 32, 32, 1e4, 64, 512, (2, 4), 32, 8, 2),
}
"""By catalogue key, and two that no catalogue has."""


def find_shape(key: str) -> Shape:
    """Raises :class:`CommandFailed` with the known ones."""
    if key not in SHAPES:
        raise CommandFailed(f"There is no shape {key!r}, only {', '.join(SHAPES)}.")
    return SHAPES[key]
