"""The config.json of a Hugging Face folder, read into a Shape.

Every family is one model with other numbers: `Usual` says what it takes for granted, and a function of
`models.families` adds what Llama's words cannot say. A setting that nobody has read and that is not known to leave the
function alone is refused by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .config_fields import ConfigFields, elsewhere
from .families import FAMILIES, TEXT_OF
from .families.usual import Usual
from .fillers import FILLERS, translated
from .hybrids import HYBRIDS
from .layer_shape import Activation, RopeScaling
from .ling import LING, settings, shaped
from .shape import Shape

PLAIN = ("llama", "mistral", "qwen2", "qwen3")  # families of one perceptron a layer, and nothing else
ACTIVATIONS: Mapping[str, Activation] = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_MOST_LAYERS = 4096


def read_config(config: Mapping[str, object], source: str) -> Shape:
    """Build the Shape that transformers would build from the same config.json."""
    fields = ConfigFields(config, source)
    family = fields.text("model_type")
    if family in FILLERS and not fields.get("num_experts"):
        told, filling = translated(config, family, source)
        return replace(shape_of(ConfigFields(told, source)), family=family, filling=filling)
    if family in LING:
        return shaped(shape_of(ConfigFields(settings(fields, family), source)), fields, family)
    text = fields.within("text_config") if family in TEXT_OF else None
    if text is not None:
        told = {"model_type": TEXT_OF[family], **text.values}
        if fields.get("tie_word_embeddings") is not None:
            told["tie_word_embeddings"] = fields.get("tie_word_embeddings")
        if fields.get("quantization_config") is not None:
            told["quantization_config"] = fields.get("quantization_config")
        return read_config(told, text.source)
    known = (*FAMILIES, *FILLERS, *LING, *HYBRIDS, *TEXT_OF)
    if family not in FAMILIES and family not in HYBRIDS:
        raise elsewhere(source, f"model_type is {family!r} (known: {', '.join(known)})")
    plain = ConfigFields(HYBRIDS[family].settings(fields), source) if family in HYBRIDS else fields
    shape = shape_of(plain)
    if family in HYBRIDS:
        shape = HYBRIDS[family].shaped(replace(shape, family=family), fields)
    for each in {id(part): part for part in (fields, plain)}.values():
        each.pass_over("quantization_config")  # of how weights are stored: `models.coded` reads it
    unread = list(dict.fromkeys([*fields.unread(), *plain.unread()]))
    if unread:
        raise elsewhere(
            source,
            f"it sets {', '.join(unread[:8])}{', ...' if len(unread) > 8 else ''}, which may change what it computes",
        )
    return shape


def shape_of(fields: ConfigFields) -> Shape:
    """The same for a family that has layers of its own, whatever else is set."""
    family = fields.text("model_type")
    usual, finish = FAMILIES[family]
    fields = fields.filled(usual.given)
    _refuse(fields)
    dim, heads = fields.whole("hidden_size"), fields.whole("num_attention_heads")
    head_dim = fields.whole("head_dim", usual.head_dim or dim // heads)
    context = fields.whole("max_position_embeddings", usual.context)
    windows = _windows(fields, usual)
    rotary = _rotary(fields, usual, head_dim)
    theta, scaling, local = _rope(fields, usual, context, rotary)
    bias = fields.flag("attention_bias", usual.bias_default)
    act = fields.text("hidden_act" if usual.activation is None else "hidden_activation", usual.activation or "silu")
    if act not in ACTIVATIONS:
        raise elsewhere(fields.source, f"its activation is {act!r}")
    shape = Shape(
        family=family,
        layers=len(windows),
        dim=dim,
        heads=heads,
        kv_heads=fields.whole("num_key_value_heads", heads),
        head_dim=head_dim,
        hidden=fields.whole("intermediate_size"),
        vocab=fields.whole("vocab_size"),
        context=context,
        norm_eps=fields.real("rms_norm_eps", usual.eps),
        rope_theta=theta,
        rope_scaling=scaling,
        qkv_bias=(bias and "qkv" in usual.biases) or "always" in usual.biases,
        out_bias=bias and "out" in usual.biases,
        mlp_bias="mlp" in usual.biases and fields.flag("mlp_bias"),
        tied=fields.flag("tie_word_embeddings", usual.tied),
        windows=windows,
        activation=ACTIVATIONS[act],
        local_rope_theta=local,
        query_scale=head_dim**-0.5,
        rotary=rotary,
    )
    return finish(shape, fields)


def _refuse(fields: ConfigFields) -> None:
    """Stop at settings that change the arithmetic in a way a Shape cannot say."""
    if fields.get("use_bidirectional_attention"):
        raise elsewhere(fields.source, "it attends in both directions")


def _windows(fields: ConfigFields, usual: Usual) -> tuple[int | None, ...]:
    layers = fields.whole("num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise fields.fail("num_hidden_layers", f"at most {_MOST_LAYERS}")
    slides = usual.sliding == "always" or (usual.sliding == "asked" and fields.flag("use_sliding_window"))
    # An absent key means the default of the class; null means no window.
    absent = "sliding_window" not in fields.values
    window = None
    if slides:
        window = usual.window if absent else fields.whole_or_none("sliding_window")
        if window is None and usual.sliding == "asked":
            window = fields.whole("sliding_window", usual.window)
    else:
        fields.pass_over("sliding_window", "max_window_layers")
    kinds = fields.get("layer_types") if usual.typed else None
    if kinds is None:
        return tuple(None if usual.sees_all(layer, fields) else window for layer in range(layers))
    fields.pass_over("max_window_layers", "sliding_window_pattern", "_sliding_window_pattern")
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise fields.fail("layer_types", f"a list of {layers} layer types")
    unknown = {str(kind) for kind in kinds} - {"full_attention", "sliding_attention", *usual.kinds}
    if unknown:
        raise elsewhere(fields.source, f"it has layers of type {', '.join(sorted(unknown))}")
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)


def _rotary(fields: ConfigFields, usual: Usual, head_dim: int) -> int:
    """How many numbers of a head turn."""
    group = fields.within("rope_parameters") or fields.within("rope_scaling") or fields
    group = group.within("full_attention") or group
    share = group.real("partial_rotary_factor", fields.real("partial_rotary_factor", usual.part or 1.0))
    if usual.part is None and share != 1.0:
        raise elsewhere(fields.source, "it turns only a part of each head (partial_rotary_factor)")
    rotary = int(head_dim * share)
    if rotary < 1:
        raise fields.fail("partial_rotary_factor", "a share of each head that is at least a pair of numbers")
    return head_dim if usual.part is not None and usual.proportional else rotary


def _rope(
    fields: ConfigFields, usual: Usual, context: int, rotary: int
) -> tuple[float, RopeScaling | None, float | None]:
    """Return the base, its scaling, and the base of windowed layers, from the old layout or the new one."""
    groups, empty = fields.within("rope_parameters"), ConfigFields({}, fields.source)
    if usual.local_theta is None:
        group = fields.within("rope_scaling") or groups or empty
        theta = group.real("rope_theta", fields.real("rope_theta", usual.theta))
        if group.get("rope_theta") is not None:
            fields.pass_over("rope_theta")
        return theta, _scaling(group, fields, context, rotary, usual), None
    whole = groups and groups.within("full_attention")
    local = (groups and groups.within("sliding_attention")) or empty
    scaling = fields.within("rope_scaling") or whole or empty
    theta = (whole or scaling).real("rope_theta", fields.real("rope_theta", usual.theta))
    if _scaling(local, fields, context, rotary, usual) is not None:
        raise elsewhere(fields.source, "its sliding layers scale their rotary embeddings")
    # Where windowed layers have no base of their own, they turn as the others do, unscaled.
    given = theta if usual.local_theta == usual.theta else usual.local_theta
    local_theta = local.real("rope_theta", fields.real("rope_local_base_freq", given))
    return theta, _scaling(scaling, fields, context, rotary, usual), local_theta


def _scaling(group: ConfigFields, fields: ConfigFields, context: int, rotary: int, usual: Usual) -> RopeScaling | None:
    kind = group.text("rope_type", group.text("type", "default"))
    group.pass_over("type", "partial_rotary_factor", "mrope_section", "mrope_interleaved")  # text has one place
    if kind in ("default", "mrope") or (kind == "proportional" and usual.proportional):
        fields.pass_over("original_max_position_embeddings")
        return None
    # Phi-style files keep the pre-training context beside the group, and then that one counts.
    original = fields.whole_or_none("original_max_position_embeddings")
    original = original or group.whole("original_max_position_embeddings", context)
    group.pass_over("original_max_position_embeddings")
    if kind == "linear":
        return RopeScaling("linear", group.real("factor"), original)
    if kind == "dynamic":
        return RopeScaling("dynamic", group.real("factor"), context)
    if kind == "llama3":
        low, high = group.real("low_freq_factor"), group.real("high_freq_factor")
        return RopeScaling("llama3", group.real("factor"), original, low_frequency=low, high_frequency=high)
    factor, attention = group.real("factor", context / original), group.real_or_none("attention_factor")
    if kind == "yarn" and not usual.old_longrope:
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
    if kind == "longrope" or (kind in ("su", "yarn") and usual.old_longrope):
        short, long = (group.reals(name, rotary // 2) for name in ("short_factor", "long_factor"))
        return RopeScaling(
            "longrope", factor, original, attention_factor=attention, short_factors=short, long_factors=long
        )
    raise elsewhere(fields.source, f"its rotary scaling is {kind!r} (known: linear, dynamic, llama3, yarn, longrope)")
