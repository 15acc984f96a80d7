"""The one door to a model on disk, whatever its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.weights.gguf import open_gguf
from poolhouse_node.weights.safetensors import open_safetensors

if TYPE_CHECKING:
    from pathlib import Path

    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["open_weights"]


def open_weights(path: Path) -> GgufFile:
    """Open a GGUF or safetensors model; of several files, ``path`` is the first.

    Raises :class:`~poolhouse_node.weights.errors.ModelFileError` with a sentence.
    """
    return open_safetensors(path) if path.suffix == ".safetensors" else open_gguf(path)
