"""Families with latent attention (MLA): DeepSeek-V3, GLM-4.7-Flash and MiniCPM3."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from .config_fields import ConfigFields
from .hybrid import AHEAD, UNROUTED, experts_of, told, usual
from .layer_shape import ExpertSpec, LayerSpec
from .mixer_shape import LatentSpec
from .shape import Shape


def settings(fields: ConfigFields) -> Mapping[str, object]:
    """Those of the Llama model whose heads turn as its keys do."""
    known = {"minicpm3": (32, True, 1e-5), "glm4_moe_lite": (64, False, 1e-5)}
    width, tied, eps = known.get(fields.text("model_type"), (64, False, 1e-6))
    given = told(fields, tie_word_embeddings=tied, rms_norm_eps=eps)
    heads = fields.whole("num_attention_heads")
    return {**given, "head_dim": fields.whole("qk_rope_head_dim", width), "num_key_value_heads": heads}


def latent(plain: Shape, fields: ConfigFields) -> Shape:
    """The shape with its latents, its experts and its multipliers."""
    small = plain.family == "minicpm3"
    nope, bias = fields.whole("qk_nope_head_dim", 64 if small else 128), fields.flag("attention_bias")
    value = fields.whole("v_head_dim", plain.dim // plain.heads if small else 128)
    scaling = plain.rope_scaling
    grown = 1.0
    if scaling is not None and scaling.mscale_all and scaling.factor > 1:
        grown = 0.1 * scaling.mscale_all * math.log(scaling.factor) + 1.0
    mixer = LatentSpec(
        heads=plain.heads,
        rank=fields.whole("kv_lora_rank", 256 if small else 512),
        query_rank=fields.whole_or_none("q_lora_rank"),
        plain=nope,
        value_dim=value,
        scale=(nope + plain.rotary) ** -0.5 * grown**2,
        rope=plain.rope,
        interleaved=not small and fields.flag("rope_interleave", True),
        bias=bias,
    )
    usual(fields, scoring_func="sigmoid", topk_method="noaux_tc", moe_layer_freq=1, partial_rotary_factor=1.0)
    fields.pass_over(*AHEAD, *UNROUTED, "ep_size", "seq_aux", "aux_loss_alpha", "qk_head_dim", "first_k_dense_replace")
    mixtures = _mixtures(plain, fields)
    each = tuple(LayerSpec(mixer, plain.hidden, mixture) for mixture in mixtures)
    plain = replace(plain, each=each, mixture=mixtures[-1], qkv_bias=False, out_bias=bias)
    if not small:
        return plain
    depth = fields.real("scale_depth", 1.4) / math.sqrt(plain.layers)
    base = fields.whole("dim_model_base", 256)
    return replace(
        plain, embed_scale=fields.real("scale_emb", 12.0), residual_scale=depth, logit_scale=base / plain.dim
    )


def _mixtures(plain: Shape, fields: ConfigFields) -> list[ExpertSpec | None]:
    if not fields.get("n_routed_experts"):
        return [None] * plain.layers
    hidden = fields.whole("moe_intermediate_size")
    mixture = ExpertSpec(
        count=experts_of(fields, "n_routed_experts"),
        active=fields.whole("num_experts_per_tok"),
        hidden=hidden,
        shared=hidden * fields.count("n_shared_experts", 1),
        groups=fields.whole("n_group", 1),
        open=fields.whole("topk_group", 1),
        normed=fields.flag("norm_topk_prob", True),
        scale=fields.real("routed_scaling_factor", 1.0),
    )
    kinds = fields.get("mlp_layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != plain.layers:
            raise fields.fail("mlp_layer_types", f"a list of {plain.layers} types")
        return [mixture if kind == "sparse" else None for kind in kinds]
    dense = fields.count("first_k_dense_replace", 1)
    return [None if layer < dense else mixture for layer in range(plain.layers)]
