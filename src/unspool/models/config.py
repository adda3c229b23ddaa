"""The config.json of a Hugging Face folder, read into a Shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .config_fields import ConfigFields, elsewhere
from .fillers import FILLERS, translated
from .hybrid import text_of
from .hybrids import HYBRIDS
from .layer_shape import Activation, RopeScaling
from .ling import LING, settings, shaped
from .shape import Shape

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text")
ACTIVATIONS: Mapping[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_MOST_LAYERS = 4096


def read_config(config: Mapping[str, object], source: str) -> Shape:
    """Build the Shape that transformers would build from the same config.json."""
    fields = ConfigFields(config, source)
    family = fields.text("model_type")
    if family in FILLERS and not fields.get("num_experts"):
        told, filling = translated(config, family, source)
        return replace(read_config(told, source), family=family, filling=filling)
    if family in LING:
        return shaped(read_config(settings(fields, family), source), fields, family)
    if family in HYBRIDS:
        hybrid, text = HYBRIDS[family], text_of(fields)
        return hybrid.shaped(replace(read_config(hybrid.settings(text), source), family=family), text)
    if family not in FAMILIES:
        known = (*FAMILIES, *FILLERS, *LING, *HYBRIDS)
        raise elsewhere(source, f"model_type is {family!r} (known: {', '.join(known)})")
    _refuse(fields)
    gemma = family == "gemma3_text"
    dim, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    head_dim = fields.whole("head_dim", {"qwen3": 128, "gemma3_text": 256}.get(family, dim // heads))
    context = fields.whole("max_position_embeddings")
    windows = _windows(fields, family)
    theta, scaling, local = _rope(fields, family, context, head_dim)
    bias = fields.flag("attention_bias") and family != "mistral"
    act = fields.text("hidden_activation" if gemma else "hidden_act", "gelu_pytorch_tanh" if gemma else "silu")
    if act not in ACTIVATIONS:
        raise elsewhere(source, f"its activation is {act!r}")
    return Shape(
        family=family,
        layers=len(windows),
        dim=dim,
        heads=heads,
        kv_heads=fields.whole("num_key_value_heads", heads),
        head_dim=head_dim,
        hidden=fields.whole("intermediate_size"),
        vocab=fields.whole("vocab_size"),
        context=context,
        norm_eps=fields.real("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        qkv_bias=family == "qwen2" or bias,
        out_bias=family != "qwen2" and bias,
        mlp_bias=family == "llama" and fields.flag("mlp_bias"),
        qk_norm=family == "qwen3" or gemma,
        tied=fields.flag("tie_word_embeddings", gemma),
        windows=windows,
        post_norms=gemma,
        wide_norms=gemma,
        norm_offset=1.0 if gemma else 0.0,
        embed_scale=dim**0.5 if gemma else 1.0,
        activation=ACTIVATIONS[act],
        local_rope_theta=local,
        query_scale=fields.real("query_pre_attn_scalar", 256) ** -0.5 if gemma else head_dim**-0.5,
    )


def _refuse(fields: ConfigFields) -> None:
    """Stop at settings that change the arithmetic in a way a Shape cannot say."""
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "quantization_config"):
        if fields.get(name) is not None:
            raise elsewhere(fields.source, f"it sets {name}")
    if fields.get("use_bidirectional_attention"):
        raise elsewhere(fields.source, "it attends in both directions")


def _windows(fields: ConfigFields, family: str) -> tuple[int | None, ...]:
    layers = fields.whole("num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise fields.fail("num_hidden_layers", f"at most {_MOST_LAYERS}")
    if family == "llama":
        return (None,) * layers
    if family == "mistral":
        # An absent key means the default of the class, 4096; null means no window.
        absent = "sliding_window" not in fields.values
        return (4096 if absent else fields.whole_or_none("sliding_window"),) * layers
    slides = family == "gemma3_text" or fields.flag("use_sliding_window")
    window = fields.whole("sliding_window", 4096) if slides else None
    kinds = fields.get("layer_types")
    if kinds is None and family == "gemma3_text":
        pattern = fields.whole("sliding_window_pattern", 6)
        return tuple(window if (layer + 1) % pattern else None for layer in range(layers))
    if kinds is None:
        first = fields.get("max_window_layers")
        first = first if isinstance(first, int) else 28
        return tuple(window if layer >= first else None for layer in range(layers))
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise fields.fail("layer_types", f"a list of {layers} layer types")
    unknown = {str(kind) for kind in kinds} - {"full_attention", "sliding_attention"}
    if unknown:
        raise elsewhere(fields.source, f"it has layers of type {', '.join(sorted(unknown))}")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _rope(
    fields: ConfigFields, family: str, context: int, head_dim: int
) -> tuple[float, RopeScaling | None, float | None]:
    """Return the base, its scaling, and the base of windowed layers, from the old layout or the new one."""
    groups = fields.within("rope_parameters")
    if family != "gemma3_text":
        group = fields.within("rope_scaling") or groups or ConfigFields({}, fields.source)
        theta = group.real("rope_theta", fields.real("rope_theta", 10_000.0))
        return theta, _scaling(group, fields, context, head_dim), None
    whole = groups and groups.within("full_attention")
    local = groups and groups.within("sliding_attention")
    scaling = fields.within("rope_scaling") or whole or ConfigFields({}, fields.source)
    theta = (whole or scaling).real("rope_theta", fields.real("rope_theta", 1_000_000.0))
    local = local or ConfigFields({}, fields.source)
    if _scaling(local, fields, context, head_dim) is not None:
        raise elsewhere(fields.source, "its sliding layers scale their rotary embeddings")
    local_theta = local.real("rope_theta", fields.real("rope_local_base_freq", 10_000.0))
    found = _scaling(scaling, fields, context, head_dim)
    if local_theta == theta and found is not None:
        raise elsewhere(fields.source, "its sliding layers share the base of the others but not their scaling")
    return theta, found, local_theta


def _scaling(group: ConfigFields, fields: ConfigFields, context: int, head_dim: int) -> RopeScaling | None:
    if group.real("partial_rotary_factor", fields.real("partial_rotary_factor", 1.0)) != 1.0:
        raise elsewhere(fields.source, "it turns only a part of each head (partial_rotary_factor)")
    kind = group.text("rope_type", group.text("type", "default"))
    if kind == "default":
        return None
    # Phi-style files keep the pre-training context beside the group, and then that one counts.
    original = fields.whole_or_none("original_max_position_embeddings")
    original = original or group.whole("original_max_position_embeddings", context)
    if kind == "linear":
        return RopeScaling("linear", group.real("factor"), original)
    if kind == "dynamic":
        return RopeScaling("dynamic", group.real("factor"), context)
    if kind == "llama3":
        low, high = group.real("low_freq_factor"), group.real("high_freq_factor")
        return RopeScaling("llama3", group.real("factor"), original, low_frequency=low, high_frequency=high)
    factor, attention = group.real("factor", context / original), group.real_or_none("attention_factor")
    if kind == "yarn":
        return RopeScaling(
            "yarn",
            factor,
            original,
            beta_fast=group.real("beta_fast", 32.0),
            beta_slow=group.real("beta_slow", 1.0),
            truncate=group.flag("truncate", True),
            attention_factor=attention,
            mscale=group.real_or_none("mscale"),
            mscale_all=group.real_or_none("mscale_all_dim"),
        )
    if kind == "longrope":
        short, long = (group.reals(name, head_dim // 2) for name in ("short_factor", "long_factor"))
        return RopeScaling(
            "longrope", factor, original, attention_factor=attention, short_factors=short, long_factors=long
        )
    raise elsewhere(fields.source, f"its rotary scaling is {kind!r} (known: linear, dynamic, llama3, yarn, longrope)")
