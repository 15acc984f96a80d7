"""What only the host holds: the embedding, the final norm and the head (engine, section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.layers.norm import rms_norm
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from poolhouse_node.engine.layers.linear import Table
    from poolhouse_node.engine.tensors import TensorLoader
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["Head"]

_EMBEDDING, _NORM, _OUTPUT = "token_embd.weight", "output_norm.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class Head:
    """``output`` is the same matrix as ``embedding`` when the file ties them."""

    vocabulary_size: int
    embedding: Table
    norm: Tensor
    output: Table
    epsilon: float

    @staticmethod
    def tensor_names(file: GgufFile) -> list[str]:
        """The tensors of a host besides its layers (dealing, section 8)."""
        return [_EMBEDDING, _NORM, *([_OUTPUT] if _OUTPUT in file.tensors else [])]

    @classmethod
    def load(cls, file: GgufFile, width: int, epsilon: float, loader: TensorLoader) -> Head:
        """Raises :class:`ShardError` when a tensor is missing or does not fit."""
        info = file.tensors.get(_EMBEDDING)
        rows = info.shape[0] if info else 0
        embedding = loader.keeper.table(loader.matrix(_EMBEDDING, (rows, width)))
        tied = _OUTPUT not in file.tensors
        return cls(
            vocabulary_size=rows,
            embedding=embedding,
            norm=loader.tensor(_NORM, (width,)),
            output=embedding
            if tied
            else loader.keeper.table(loader.matrix(_OUTPUT, (rows, width))),
            epsilon=epsilon,
        )

    @property
    def held_bytes(self) -> int:
        output_bytes = 0 if self.output is self.embedding else self.output.held_bytes
        return self.embedding.held_bytes + self.norm.nbytes + output_bytes

    def check(self, ids: Sequence[int]) -> None:
        """Raises :class:`ShardError` for an id outside of the table."""
        if any(not 0 <= token < self.vocabulary_size for token in ids):
            raise ShardError(f"A token id is outside the vocabulary of {self.vocabulary_size}.")

    def embed(self, ids: Sequence[int]) -> Tensor:
        """Rows of the table, [n, width]. Raises as :meth:`check`."""
        self.check(ids)
        return self.embedding.rows(torch.tensor(ids, dtype=torch.int64, device=self.norm.device))

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, width] to [n, vocabulary]."""
        return self.output(rms_norm(hidden, self.norm, self.epsilon))
