"""The llama architecture (engine, section 2): layers ``[lo, hi)`` of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from poolhouse_node.engine.layers.mlp import gated_mlp
from poolhouse_node.engine.layers.norm import rms_norm
from poolhouse_node.engine.layers.rope import RotaryTable, split_interleaved_rows
from poolhouse_node.engine.state import AttentionShape, StateShape
from poolhouse_node.shard import ShardError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from poolhouse_node.engine.layers.linear import Matrix
    from poolhouse_node.engine.raw_matrix import RawMatrix
    from poolhouse_node.engine.state import RoomPass
    from poolhouse_node.engine.tensors import TensorLoader
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["Llama", "LlamaConfig"]

_LAYER_TENSORS = (
    "attn_norm.weight",
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_output.weight",
    "ffn_norm.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
)


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes and constants, all read from the file."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    ffn_width: int
    rope_base: float
    epsilon: float

    @classmethod
    def read(cls, file: GgufFile) -> LlamaConfig:
        """Raises ``GgufError`` for a missing key, :class:`ShardError` for sizes that cannot be."""
        width = file.integer("llama.embedding_length")
        heads = file.integer("llama.attention.head_count")
        config = cls(
            layers=file.integer("llama.block_count"),
            width=width,
            heads=heads,
            kv_heads=file.integer("llama.attention.head_count_kv", heads),
            head_size=file.integer("llama.attention.key_length", width // max(1, heads)),
            ffn_width=file.integer("llama.feed_forward_length"),
            rope_base=file.number("llama.rope.freq_base", 10_000.0),
            epsilon=file.number("llama.attention.layer_norm_rms_epsilon"),
        )
        config._check(file)
        return config

    def state_shape(self, layers: tuple[int, int], context_size: int) -> StateShape:
        """The state a room needs for layers ``[lo, hi)``."""
        attention = AttentionShape(layers[1] - layers[0], self.kv_heads, self.head_size)
        return StateShape(context_size, attention=attention)

    def _check(self, file: GgufFile) -> None:
        sizes = (self.layers, self.width, self.heads, self.kv_heads, self.head_size, self.ffn_width)
        if min(sizes) < 1 or self.head_size % 2 or self.heads % self.kv_heads:
            raise ShardError("The sizes in the model file's header do not fit each other.")
        if file.integer("llama.rope.dimension_count", self.head_size) != self.head_size:
            raise ShardError("This engine rotates whole heads; the model file asks for a part.")
        scaling = file.text("llama.rope.scaling.type", "none")
        if scaling != "none":
            raise ShardError(f"This engine cannot stretch positions ({scaling} rope scaling).")


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    query_key_value: Matrix
    attention_output: Matrix
    ffn_norm: Tensor
    gate_up: Matrix
    down: Matrix

    @property
    def held_bytes(self) -> int:
        matrices = (self.query_key_value, self.attention_output, self.gate_up, self.down)
        norms = self.attention_norm.nbytes + self.ffn_norm.nbytes
        return norms + sum(matrix.held_bytes for matrix in matrices)


class Llama:
    """Layers ``[lo, hi)``. The state is the caller's: one part serves any number of rooms."""

    def __init__(
        self,
        config: LlamaConfig,
        layers: tuple[int, int],
        loader: TensorLoader,
        *,
        context_size: int,
        device: torch.device,
    ) -> None:
        self._config = config
        self._range = layers
        self._layers = [_load_layer(config, index, loader) for index in range(*layers)]
        self._rope = RotaryTable(config.head_size, config.rope_base, context_size, device)
        self.held_bytes = sum(layer.held_bytes for layer in self._layers)

    def state_shape(self, context_size: int) -> StateShape:
        """The state a room needs for these layers."""
        return self._config.state_shape(self._range, context_size)

    @staticmethod
    def tensor_names(file: GgufFile, layers: tuple[int, int]) -> list[str]:
        """The tensors of these layers.

        Raises :class:`ShardError` when a layer has others (biases, experts): leaving them out
        would compute nonsense.
        """
        names = [f"blk.{i}.{name}" for i in range(*layers) for name in _LAYER_TENSORS]
        prefixes = tuple(f"blk.{i}." for i in range(*layers))
        expected = set(names)
        for name in file.tensors:
            if name.startswith(prefixes) and name not in expected:
                raise ShardError(f"This engine does not know the tensor {name} of a llama model.")
        if "rope_freqs.weight" in file.tensors:
            raise ShardError("This engine cannot stretch positions (rope_freqs.weight).")
        return names

    def run(self, x: Tensor, this_pass: RoomPass) -> Tensor:
        """Hidden states [n, width] of the pass's columns through the layers."""
        epsilon = self._config.epsilon
        for index, layer in enumerate(self._layers):
            normed = rms_norm(x, layer.attention_norm, epsilon)
            x = x + self._attention(layer, index, normed, this_pass)
            normed = rms_norm(x, layer.ffn_norm, epsilon)
            x = x + gated_mlp(normed, layer.gate_up, layer.down)
        return x

    def _attention(self, layer: _Layer, index: int, x: Tensor, this_pass: RoomPass) -> Tensor:
        config = self._config
        heads = layer.query_key_value(x).view(x.shape[0], -1, config.head_size)
        values = heads[:, config.heads + config.kv_heads :]
        rotated = self._rope.rotate(heads[:, : config.heads + config.kv_heads], this_pass.position)
        queries, keys = rotated[:, : config.heads], rotated[:, config.heads :]
        return layer.attention_output(this_pass.attend(index, queries, keys, values))


def _load_layer(config: LlamaConfig, index: int, loader: TensorLoader) -> _Layer:
    def norm(name: str) -> Tensor:
        return loader.tensor(f"blk.{index}.{name}.weight", (config.width,))

    def raw(name: str, rows: int, columns: int) -> RawMatrix:
        return loader.matrix(f"blk.{index}.{name}.weight", (rows, columns))

    width, ffn = config.width, config.ffn_width
    q_rows, kv_rows = config.heads * config.head_size, config.kv_heads * config.head_size
    query = raw("attn_q", q_rows, width).reordered(partial(_split, config.heads))
    key = raw("attn_k", kv_rows, width).reordered(partial(_split, config.kv_heads))
    keep = loader.keeper.matrix
    return _Layer(
        attention_norm=norm("attn_norm"),
        # Stacked: one product instead of three (and two below) costs a third of the calls.
        query_key_value=keep([query, key, raw("attn_v", kv_rows, width)]),
        attention_output=keep([raw("attn_output", width, q_rows)]),
        ffn_norm=norm("ffn_norm"),
        gate_up=keep([raw("ffn_gate", ffn, width), raw("ffn_up", ffn, width)]),
        down=keep([raw("ffn_down", width, ffn)]),
    )


def _split(heads: int, rows: Tensor) -> Tensor:
    return split_interleaved_rows(rows, heads)
