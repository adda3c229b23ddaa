"""What files of the hybrid and latent families call their tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .ling import Stored
from .shape import Shape

Renames = Sequence[tuple[str, str]]

_LFM2: Renames = (
    ("model.norm.", "model.embedding_norm."),
    (".input_layernorm.", ".operator_norm."),
    (".post_attention_layernorm.", ".ffn_norm."),
    (".self_attn.o_proj.", ".self_attn.out_proj."),
    (".q_norm.", ".q_layernorm."),
    (".k_norm.", ".k_layernorm."),
    (".mlp.gate.expert_bias", ".feed_forward.expert_bias"),
    (".mlp.", ".feed_forward."),
    (".gate_proj.", ".w1."),
    (".up_proj.", ".w3."),
    (".down_proj.", ".w2."),
)
_QWEN: Renames = ((".mlp.shared_experts.", ".mlp.shared_expert."), (".mlp.shared_gate.", ".mlp.shared_expert_gate."))
_WITHIN: Renames = (("model.", "model.language_model."),)
_BIAS: Renames = ((".gate.expert_bias", ".gate.e_score_correction_bias"),)
_NEMOTRON: Renames = (
    ("model.embed_tokens.", "backbone.embeddings."),
    ("model.norm.", "backbone.norm_f."),
    ("model.", "backbone."),
    (".input_layernorm.", ".norm."),
    (".post_attention_layernorm.", ".norm."),
    (".self_attn.", ".mixer."),
    (".mamba.", ".mixer."),
    (".mlp.", ".mixer."),
    *_BIAS,
)
_GRANITE: Renames = ((".mlp.down_proj.", ".shared_mlp.output_linear."),)

NAMES: Mapping[str, Renames] = {
    "lfm2": _LFM2,
    "lfm2_moe": _LFM2,
    "qwen3_next": _QWEN,
    "qwen3_5_text": _QWEN,
    "qwen3_5_moe_text": _QWEN,
    "qwen3_5": (*_QWEN, *_WITHIN),
    "qwen3_5_moe": (*_QWEN, *_WITHIN),
    "granitemoehybrid": _GRANITE,
    "nemotron_h": _NEMOTRON,
    "deepseek_v3": _BIAS,
    "glm4_moe_lite": _BIAS,
    "minicpm3": (),
}


def stored(name: str, shape: Shape) -> Stored:
    """Where the files of these families keep a tensor."""
    if shape.family == "granitemoehybrid" and (".mlp.gate_proj." in name or ".mlp.up_proj." in name):
        gate, hidden = ".gate_proj." in name, shape.hidden
        at = name.partition(".mlp.")[0] + ".shared_mlp.input_linear.weight"
        return Stored(at, slice(0, hidden) if gate else slice(hidden, 2 * hidden), 2 * hidden)
    for ours, theirs in NAMES[shape.family]:
        name = name.replace(ours, theirs)
    return Stored(name)
