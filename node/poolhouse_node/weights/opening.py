"""The one door to a model on disk, whatever its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.weights.gguf import open_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["open_weights"]


def open_weights(path: Path) -> GgufFile:
    """Open a GGUF or safetensors model; of several files, ``path`` is the first.

    Raises :class:`~poolhouse_node.weights.errors.ModelFileError` with a sentence.
    """
    if path.suffix != ".safetensors":
        return open_gguf(path)
    # Late: a GGUF needs nothing besides numpy, and computes where nothing else is installed.
    from poolhouse_node.weights.safetensors import open_safetensors

    return open_safetensors(path)
