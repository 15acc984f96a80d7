"""The tensors of one layer, taken by their short names and made what the layer multiplies by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.engine.expert_weights import ExpertSizes, ExpertWeights, SharedWeights
from poolhouse_node.engine.layers.feed_forward import DenseFeedForward
from poolhouse_node.engine.layers.normed_attention import AttentionSizes, NormedAttention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.layers.linear import Matrix
    from poolhouse_node.engine.layers.rope import RotaryTable
    from poolhouse_node.engine.raw_matrix import RawMatrix
    from poolhouse_node.engine.tensors import TensorLoader

__all__ = ["ATTENTION_TENSORS", "FFN_TENSORS", "LayerTensors"]

ATTENTION_TENSORS = (
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_q_norm.weight",
    "attn_k_norm.weight",
    "attn_output.weight",
)
FFN_TENSORS = ("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")


class LayerTensors:
    """Tensors ``blk.<layer>.*`` of a loader. Methods raise what its ``tensor`` raises."""

    def __init__(self, loader: TensorLoader, layer: int) -> None:
        self._loader = loader
        self._layer = layer

    def tensor(self, name: str, *shape: int) -> Tensor:
        return self._loader.tensor(f"blk.{self._layer}.{name}", shape)

    def stacked(self, rows: dict[str, int], columns: int) -> Matrix:
        """Matrices of the same input as one: one product instead of several."""
        return self.keep([self.raw(name, n, columns) for name, n in rows.items()])

    def keep(self, parts: Sequence[RawMatrix]) -> Matrix:
        """Matrices of the same input as one, for what is not as its file has it."""
        return self._loader.keeper.matrix(parts)

    def matrix(self, name: str, rows: int, columns: int) -> Matrix:
        return self.stacked({name: rows}, columns)

    def attention(
        self, sizes: AttentionSizes, width: int, layer: int, rope: RotaryTable, epsilon: float
    ) -> NormedAttention:
        """:data:`ATTENTION_TENSORS`; ``layer`` is the place among the attention layers."""
        inputs = {
            "attn_q.weight": sizes.query_rows,
            "attn_k.weight": sizes.kv_rows,
            "attn_v.weight": sizes.kv_rows,
        }
        return NormedAttention(
            sizes=sizes,
            layer=layer,
            query_key_value=self.stacked(inputs, width),
            query_norm=self.tensor("attn_q_norm.weight", sizes.head_size),
            key_norm=self.tensor("attn_k_norm.weight", sizes.head_size),
            output=self.matrix("attn_output.weight", width, sizes.mixed_width),
            rope=rope,
            epsilon=epsilon,
        )

    def feed_forward(self, width: int, ffn_width: int) -> DenseFeedForward:
        """:data:`FFN_TENSORS`."""
        inputs = {f"ffn_{name}.weight": ffn_width for name in ("gate", "up")}
        return DenseFeedForward(
            gate_up=self.stacked(inputs, width),
            down=self.matrix("ffn_down.weight", width, ffn_width),
        )

    def expert_feed_forward(self, sizes: ExpertSizes, width: int) -> FeedForward:
        """Experts, their router, and the shared one where there is one."""
        count, inner = sizes.count, sizes.width
        weights = ExpertWeights(
            sizes,
            router=self.raw("ffn_gate_inp.weight", count, width),
            gate=self.raw("ffn_gate_exps.weight", count, inner, width),
            up=self.raw("ffn_up_exps.weight", count, inner, width),
            down=self.raw("ffn_down_exps.weight", count, width, inner),
            shared=self._shared(sizes.shared_width, width) if sizes.shared_width else None,
        )
        return self._loader.keeper.expert_feed_forward(weights)

    def _shared(self, inner: int, width: int) -> SharedWeights:
        return SharedWeights(
            share=self.tensor("ffn_gate_inp_shexp.weight", width),
            gate=self.raw("ffn_gate_shexp.weight", inner, width),
            up=self.raw("ffn_up_shexp.weight", inner, width),
            down=self.raw("ffn_down_shexp.weight", width, inner),
        )

    def raw(self, name: str, *shape: int) -> RawMatrix:
        """As the file has it, all axes but the last as rows."""
        return self._loader.matrix(f"blk.{self._layer}.{name}", shape)
