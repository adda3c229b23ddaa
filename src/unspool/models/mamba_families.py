"""Families with Mamba-2 layers: Granite 4 and Nemotron-H."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from ..core.errors import BadModel
from .config_fields import ConfigFields, elsewhere
from .hybrid import AHEAD, MOST_EXPERTS, PATTERN, UNROUTED, experts_of, kinds_of, mixed, size_of, told, usual
from .layer_shape import ExpertSpec, LayerSpec
from .mixer_shape import MambaSpec
from .shape import Shape

_INFINITY = {"__float__": "Infinity"}  # as transformers writes it


def granite_settings(fields: ConfigFields) -> Mapping[str, object]:
    """Those of the Llama model whose attention it has."""
    return {**told(fields), "intermediate_size": fields.whole("shared_intermediate_size", 1024)}


def granite(plain: Shape, fields: ConfigFields) -> Shape:
    """The shape with its Mamba-2 layers, its multipliers and its experts."""
    heads, inner = fields.whole("mamba_n_heads", 128), fields.whole("mamba_expand", 2) * plain.dim
    head_dim = fields.get("mamba_d_head")
    mamba = MambaSpec(
        heads=heads,
        head_dim=inner // heads if head_dim in (None, "auto") else fields.whole("mamba_d_head"),
        groups=fields.whole("mamba_n_groups", 1),
        state_dim=fields.whole("mamba_d_state", 256),
        size=size_of(fields, "mamba_d_conv", 4),
        limits=_limits(fields),
        bias=fields.flag("mamba_proj_bias"),
        conv_bias=fields.flag("mamba_conv_bias", True),
    )
    _grouped(fields, mamba)
    mixture = None
    if fields.count("num_local_experts", 8):
        mixture = ExpertSpec(
            count=experts_of(fields, "num_local_experts", 8),
            active=fields.whole("num_experts_per_tok", 2),
            hidden=fields.whole("intermediate_size"),
            shared=plain.hidden,
            biased=False,
            scores="softmax",
        )
    told_places = fields.get("position_embedding_type") == "rope"
    attention = replace(plain.attention(), scale=fields.real("attention_multiplier", 1.0))
    attention = attention if told_places else replace(attention, rope=None)
    kinds = kinds_of(fields, plain.layers, lambda _: "linear_attention")
    usual(fields, normalization_function="rmsnorm")
    fields.pass_over("init_method", "mamba_chunk_size", "mamba_expand", "num_experts_per_tok")
    return replace(
        plain,
        mixture=mixture,
        embed_scale=fields.real("embedding_multiplier", 1.0),
        residual_scale=fields.real("residual_multiplier", 1.0),
        logit_scale=1 / fields.real("logits_scaling", 1.0),
        each=mixed(plain, kinds, attention, mamba, [mixture] * plain.layers),
    )


def nemotron_settings(fields: ConfigFields) -> Mapping[str, object]:
    """Those of the Llama model whose attention it has."""
    given = told(fields, head_dim=128, rms_norm_eps=fields.real("layer_norm_epsilon", 1e-5))
    return {**given, "num_hidden_layers": len(_blocks(fields)), "hidden_act": "silu"}


def nemotron(plain: Shape, fields: ConfigFields) -> Shape:
    """The shape with layers that are a mixer or a perceptron each, and places that are not told."""
    if fields.text("mlp_hidden_act", "relu2") != "relu2" or fields.text("mamba_hidden_act", "silu") != "silu":
        raise elsewhere(fields.source, "its activations are not relu2 and silu")
    mamba = MambaSpec(
        heads=fields.whole("mamba_num_heads", 128),
        head_dim=fields.whole("mamba_head_dim", 64),
        groups=fields.whole("n_groups", 8),
        state_dim=fields.whole("ssm_state_size", 128),
        size=size_of(fields, "conv_kernel", 4),
        limits=(fields.real("time_step_min", 0.001), inf),
        bias=fields.flag("use_bias"),
        conv_bias=fields.flag("use_conv_bias", True),
        norm_groups=fields.whole("n_groups", 8),
    )
    _grouped(fields, mamba)
    attention, blocks = replace(plain.attention(), rope=None), _blocks(fields)
    made: dict[str, LayerSpec] = {
        "linear_attention": LayerSpec(mamba, 0),
        "full_attention": LayerSpec(attention, 0),
        "mlp": LayerSpec(None, plain.hidden, gated=False),
    }
    if "moe" in blocks:
        if fields.get("moe_latent_size") is not None:
            raise elsewhere(fields.source, "its experts read a latent (moe_latent_size)")
        mixture = ExpertSpec(
            count=experts_of(fields, "n_routed_experts", 8),
            active=fields.whole("num_experts_per_tok", 2),
            hidden=fields.whole("moe_intermediate_size", 7688),
            shared=fields.whole("moe_shared_expert_intermediate_size", 7688),
            groups=fields.whole("n_group", 1),
            open=fields.whole("topk_group", 1),
            normed=fields.flag("norm_topk_prob", True),
            scale=fields.real("routed_scaling_factor", 1.0),
            gated=False,
        )
        made["moe"] = LayerSpec(None, 0, mixture)
    fields.pass_over(*AHEAD, "mtp_layers_block_type", "mtp_hybrid_override_pattern", "num_hidden_layers", "layer_types")
    fields.pass_over(
        "chunk_size", "mamba_chunk_size", "expand", "mamba_expand", "num_logits_to_keep", "hybrid_override_pattern"
    )
    fields.pass_over("rescale_prenorm_residual", "use_mamba_kernels", "moe_shared_expert_overlap", "n_shared_experts")
    fields.pass_over("time_step_max", "time_step_floor", "time_step_limit", "partial_rotary_factor", *UNROUTED)
    each = tuple(made[kind] for kind in blocks)
    own = made["moe"].mixture if "moe" in made else None
    return replace(plain, each=each, mixture=own, activation="relu2", mlp_bias=fields.flag("mlp_bias"), wide_norms=True)


def _blocks(fields: ConfigFields) -> list[str]:
    pattern = fields.get("hybrid_override_pattern")
    if isinstance(pattern, str) and not fields.get("layers_block_type"):
        if len(pattern) > MOST_EXPERTS or set(pattern) - set(PATTERN):
            raise fields.fail("hybrid_override_pattern", f"a pattern of {', '.join(PATTERN)}")
        return [PATTERN[letter] for letter in pattern]
    kinds = fields.get("layers_block_type")
    if not isinstance(kinds, list) or not 0 < len(kinds) <= MOST_EXPERTS:
        raise fields.fail("layers_block_type", f"a list of 1 to {MOST_EXPERTS} layer types")
    return kinds_of(fields, len(kinds))


def _limits(fields: ConfigFields) -> tuple[float, float]:
    value = fields.get("time_step_limit")
    if value is None:
        return 0.0, inf
    limits = [inf if x == _INFINITY else x for x in value] if isinstance(value, list) else []
    if len(limits) != 2 or not all(isinstance(x, float) or (type(x) is int and x < MOST_EXPERTS) for x in limits):
        raise fields.fail("time_step_limit", "two numbers")
    if not 0 <= limits[0] <= limits[1]:
        raise fields.fail("time_step_limit", "two numbers from 0 on, the larger one last")
    return float(limits[0]), float(limits[1])


def _grouped(fields: ConfigFields, mamba: MambaSpec) -> None:
    if mamba.head_dim < 1 or mamba.heads % mamba.groups or mamba.inner % mamba.norm_groups:
        raise BadModel(
            f"{fields.source}: {mamba.heads} Mamba heads of {mamba.head_dim} cannot be cut into {mamba.groups} equal "
            "groups. Its configuration is damaged."
        )
