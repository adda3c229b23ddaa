"""Families with one perceptron a layer: what each adds to Llama."""

from __future__ import annotations

from dataclasses import replace

from ..config_fields import ConfigFields, elsewhere
from ..layer_shape import AttentionSpec, LayerSpec
from ..shape import Shape

MINISTRAL_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}


def plain(shape: Shape, fields: ConfigFields) -> Shape:
    """Nothing."""
    return shape


def phi3(shape: Shape, fields: ConfigFields) -> Shape:
    """Nothing, but that files tell of two things that none has."""
    for name in ("full_attn_mod", "interpolate_factor"):
        if fields.get(name) not in (None, 1):
            raise elsewhere(fields.source, f"it sets {name}")
    return shape


def head_norms(shape: Shape, fields: ConfigFields) -> Shape:
    """Norms of each head's queries and keys."""
    return replace(shape, qk_norm=True)


def attending(shape: Shape, *mixers: AttentionSpec) -> Shape:
    """The shape whose layers attend so, one description for each or one for all."""
    each = mixers if len(mixers) == shape.layers else mixers * shape.layers
    layers = (LayerSpec(mixer, layer.hidden, layer.mixture) for mixer, layer in zip(each, shape.stack, strict=True))
    return replace(shape, each=tuple(layers))


def turning(shape: Shape, fields: ConfigFields) -> list[bool]:
    """Which layers are told places (RoPE): `no_rope_layers` has 1 for those."""
    listed, every = fields.get("no_rope_layers"), fields.whole("no_rope_layer_interval", 4)
    if not listed:
        return [(layer + 1) % every != 0 for layer in range(shape.layers)]
    if not isinstance(listed, list) or len(listed) < shape.layers or not set(map(str, listed)) <= {"0", "1"}:
        raise fields.fail("no_rope_layers", f"a list of {shape.layers} numbers, 0 or 1")
    return [flag == 1 for flag in listed[: shape.layers]]


def told_places(layer: int, fields: ConfigFields) -> bool:
    """In SmolLM3 windows are for layers that are not told places."""
    listed = fields.get("no_rope_layers")
    if isinstance(listed, list) and layer < len(listed):
        return bool(listed[layer])
    return (layer + 1) % fields.whole("no_rope_layer_interval", 4) != 0


def smollm3(shape: Shape, fields: ConfigFields) -> Shape:
    """Every fourth layer is not told places."""
    mixers = list(shape.attentions)
    turn = turning(shape, fields)
    return attending(shape, *(m if t else replace(m, rope=None) for m, t in zip(mixers, turn, strict=True)))


def ministral3(shape: Shape, fields: ConfigFields) -> Shape:
    """Queries grow with the logarithm of how often their place has outgrown the context of pre-training."""
    rope = fields.within("rope_parameters") or fields.within("rope_scaling")
    if rope is None:
        raise fields.fail("rope_parameters", "a group of settings")
    rope.pass_over("max_position_embeddings")
    by, context = rope.real_or_none("llama_4_scaling_beta"), rope.whole("original_max_position_embeddings")
    if by is None:
        return shape
    return attending(shape, *(replace(mixer, tempered=(by, context, 0)) for mixer in shape.attentions))


def olmo2(shape: Shape, fields: ConfigFields) -> Shape:
    """Norms stand behind attention and perceptron alone, and those of queries and keys go over all heads."""
    shape = replace(shape, pre_norms=False, post_norms=True, wide_norms=True)
    return attending(shape, *(replace(mixer, qk_norm="all") for mixer in shape.attentions))


def granite(shape: Shape, fields: ConfigFields) -> Shape:
    """Numbers multiply the embeddings, the scores, what is added to the residual stream, and the logits."""
    return replace(
        shape,
        embed_scale=fields.real("embedding_multiplier", 1.0),
        query_scale=fields.real("attention_multiplier", 1.0),
        residual_scale=fields.real("residual_multiplier", 1.0),
        logit_scale=1 / fields.real("logits_scaling", 1.0),
    )


def glm(shape: Shape, fields: ConfigFields) -> Shape:
    """Files have the two numbers of a rotary pair side by side."""
    if shape.rotary % 2:
        raise elsewhere(fields.source, f"it turns {shape.rotary} numbers of a head, which are no pairs")
    return replace(shape, interleaved=True)


def glm4(shape: Shape, fields: ConfigFields) -> Shape:
    """The same, with norms on both sides of attention and perceptron."""
    return replace(glm(shape, fields), post_norms=True)
