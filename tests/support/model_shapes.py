"""Shapes of models for :mod:`tests.support.model_maker`: small ones, and the catalogue's."""

from dataclasses import dataclass, replace
from functools import cache

from poolhouse_node.weights.ggml_types import GgmlType

__all__ = ["CATALOGUE_SHAPES", "SMALL_SHAPES", "ModelShape"]

type Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Everything a file's header says of a model, and how its matrices are stored."""

    architecture: str
    layers: int = 8
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 16
    rotated: int = 16
    ffn_width: int = 96
    vocabulary_size: int = 96
    rope_base: float = 10_000.0
    epsilon: float = 1e-6
    tied: bool = False
    key_heads: int = 2
    value_heads: int = 6
    delta_size: int = 16
    taps: int = 4
    interval: int = 4
    draft_blocks: int = 0
    experts: int = 0
    experts_used: int = 0
    expert_width: int = 0
    shared_width: int = 0
    context: int = 4096
    kind: GgmlType | None = GgmlType.F32
    """Of matrices whose rows fit; ``None`` takes every type in turn."""
    seed: int = 0

    def but(self, **changes) -> "ModelShape":
        return replace(self, **changes)

    @property
    def hybrid(self) -> bool:
        return self.architecture.startswith("qwen35")

    @property
    def delta_channels(self) -> int:
        return (2 * self.key_heads + self.value_heads) * self.delta_size

    def attends(self, layer: int) -> bool:
        whole = not self.hybrid or layer >= self.layers
        return whole or (layer + 1) % self.interval == 0

    def metadata(self) -> dict[str, int | float | str]:
        """Keys of the GGUF header."""
        own = {
            "block_count": self.layers + self.draft_blocks,
            "context_length": self.context,
            "embedding_length": self.width,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_size,
            "attention.value_length": self.head_size,
            "attention.layer_norm_rms_epsilon": self.epsilon,
            "rope.freq_base": self.rope_base,
            "rope.dimension_count": self.rotated,
        }
        own |= self._hybrid_metadata() if self.hybrid else {}
        own |= self._ffn_metadata()
        return {
            "general.architecture": self.architecture,
            "general.name": "random",
            **{f"{self.architecture}.{key}": value for key, value in own.items()},
        }

    def _hybrid_metadata(self) -> dict[str, int]:
        return {
            "ssm.state_size": self.delta_size,
            "ssm.group_count": self.key_heads,
            "ssm.time_step_rank": self.value_heads,
            "ssm.inner_size": self.value_heads * self.delta_size,
            "ssm.conv_kernel": self.taps,
            "full_attention_interval": self.interval,
            "nextn_predict_layers": self.draft_blocks,
        }

    def _ffn_metadata(self) -> dict[str, int]:
        if not self.experts:
            return {"feed_forward_length": self.ffn_width}
        return {
            "expert_count": self.experts,
            "expert_used_count": self.experts_used,
            "expert_feed_forward_length": self.expert_width,
            "expert_shared_feed_forward_length": self.shared_width,
        }

    def tensors(self) -> Shapes:
        """Every tensor of the file, in its order."""
        return _tensors(self)

    def layer_tensors(self, layer: int) -> Shapes:
        second_norm = "post_attention_norm" if self.hybrid else "ffn_norm"
        norms: Shapes = {"attn_norm.weight": (self.width,), f"{second_norm}.weight": (self.width,)}
        mixer = self._attention() if self.attends(layer) else self._delta_net()
        drafting = self._drafting() if layer >= self.layers else {}
        return norms | mixer | (self._experts() if self.experts else self._ffn()) | drafting

    def _attention(self) -> Shapes:
        rows, kv_rows = self.heads * self.head_size, self.kv_heads * self.head_size
        norms: Shapes = {f"attn_{name}_norm.weight": (self.head_size,) for name in "qk"}
        return {
            "attn_q.weight": (rows * (2 if self.hybrid else 1), self.width),
            "attn_k.weight": (kv_rows, self.width),
            "attn_v.weight": (kv_rows, self.width),
            "attn_output.weight": (self.width, rows),
            **({} if self.architecture == "llama" else norms),
        }

    def _delta_net(self) -> Shapes:
        values = self.value_heads * self.delta_size
        return {
            "attn_qkv.weight": (self.delta_channels, self.width),
            "attn_gate.weight": (values, self.width),
            "ssm_beta.weight": (self.value_heads, self.width),
            "ssm_alpha.weight": (self.value_heads, self.width),
            "ssm_dt.bias": (self.value_heads,),
            "ssm_a": (self.value_heads,),
            "ssm_conv1d.weight": (self.delta_channels, self.taps),
            "ssm_norm.weight": (self.delta_size,),
            "ssm_out.weight": (self.width, values),
        }

    def _ffn(self) -> Shapes:
        return {
            "ffn_gate.weight": (self.ffn_width, self.width),
            "ffn_up.weight": (self.ffn_width, self.width),
            "ffn_down.weight": (self.width, self.ffn_width),
        }

    def _experts(self) -> Shapes:
        width, inner, shared = self.width, self.expert_width, self.shared_width
        shapes: Shapes = {
            "ffn_gate_inp.weight": (self.experts, width),
            "ffn_gate_exps.weight": (self.experts, inner, width),
            "ffn_up_exps.weight": (self.experts, inner, width),
            "ffn_down_exps.weight": (self.experts, width, inner),
        }
        if shared:
            shapes |= {
                "ffn_gate_inp_shexp.weight": (width,),
                "ffn_gate_shexp.weight": (shared, width),
                "ffn_up_shexp.weight": (shared, width),
                "ffn_down_shexp.weight": (width, shared),
            }
        return shapes

    def _drafting(self) -> Shapes:
        return {
            "nextn.eh_proj.weight": (self.width, 2 * self.width),
            "nextn.enorm.weight": (self.width,),
            "nextn.hnorm.weight": (self.width,),
            "nextn.shared_head_norm.weight": (self.width,),
        }


