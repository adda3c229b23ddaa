"""The architecture keys of a GGUF file, read into a Shape."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from .config_fields import ConfigFields, elsewhere
from .layer_shape import RopeScaling
from .shape import Shape

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
_GEMMA_PATTERN = 6
_GEMMA_27B_LAYERS = 62
_MOST_LAYERS = 4096


def read_architecture(metadata: Mapping[str, object], tensors: Collection[str], source: str) -> Shape:
    """Build the Shape of a GGUF file (Mistral and SmolLM files call themselves llama)."""
    family = ConfigFields(metadata, source).text("general.architecture")
    if family not in ARCHITECTURES:
        raise elsewhere(source, f"its architecture is {family!r} (known: {', '.join(ARCHITECTURES)})")
    fields = ConfigFields(metadata, source, f"{family}.")
    if fields.get("expert_count"):
        raise elsewhere(source, "it is a mixture of experts")
    gemma = family == "gemma3"
    layers = fields.whole("block_count")
    if layers > _MOST_LAYERS:
        raise fields.fail("block_count", f"at most {_MOST_LAYERS}")
    dim, heads = fields.whole("embedding_length"), fields.whole("attention.head_count")
    head_dim = fields.whole("attention.key_length", dim // heads)
    if fields.whole("attention.value_length", head_dim) != head_dim:
        raise elsewhere(source, "its keys and values differ in width")
    if fields.whole("rope.dimension_count", head_dim) != head_dim:
        raise elsewhere(source, "it turns only a part of each head")
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if fields.get(cap):
            raise elsewhere(source, f"it sets {cap}")
    context = fields.whole("context_length")
    return Shape(
        family=family,
        layers=layers,
        dim=dim,
        heads=heads,
        kv_heads=fields.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        hidden=fields.whole("feed_forward_length"),
        vocab=_vocab(metadata, fields),
        context=context,
        norm_eps=fields.real("attention.layer_norm_rms_epsilon"),
        rope_theta=fields.real("rope.freq_base", 1_000_000.0 if gemma else 10_000.0),
        rope_scaling=_scaling(fields, context),
        qkv_bias="blk.0.attn_q.bias" in tensors if tensors else family == "qwen2",
        out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_gate.bias" in tensors,
        qk_norm=family in ("qwen3", "gemma3"),
        tied="output.weight" not in tensors,
        windows=_windows(fields, layers, gemma),
        post_norms=gemma,
        wide_norms=gemma,
        embed_scale=dim**0.5 if gemma else 1.0,
        activation="gelu_tanh" if gemma else "silu",
        local_rope_theta=fields.real("rope.freq_base_swa", 10_000.0) if gemma else None,
        # The format has no key for the query scale; the 27B model is the one of its family that differs.
        query_scale=(dim / heads) ** -0.5 if gemma and layers == _GEMMA_27B_LAYERS else head_dim**-0.5,
    )


def _vocab(metadata: Mapping[str, object], fields: ConfigFields) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return fields.whole("vocab_size", len(tokens) if isinstance(tokens, list) else None)


def _windows(fields: ConfigFields, layers: int, gemma: bool) -> tuple[int | None, ...]:
    window = fields.whole_or_none("attention.sliding_window")
    if gemma:
        return tuple(window if (layer + 1) % _GEMMA_PATTERN else None for layer in range(layers))
    return (window,) * layers


def _scaling(fields: ConfigFields, context: int) -> RopeScaling | None:
    """Read the scaling; that of Llama 3 is no key but a tensor of factors, which the checkpoint hands over apart."""
    kind = fields.text("rope.scaling.type", "none")
    old = fields.real_or_none("rope.scale_linear")
    if kind == "none" and old is not None and old != 1.0:
        return RopeScaling("linear", old, context)
    if kind == "none":
        return None
    factor = fields.real("rope.scaling.factor", 1.0)
    original = fields.whole("rope.scaling.original_context_length", context)
    if kind == "linear":
        return RopeScaling("linear", factor, original)
    if kind == "yarn":
        # Here the stored factor multiplies the one YaRN gives, where config.json's replaces it.
        grown = fields.real("rope.scaling.attn_factor", 1.0) * (0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
        return RopeScaling("yarn", factor, original, attention_factor=grown)
    raise elsewhere(fields.source, f"its rotary scaling is {kind!r} (known: none, linear, yarn)")
