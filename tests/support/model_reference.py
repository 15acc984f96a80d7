"""The same weights in the reference classes of ``transformers`` (engine, sections 2 to 5).

Undoes what the file's makers did: permuted rows, folded norms, ``-exp(A_log)``, tiled value heads.
"""

from functools import cache

import numpy as np
import torch

from tests.support.model_shapes import ModelShape

__all__ = ["reference_config", "reference_logits", "reference_state"]

type State = dict[str, np.ndarray]

_SAME = {
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "ffn_down_exps.weight": "mlp.experts.down_proj",
    "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
    "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight",
}
_NORMS = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
}
_TILED_ROWS = {
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_dt.bias": "linear_attn.dt_bias",
}


@cache
def reference_logits(shape: ModelShape, ids: tuple[int, ...]) -> np.ndarray:
    """[n, vocabulary], float32 on the CPU. Once per shape and ids in a test session."""
    from tests.support.model_maker import ModelMaker

    model = _reference_class(shape)(_config_object(shape)).eval()
    state = {
        name: torch.from_numpy(np.ascontiguousarray(values))
        for name, values in reference_state(ModelMaker(shape)).items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert not [name for name in missing if "inv_freq" not in name]
    with torch.inference_mode():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def _reference_class(shape: ModelShape):
    import transformers

    names = {
        "llama": "LlamaForCausalLM",
        "qwen3": "Qwen3ForCausalLM",
        "qwen35": "Qwen3_5ForCausalLM",
        "qwen35moe": "Qwen3_5MoeForCausalLM",
    }
    return getattr(transformers, names[shape.architecture])


def _config_object(shape: ModelShape):
    config = _reference_class(shape).config_class(**reference_config(shape))
    config._attn_implementation = "eager"
    return config


def reference_config(shape: ModelShape) -> dict:
    """What ``config.json`` says."""
    config = {
        "model_type": shape.architecture,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "vocab_size": shape.vocabulary_size,
        "rms_norm_eps": shape.epsilon,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.rope_base,
    }
    if not shape.hybrid:
        return config | {"intermediate_size": shape.ffn_width}
    del config["model_type"]
    return config | _hybrid_config(shape)


def _hybrid_config(shape: ModelShape) -> dict:
    return {
        "intermediate_size": shape.ffn_width,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": shape.rope_base,
            "partial_rotary_factor": shape.rotated / shape.head_size,
        },
        "linear_num_key_heads": shape.key_heads,
        "linear_num_value_heads": shape.value_heads,
        "linear_key_head_dim": shape.delta_size,
        "linear_value_head_dim": shape.delta_size,
        "linear_conv_kernel_dim": shape.taps,
        "layer_types": [
            "full_attention" if shape.attends(layer) else "linear_attention"
            for layer in range(shape.layers)
        ],
        "num_experts": shape.experts,
        "num_experts_per_tok": shape.experts_used,
        "moe_intermediate_size": shape.expert_width,
        "shared_expert_intermediate_size": shape.shared_width,
    }


def reference_state(maker) -> State:
    """All weights by the reference's names. The draft block has none there."""
    shape = maker.shape
    folded = 1 if shape.hybrid else 0
    embedding = maker.values("token_embd.weight")
    state = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": maker.values("output_norm.weight") - folded,
        "lm_head.weight": embedding if shape.tied else maker.values("output.weight"),
    }
    for layer in range(shape.layers):
        part = {name: maker.values(f"blk.{layer}.{name}") for name in shape.layer_tensors(layer)}
        state |= {f"model.layers.{layer}.{n}": v for n, v in _layer(shape, part).items()}
    return state


def _layer(shape: ModelShape, part: State) -> State:
    folded = 1 if shape.hybrid else 0
    out = {_SAME[name]: values for name, values in part.items() if name in _SAME}
    out |= {_NORMS[name]: values - folded for name, values in part.items() if name in _NORMS}
    if shape.architecture == "llama":
        for name, heads in (("q", shape.heads), ("k", shape.kv_heads)):
            key = f"self_attn.{name}_proj.weight"
            out[key] = _half_split(out[key], heads)
    if "ssm_a" in part:
        out |= _delta_net(shape, part)
    if shape.experts:
        gate_up = [part["ffn_gate_exps.weight"], part["ffn_up_exps.weight"]]
        out["mlp.experts.gate_up_proj"] = np.concatenate(gate_up, axis=1)
        out["mlp.shared_expert_gate.weight"] = part["ffn_gate_inp_shexp.weight"][None]
    return out


def _half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Stored row ``2i + s`` of a head is row ``i + s * half`` of the reference."""
    return rows.reshape(heads, -1, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def _delta_net(shape: ModelShape, part: State) -> State:
    keys = 2 * shape.key_heads * shape.delta_size

    def grouped(values: np.ndarray) -> np.ndarray:
        """Value heads in the order of the reference: by key head."""
        heads = values.reshape(shape.value_heads // shape.key_heads, shape.key_heads, -1)
        return heads.swapaxes(0, 1).reshape(values.shape)

    def grouped_after_keys(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values[:keys], grouped(values[keys:])])

    return {
        **{name: grouped(part[short]) for short, name in _TILED_ROWS.items()},
        "linear_attn.in_proj_qkv.weight": grouped_after_keys(part["attn_qkv.weight"]),
        "linear_attn.conv1d.weight": grouped_after_keys(part["ssm_conv1d.weight"])[:, None],
        "linear_attn.A_log": np.log(-grouped(part["ssm_a"])),
        "linear_attn.out_proj.weight": grouped(part["ssm_out.weight"].T).T,
    }
