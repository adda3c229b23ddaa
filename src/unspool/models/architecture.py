"""The architecture keys of a GGUF file, read into a Shape."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from .config_fields import ConfigFields, elsewhere
from .layer_shape import ExpertSpec, LayerSpec, RopeScaling
from .shape import Shape

ARCHITECTURES = (
    *("llama", "qwen2", "qwen3", "gemma3", "gemma2", "qwen2moe", "qwen3moe", "gpt-oss", "olmo2", "granite"),
    *("granitemoe", "smollm3", "glm4moe", "phi3"),
)
LONGROPE = ("rope_factors_short.weight", "rope_factors_long.weight")
PERMUTED = ("llama", "granite", "granitemoe", "smollm3")  # whose rotary pairs lie side by side in the file
_CHANGES: Mapping[str, tuple[object, ...]] = {
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attention.causal": (True,),
    "attention.temperature_scale": (0.0,),
    "attention.chunk_size": (),
    "attention.key_length_swa": (),
    "attention.shared_kv_layers": (0,),
    "attention.q_lora_rank": (0,),
    "attention.kv_lora_rank": (0,),
    "embedding_length_per_layer_input": (0,),
    "use_parallel_residual": (False,),
    "expert_weights_scale": (0.0, 1.0),
    "expert_group_count": (0, 1),
    "leading_dense_block_count": (0,),
    "interleave_moe_layer_step": (1,),
    "moe_every_n_layers": (0, 1),
    "ssm.state_size": (),
}
"""Keys that change the function in ways that no architecture here has, and the values that do not."""

_TURN_IN_PART = ("glm4moe", "phi3")
_HEAD_NORMS = ("qwen3", "qwen3moe", "gemma3")
_SOFTMAX, _SIGMOID, _SOFTMAX_OF_CHOSEN = 1, 2, 3
_MOST_EXPERTS = 4096
_GEMMA2_27B_LAYERS = 46
_GEMMA_PATTERN = 6
_GEMMA_27B_LAYERS = 62
_MOST_LAYERS = 4096


def read_architecture(metadata: Mapping[str, object], tensors: Collection[str], source: str) -> Shape:
    """Build the Shape of a GGUF file (Mistral and SmolLM files call themselves llama)."""
    family = ConfigFields(metadata, source).text("general.architecture")
    if family not in ARCHITECTURES:
        raise elsewhere(source, f"its architecture is {family!r} (known: {', '.join(ARCHITECTURES)})")
    fields = ConfigFields(metadata, source, f"{family}.")
    for name, usual in _CHANGES.items():
        known = family == "glm4moe" and name in ("expert_weights_scale", "leading_dense_block_count")
        if not known and fields.get(name) is not None and fields.get(name) not in usual:
            raise elsewhere(source, f"it sets {name}")
    for name in () if family.startswith("granite") else ("embedding_scale", "residual_scale", "logit_scale"):
        if fields.get(name) not in (None, 0.0, 1.0):
            raise elsewhere(source, f"it sets {name}")
    gemma = family in ("gemma2", "gemma3")
    layers = fields.whole("block_count") - fields.count("nextn_predict_layers", 0)  # which are left out
    if not 0 < layers <= _MOST_LAYERS:
        raise fields.fail("block_count", f"at most {_MOST_LAYERS}, and some beside those that guess further ahead")
    dim, heads = fields.whole("embedding_length"), fields.whole("attention.head_count")
    head_dim = fields.whole("attention.key_length", dim // heads)
    if fields.whole("attention.value_length", head_dim) != head_dim:
        raise elsewhere(source, "its keys and values differ in width")
    rotary = fields.whole("rope.dimension_count", head_dim)
    if rotary != head_dim and family not in _TURN_IN_PART:
        raise elsewhere(source, "it turns only a part of each head")
    context = fields.whole("context_length")
    shape = Shape(
        family=family,
        layers=layers,
        dim=dim,
        heads=heads,
        kv_heads=fields.whole("attention.head_count_kv", heads),
        head_dim=head_dim,
        hidden=_hidden(fields),
        vocab=_vocab(metadata, fields),
        context=context,
        norm_eps=fields.real("attention.layer_norm_rms_epsilon"),
        rope_theta=fields.real("rope.freq_base", 1_000_000.0 if family == "gemma3" else 10_000.0),
        rope_scaling=_longrope(fields, context) if set(LONGROPE) & set(tensors) else _scaling(fields, context),
        qkv_bias="blk.0.attn_q.bias" in tensors if tensors else family in ("qwen2", "qwen2moe", "gpt-oss"),
        out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_gate.bias" in tensors,
        qk_norm=family in _HEAD_NORMS or (family == "glm4moe" and "blk.0.attn_q_norm.weight" in tensors),
        rotary=rotary,
        tied="output.weight" not in tensors,
        windows=_windows(fields, layers, family),
        post_norms=gemma,
        wide_norms=gemma,
        embed_scale=dim**0.5 if gemma else 1.0,
        activation="gelu_tanh" if gemma else "silu",
        local_rope_theta=fields.real("rope.freq_base_swa", 10_000.0) if family == "gemma3" else None,
        query_scale=_query_scale(fields, family, dim, heads, head_dim, layers),
        logit_softcap=fields.real_or_none("final_logit_softcapping"),
    )
    return _finished(shape, fields, family)


def _hidden(fields: ConfigFields) -> int:
    """The width of the perceptrons; a file of experts alone may have none."""
    return fields.whole("feed_forward_length", fields.whole_or_none("expert_feed_forward_length"))


def _query_scale(fields: ConfigFields, family: str, dim: int, heads: int, head_dim: int, layers: int) -> float:
    """The format has no key for Gemma's; the 27B models are those of their families that differ."""
    odd = {"gemma3": _GEMMA_27B_LAYERS, "gemma2": _GEMMA2_27B_LAYERS}.get(family)
    return fields.real("attention.scale", (dim / heads) ** -0.5 if layers == odd else head_dim**-0.5)


