"""The draft block of hybrid models, on the host (engine, section 6): guesses of the next tokens.

A guess costs one layer and the head; the trunk then verifies several guesses in one frame. Drafts
never change an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from poolhouse_node.engine.layers.norm import rms_norm
from poolhouse_node.engine.layers.rope import RotaryTable
from poolhouse_node.engine.models.hybrid import HybridConfig, load_attention_block
from poolhouse_node.engine.models.layer_tensors import LayerTensors
from poolhouse_node.engine.paged.passes import PagedPass
from poolhouse_node.engine.sampling import top_logits
from poolhouse_node.engine.state import AttentionShape, StateShape
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from poolhouse_node.engine.head import Head
    from poolhouse_node.engine.layers.linear import Matrix
    from poolhouse_node.engine.models.blocks import Block
    from poolhouse_node.engine.paged.sequence import RoomState
    from poolhouse_node.engine.state import RoomPass
    from poolhouse_node.engine.tensors import TensorLoader
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["Draft", "DraftBlock", "Drafter", "draft_layer", "draft_tensor_names"]

_PASS_COLUMNS = 256


def draft_layer(config: HybridConfig) -> int:
    """Where the draft block is in the file."""
    return config.layers + config.draft_blocks - 1


def draft_tensor_names(file: GgufFile, config: HybridConfig) -> list[str]:
    """The tensors of the draft block; none when the file has no such block.

    Raises :class:`ShardError` when the block has others besides.
    """
    layer = draft_layer(config)
    if not config.draft_blocks or f"blk.{layer}.nextn.eh_proj.weight" not in file.tensors:
        return []
    return config.tensor_names(file, [layer])


@dataclass(frozen=True, slots=True)
class DraftBlock:
    """Its weights. Embedding and head are the model's own."""

    projection: Matrix
    """Of embedding and hidden state side by side, in this order, [width, 2 * width]."""
    embedding_norm: Tensor
    hidden_norm: Tensor
    layer: Block
    head_norm: Tensor
    epsilon: float
    shape: AttentionShape
    rope_bytes: int

    @classmethod
    def load(cls, config: HybridConfig, loader: TensorLoader, context_size: int) -> DraftBlock:
        """Take :func:`draft_tensor_names`. Raises what ``loader.tensor`` does."""
        tensors, width = LayerTensors(loader, draft_layer(config)), config.width
        rope = RotaryTable(config.rotated, config.rope_base, context_size, loader.device)
        return cls(
            projection=tensors.matrix("nextn.eh_proj.weight", width, 2 * width),
            embedding_norm=tensors.tensor("nextn.enorm.weight", width),
            hidden_norm=tensors.tensor("nextn.hnorm.weight", width),
            layer=load_attention_block(config, tensors, 0, rope),
            head_norm=tensors.tensor("nextn.shared_head_norm.weight", width),
            epsilon=config.epsilon,
            shape=AttentionShape(1, config.attention.kv_heads, config.attention.head_size),
            rope_bytes=rope.held_bytes,
        )

    @property
    def held_bytes(self) -> int:
        norms = (self.embedding_norm, self.hidden_norm, self.head_norm)
        matrices = self.projection.held_bytes + self.layer.held_bytes
        return matrices + self.rope_bytes + sum(norm.nbytes for norm in norms)

    def state_shape(self, context_size: int) -> StateShape:
        """Keys and values of one layer."""
        return StateShape(context_size, attention=self.shape)

    def run(self, embedded: Tensor, hidden: Tensor, this_pass: RoomPass) -> Tensor:
        """Embeddings of tokens and the hidden states before them, [n, width] each."""
        both = [
            rms_norm(embedded, self.embedding_norm, self.epsilon),
            rms_norm(hidden, self.hidden_norm, self.epsilon),
        ]
        return self.layer(self.projection(torch.cat(both, dim=-1)), this_pass)


@dataclass(frozen=True, slots=True)
class Draft:
    """A guess, and the hidden state to guess on with, [1, width]."""

    token: int
    hidden: Tensor


class Drafter:
    """The draft block on one room's own keys and values.

    The row of the token at position p is made of that token and the hidden state of position
    p - 1, so there is none for position 0. Rows are therefore kept, and rotated, one place
    earlier: attention sees distances only.
    """

    def __init__(self, block: DraftBlock, head: Head, state: RoomState) -> None:
        """``state`` was made for :meth:`DraftBlock.state_shape`; saving it is the caller's."""
        self._block = block
        self._head = head
        self.state = state

    @torch.inference_mode()
    def draft(self, token: int, hidden: Tensor, position: int) -> Draft:
        """Guess what follows ``token`` at ``position``, after ``hidden`` of the position before.

        ``hidden`` [1, width] is the trunk's last one before the final norm, or that of the draft
        before. Rows from ``position`` on are overwritten. Raises :class:`ShardError` for a
        position without the rows before it.
        """
        result = self._run([token], hidden, position)
        normed = rms_norm(result, self._block.head_norm, self._block.epsilon)
        return Draft(int(top_logits(self._head.output(normed), 1).ids[0, 0]), result)

    @torch.inference_mode()
    def fill(self, tokens: Sequence[int], hidden: Tensor, position: int) -> None:
        """Write the exact rows of ``tokens`` at ``position ..``.

        ``hidden`` [n, width] are the trunk's hidden states of the positions before each. Done with
        every prompt, and with what was accepted after a verify: drafts left rows of their own.
        """
        for start in range(0, len(tokens), _PASS_COLUMNS):
            columns = slice(start, start + _PASS_COLUMNS)
            self._run(tokens[columns], hidden[columns], position + start)

    def _run(self, tokens: Sequence[int], hidden: Tensor, position: int) -> Tensor:
        if position < 1:
            raise ShardError("Nothing can be drafted before the second position.")
        if len(hidden) != len(tokens):
            raise ShardError(f"{len(tokens)} tokens need as many hidden states before them.")
        row, n = position - 1, len(tokens)
        with self.state.frame(row, n, snapshots=False):
            this_pass = PagedPass(self.state, row, n, keeps_snapshots=False)
            return self._block.run(self._head.embed(tokens), hidden, this_pass)