@cache
def _tensors(shape: ModelShape) -> Shapes:
    shapes: Shapes = {"token_embd.weight": (shape.vocabulary_size, shape.width)}
    for layer in range(shape.layers + shape.draft_blocks):
        shapes |= {f"blk.{layer}.{name}": s for name, s in shape.layer_tensors(layer).items()}
    shapes["output_norm.weight"] = (shape.width,)
    if not shape.tied:
        shapes["output.weight"] = (shape.vocabulary_size, shape.width)
    return shapes


_EXPERTS = {"experts": 8, "experts_used": 3, "expert_width": 32, "shared_width": 64}

SMALL_SHAPES = {
    "llama": ModelShape("llama", tied=True, epsilon=1e-5),
    "qwen3": ModelShape("qwen3", head_size=32, rotated=32, tied=True, rope_base=1e6),
    "qwen35": ModelShape("qwen35", head_size=32, rotated=8, draft_blocks=1),
    "qwen35moe": ModelShape(
        "qwen35moe", head_size=32, rotated=8, heads=6, draft_blocks=1, **_EXPERTS
    ),
}

_HYBRID = {
    "head_size": 256,
    "rotated": 64,
    "rope_base": 1e7,
    "vocabulary_size": 248_320,
    "key_heads": 16,
    "delta_size": 128,
    "draft_blocks": 1,
    "kind": GgmlType.Q4_0,
}
_FULL_EXPERTS = {"experts": 256, "experts_used": 8, "kv_heads": 2}

# The figures of the engine page, section 2 and 3.
CATALOGUE_SHAPES = {
    "qwen3-0.6b": ModelShape(
        "qwen3",
        layers=28,
        width=1024,
        heads=16,
        kv_heads=8,
        head_size=128,
        rotated=128,
        ffn_width=3072,
        vocabulary_size=151_936,
        rope_base=1e6,
        tied=True,
        kind=GgmlType.Q8_0,
    ),
    "qwen3.8-27b": ModelShape(
        "qwen35",
        layers=64,
        width=5120,
        heads=24,
        kv_heads=4,
        ffn_width=17_408,
        value_heads=48,
        **_HYBRID,
    ),
    "qwen3.6-35b-moe": ModelShape(
        "qwen35moe",
        layers=40,
        width=2048,
        heads=16,
        value_heads=32,
        expert_width=512,
        shared_width=512,
        **_HYBRID,
        **_FULL_EXPERTS,
    ),
    "qwen3.5-122b-moe": ModelShape(
        "qwen35moe",
        layers=48,
        width=3072,
        heads=32,
        value_heads=64,
        expert_width=1024,
        shared_width=1024,
        **_HYBRID,
        **_FULL_EXPERTS,
    ),
}