def _finished(shape: Shape, fields: ConfigFields, family: str) -> Shape:
    """The shape with what its family adds to Llama."""
    mixers = list(shape.attentions)
    cap = fields.real_or_none("attn_logit_softcapping")
    if family == "gemma2":
        mixers = [replace(mixer, softcap=cap) for mixer in mixers]
    elif cap is not None:
        raise elsewhere(fields.source, "it sets attn_logit_softcapping")
    if family == "olmo2":
        shape = replace(shape, pre_norms=False, post_norms=True, wide_norms=True)
        mixers = [replace(mixer, qk_norm="all") for mixer in mixers]
    if family == "smollm3":
        mixers = [replace(m, rope=None) if (i + 1) % 4 == 0 else m for i, m in enumerate(mixers)]
    if family == "gpt-oss":
        shape = replace(shape, activation="clamped_swish")
        mixers = [replace(mixer, sinks=True) for mixer in mixers]
    if family in ("granite", "granitemoe"):
        shape = replace(
            shape,
            embed_scale=fields.real("embedding_scale", 1.0),
            residual_scale=fields.real("residual_scale", 1.0),
            logit_scale=1 / fields.real("logit_scale", 1.0),
        )
    mixture = _mixture(shape, fields, family)
    dense = 0 if mixture is None else mixture.dense
    each = tuple(LayerSpec(m, shape.hidden, mixture if n >= dense else None) for n, m in enumerate(mixers))
    return replace(shape, mixture=mixture, each=each if mixture or mixers != list(shape.attentions) else ())


def _mixture(shape: Shape, fields: ConfigFields, family: str) -> ExpertSpec | None:
    count = fields.count("expert_count", 0)
    if not count:
        return None
    if count > _MOST_EXPERTS:
        raise fields.fail("expert_count", f"at most {_MOST_EXPERTS}")
    sigmoid = family == "glm4moe"
    known = {"glm4moe": (_SIGMOID,), "gpt-oss": (0, _SOFTMAX, _SOFTMAX_OF_CHOSEN)}.get(family, (0, _SOFTMAX))
    if fields.count("expert_gating_func", known[-1]) not in known:
        raise elsewhere(fields.source, f"its experts are chosen by function {fields.get('expert_gating_func')}")
    hidden = fields.whole("expert_feed_forward_length", shape.hidden)
    shared = fields.count("expert_shared_feed_forward_length", hidden * fields.count("expert_shared_count", 0))
    return ExpertSpec(
        count=count,
        active=fields.whole("expert_used_count"),
        hidden=hidden,
        shared=shared,
        biased=sigmoid,
        normed=fields.flag("expert_weights_norm", True) if sigmoid else family != "qwen2moe",
        scores="sigmoid" if sigmoid else "softmax",
        scale=fields.real("expert_weights_scale", 1.0) if sigmoid else 1.0,
        dense=fields.count("leading_dense_block_count", 0) if sigmoid else 0,
        shared_gate=bool(shared) and family == "qwen2moe",
        router_bias=family == "gpt-oss",
        expert_bias=family == "gpt-oss",
    )


def _vocab(metadata: Mapping[str, object], fields: ConfigFields) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return fields.whole("vocab_size", len(tokens) if isinstance(tokens, list) else None)


def _windows(fields: ConfigFields, layers: int, family: str) -> tuple[int | None, ...]:
    window = fields.count("attention.sliding_window", 0) or None
    every = {"gemma3": _GEMMA_PATTERN, "gemma2": 2, "gpt-oss": 2}.get(family)
    if every is not None:
        return tuple(window if (layer + 1) % every else None for layer in range(layers))
    return (window,) * layers


def _longrope(fields: ConfigFields, context: int) -> RopeScaling:
    """The scaling whose factors, one for each pair, are tensors; the checkpoint puts them in."""
    if fields.prefix != "phi3.":
        raise elsewhere(fields.source, "it has rope_factors")
    original = fields.whole("rope.scaling.original_context_length", context)
    told = fields.real_or_none("rope.scaling.attn_factor")
    return RopeScaling("longrope", context / original, original, attention_factor=told)


def _scaling(fields: ConfigFields, context: int) -> RopeScaling | None:
    """Read the scaling; that of Llama 3 is no key but a tensor of factors, which the checkpoint hands over apart."""
    kind = fields.text("rope.scaling.type", "none")
    old = fields.real_or_none("rope.scale_linear")
    if kind == "none" and old is not None and old != 1.0:
        return RopeScaling("linear", old, context)
    if kind == "none" and fields.real("rope.scaling.attn_factor", 1.0) != 1.0:
        raise elsewhere(fields.source, "it scales its rotary embeddings alone (rope.scaling.attn_factor)")
    if kind == "none":
        return None
    factor = fields.real("rope.scaling.factor", 1.0)
    original = fields.whole("rope.scaling.original_context_length", context)
    if kind == "linear":
        return RopeScaling("linear", factor, original)
    if kind == "yarn":
        # Here the stored factor multiplies the one YaRN gives, where config.json's replaces it.
        grown = fields.real("rope.scaling.attn_factor", 1.0) * (0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
        # And the ramp ends at whole pairs, also for gpt-oss, whose config.json does not round them.
        return RopeScaling("yarn", factor, original, attention_factor=grown)
    raise elsewhere(fields.source, f"its rotary scaling is {kind!r} (known: none, linear, yarn)")
