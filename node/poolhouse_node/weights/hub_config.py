"""``config.json`` and the tensor names beside safetensors, in the words of a GGUF header.

A model part then reads one vocabulary, whatever the file (engine, section 2).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from poolhouse_node.weights.errors import SafetensorsError

if TYPE_CHECKING:
    from poolhouse_node.weights.gguf_header import Scalar

__all__ = ["MAX_CONFIG_BYTES", "gguf_name", "read_hub_config"]

MAX_CONFIG_BYTES = 1 << 20
_ARCHITECTURES = ("llama", "qwen3")
_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.(.+)", re.ASCII)
_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
_SIZES = {
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
}


class _RopeParameters(msgspec.Struct):
    rope_type: str | None = None
    rope_theta: float | None = None
    type: str | None = None


class _HubConfig(msgspec.Struct):
    """Only what is needed. Some keys moved between releases of the format: both places count."""

    model_type: str
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_parameters: _RopeParameters | None = None
    rope_scaling: _RopeParameters | None = None
    tie_word_embeddings: bool = False


_decoder = msgspec.json.Decoder(_HubConfig)


def read_hub_config(text: bytes) -> tuple[dict[str, Scalar], bool]:
    """Metadata in GGUF words, and whether the head is the embedding.

    Raises :class:`SafetensorsError` for anything that is not a llama or qwen3 configuration.
    """
    try:
        config = _decoder.decode(text)
        values: dict[str, Any] = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SafetensorsError(f"The config.json of the model is not sound: {error}.") from error
    architecture = config.model_type
    if architecture not in _ARCHITECTURES or config.hidden_act != "silu":
        raise SafetensorsError(
            f"Safetensors of the model type {architecture!r} with {config.hidden_act!r} cannot be "
            f"read, only {' and '.join(_ARCHITECTURES)} with 'silu'; a GGUF file may be."
        )
    own = {_SIZES[key]: value for key, value in values.items() if key in _SIZES} | _rope(config)
    own["attention.layer_norm_rms_epsilon"] = config.rms_norm_eps
    metadata: dict[str, Scalar] = {
        f"{architecture}.{key}": _scalar(key, value)
        for key, value in own.items()
        if value is not None
    }
    return {"general.architecture": architecture, **metadata}, config.tie_word_embeddings


def _rope(config: _HubConfig) -> dict[str, Any]:
    parameters = config.rope_parameters or _RopeParameters()
    scaling = config.rope_scaling or parameters
    kind = scaling.rope_type or scaling.type or "default"
    base = config.rope_theta or parameters.rope_theta or 10_000.0
    return {"rope.freq_base": base, "rope.scaling.type": "none" if kind == "default" else kind}


def _scalar(key: str, value: object) -> Scalar:
    if not isinstance(value, int | float | str):
        raise SafetensorsError(f"The config.json of the model says {key} is {value!r}.")
    return value


def gguf_name(name: str) -> str:
    """What a GGUF calls a tensor. One that nobody knows keeps its own name, in its layer."""
    layer = _LAYER.fullmatch(name)
    if layer is None:
        return _WHOLE.get(name, name)
    return f"blk.{int(layer[1])}.{_IN_LAYER.get(layer[2], layer[2])}"
