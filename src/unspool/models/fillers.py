"""Families that fill holes, told in the words of the Llama family: LLaDA, Dream, SDAR and WeDLM."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.errors import BadModel
from .config_fields import ConfigFields
from .shape import DiffusionSpec

FILLERS: Mapping[str, tuple[str, int]] = {
    "llada": ("llama", 126336),
    "Dream": ("qwen2", 151666),
    "sdar": ("qwen3", 151669),
    "wedlm": ("qwen3", 151666),
}
"""The family that each one's layers are those of, and the mask that its models use where the file does not say."""

_LLADA_SETTINGS: Mapping[str, str] = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "mlp_hidden_size",
    "max_position_embeddings": "max_sequence_length",
    "rms_norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta",
    "tie_word_embeddings": "weight_tying",
    "hidden_act": "activation_type",
}
_LLADA_USUAL: Mapping[str, object] = {
    "block_type": "llama",
    "layer_norm_type": "rms",
    "rope": True,
    "alibi": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "bias_for_layer_norm": False,
    "attention_layer_norm": False,
    "input_emb_norm": False,
    "scale_logits": False,
}
_LLADA_OUTSIDE: Mapping[str, str] = {
    "model.embed_tokens.weight": "model.transformer.wte.weight",
    "model.norm.weight": "model.transformer.ln_f.weight",
    "lm_head.weight": "model.transformer.ff_out.weight",
}
_LLADA_LAYER: Mapping[str, str] = {
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
}


def translated(config: Mapping[str, object], family: str, source: str) -> tuple[Mapping[str, object], DiffusionSpec]:
    """The settings of such a model as those of the family whose layers it has, and how it fills holes."""
    fields = ConfigFields(config, source)
    layers, usual = FILLERS[family]
    mask = fields.whole("mask_token_id", usual)
    if family == "Dream":
        return {**config, "model_type": layers}, DiffusionSpec("full", "shifted", mask)
    if family == "sdar":
        return {**config, "model_type": layers}, DiffusionSpec(
            "blocks", "aligned", mask, block=fields.whole("block_size", 4)
        )
    if family == "wedlm":  # those that were made of Qwen2.5 norm neither queries nor keys
        layers = layers if fields.flag("qk_norm", True) else "qwen2"
        return {**config, "model_type": layers}, DiffusionSpec("causal", "aligned", mask)
    for name, value in _LLADA_USUAL.items():
        if config.get(name, value) != value:
            raise BadModel(
                f"{source}: {name} is {config[name]!r}; of the LLaDA family the native runtime reads only models with "
                f"{name} {value!r}. Use the transformers runtime for this model."
            )
    settings = {"rms_norm_eps": 1e-5} | {name: config[old] for name, old in _LLADA_SETTINGS.items() if old in config}
    vocab = config.get("embedding_size") or config.get("vocab_size")
    return {**settings, "model_type": layers, "vocab_size": vocab}, DiffusionSpec("full", "aligned", mask)


def stored_name(name: str, family: str) -> str:
    """How the files of a family call a tensor."""
    if family != "llada":
        return name
    if name in _LLADA_OUTSIDE:
        return _LLADA_OUTSIDE[name]
    _, _, layer, inner = name.split(".", 3)
    part, ending = inner.rsplit(".", 1)
    return f"model.transformer.blocks.{layer}.{_LLADA_LAYER[part]}.{ending}"
