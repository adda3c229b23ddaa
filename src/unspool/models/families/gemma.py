"""The Gemma family: norms on both sides that multiply by 1 + w, scaled embeddings, windows, and capped scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..config_fields import ConfigFields, elsewhere
from ..layer_shape import ExpertSpec, LayerSpec, RopeSpec
from ..shape import Shape
from .dense import attending

USUAL: dict[str, Any] = {
    "head_dim": 256,
    "tied": True,
    "activation": "gelu_pytorch_tanh",
    "sliding": "always",
    "typed": True,
}

GIVEN: dict[str, object] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}


def _gemma(shape: Shape, fields: ConfigFields) -> Shape:
    fields.pass_over("hidden_act")  # files of the second generation name both, and the other one counts
    return replace(
        shape,
        post_norms=True,
        wide_norms=True,
        norm_offset=1.0,
        embed_scale=shape.dim**0.5,
        query_scale=fields.real("query_pre_attn_scalar", 256) ** -0.5,
        logit_softcap=fields.real_or_none("final_logit_softcapping"),
    )


def gemma2(shape: Shape, fields: ConfigFields) -> Shape:
    """Scores and logits are capped, at 50 and 30 where the file does not say."""
    shape = _gemma(shape, fields)
    absent = "final_logit_softcapping" not in fields.values
    cap = 50.0 if "attn_logit_softcapping" not in fields.values else fields.real_or_none("attn_logit_softcapping")
    shape = replace(shape, logit_softcap=30.0 if absent else shape.logit_softcap)
    return attending(shape, *(replace(mixer, softcap=cap) for mixer in shape.attentions))


def gemma4(shape: Shape, fields: ConfigFields) -> Shape:
    """Heads of another size in layers that see all, shared keys, normed values, and experts beside a perceptron.

    The last layers read the keys of the last one of their kind before them; small models are told every token again.
    """
    layers, rope = shape.layers, fields.within("rope_parameters")
    full = (rope and rope.within("full_attention")) or ConfigFields({}, fields.source)
    windows = (*shape.windows[:-1], None)  # the last layer sees all, whatever the file says
    own = layers - fields.count("num_kv_shared_layers", 0)
    equal, wide = fields.flag("attention_k_eq_v"), fields.flag("use_double_wide_mlp")
    local = replace(shape.attention(shape.windows[0] or 1), scale=1.0, qk_norm="head", value_norm=True)
    each = []
    for layer, window in enumerate(windows):
        mixer = replace(local, window=window)
        if window is None:
            head_dim, kv_heads = _whole_layer(shape, fields, layer, equal)
            turned = int(full.real("partial_rotary_factor", 0.25) * head_dim // 2)
            spec = RopeSpec(shape.rope_theta, head_dim, pairs=turned)
            mixer = replace(mixer, head_dim=head_dim, kv_heads=kv_heads, rope=spec, values_are_keys=equal)
        if layer >= own:
            before = [n for n in range(own) if (windows[n] is None) == (window is None)]
            if not before:
                raise fields.fail("num_kv_shared_layers", "a layer of each kind that has keys of its own")
            mixer = replace(mixer, keys_of=before[-1], values_are_keys=False)
        each.append(LayerSpec(mixer, shape.hidden * (2 if wide and layer >= own > 0 else 1), _beside(fields)))
    fields.pass_over("vocab_size_per_layer_input")
    return replace(
        shape,
        windows=windows,
        each=tuple(each),
        mixture=_beside(fields),
        post_norms=True,
        wide_norms=True,
        qk_norm=True,
        embed_scale=shape.dim**0.5,
        query_scale=1.0,
        logit_softcap=fields.real_or_none("final_logit_softcapping"),
        layer_scalars=True,
        told=fields.count("hidden_size_per_layer_input", 256),
    )


def _whole_layer(shape: Shape, fields: ConfigFields, layer: int, equal: bool) -> tuple[int, int]:
    """The size and the number of key heads of a layer that sees all."""
    listed = fields.within("per_layer_config")
    if listed is None:
        heads = fields.whole("num_global_key_value_heads", shape.kv_heads)
        return fields.whole("global_head_dim", 512), heads if equal else shape.kv_heads
    fields.pass_over("num_global_key_value_heads", "global_head_dim")
    name = next((name for name in listed.values if name.isdigit() and int(name) == layer), str(layer))
    own = listed.within(name) or ConfigFields({}, fields.source)
    return own.whole("head_dim", shape.head_dim), own.whole("num_key_value_heads", shape.kv_heads)


def _beside(fields: ConfigFields) -> ExpertSpec | None:
    if not fields.flag("enable_moe_block"):
        fields.pass_over("num_experts", "top_k_experts", "moe_intermediate_size")
        return None
    return ExpertSpec(
        count=fields.whole("num_experts"),
        active=fields.whole("top_k_experts"),
        hidden=fields.whole("moe_intermediate_size"),
        biased=False,
        scores="softmax",
        beside=True,
    )


def gemma3(shape: Shape, fields: ConfigFields) -> Shape:
    """Queries and keys are normed."""
    if fields.get("attn_logit_softcapping") is not None:
        raise elsewhere(fields.source, "it sets attn_logit_softcapping")
    return replace(_gemma(shape, fields), qk_norm=True)
