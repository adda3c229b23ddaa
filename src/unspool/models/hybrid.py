"""Families whose layers are not all attention: LFM2, Qwen3-Next and Qwen3.5; `mamba` has further ones.

Their attention is told in the words of Llama; what stands in its place, and where, is added to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .config_fields import ConfigFields, elsewhere
from .layer_shape import AttentionSpec, ExpertSpec, LayerSpec
from .mixer_shape import ConvolutionSpec, DeltaSpec, RecurrentSpec
from .shape import Shape

_SAME = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
    "attention_bias",
    "hidden_act",
    "quantization_config",
)
_TURNS = ("rope_parameters", "rope_scaling")
_PLAIN = ("partial_rotary_factor", "mrope_section", "mrope_interleaved")  # sections of places, equal for text
_KINDS: Mapping[str, str] = {"attention": "full_attention", "mamba": "linear_attention", "conv": "linear_attention"}
PATTERN: Mapping[str, str] = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
AHEAD = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")  # guess further ahead: left out
UNROUTED = (
    "n_routed_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "n_group",
    "topk_group",
    "norm_topk_prob",
    "routed_scaling_factor",
)  # what files tell of experts that they do not have
MOST_EXPERTS = 4096


def told(fields: ConfigFields, **given: object) -> dict[str, object]:
    """The settings that are Llama's too, with some given where the file has none."""
    found = {name: value for name in _SAME if (value := fields.get(name)) is not None}
    for name in _TURNS:
        turns = fields.within(name)
        if turns is not None:
            turns.pass_over(*turns.values)  # what is told is looked at there
            found[name] = {key: value for key, value in turns.values.items() if key not in _PLAIN}
    return {**given, **found, "model_type": "llama"}


def kinds_of(fields: ConfigFields, layers: int, otherwise: Callable[[int], str] | None = None) -> list[str]:
    """What each layer is: full_attention, linear_attention, mlp or moe."""
    kinds = fields.get("layer_types") or fields.get("layers_block_type") or fields.get("layers_types")
    if kinds is None and otherwise is not None:
        return [otherwise(layer) for layer in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers:
        raise fields.fail("layer_types", f"a list of {layers} layer types")
    found = [_KINDS.get(str(kind), str(kind)) for kind in kinds]
    unknown = sorted(set(found) - set(PATTERN.values()))
    if unknown:
        raise elsewhere(fields.source, f"it has layers of type {', '.join(unknown)[:80]}")
    return found


def mixed(
    plain: Shape, kinds: list[str], attention: AttentionSpec, other: RecurrentSpec, mixtures: list[ExpertSpec | None]
) -> tuple[LayerSpec, ...]:
    """The layers of a model with these two mixers."""
    return tuple(
        LayerSpec(attention if kind == "full_attention" else other, plain.hidden, mixture)
        for kind, mixture in zip(kinds, mixtures, strict=True)
    )


# ---- LFM2


def lfm2_settings(fields: ConfigFields) -> Mapping[str, object]:
    """Those of the Llama model whose attention it has."""
    hidden = fields.whole("block_ff_dim", fields.whole("intermediate_size", 12288))
    if fields.text("model_type") == "lfm2" and fields.flag("block_auto_adjust_ff_dim", True):
        hidden = int(fields.real("block_ffn_dim_multiplier", 1.0) * int(2 * hidden / 3))
        several = fields.whole("block_multiple_of", 256)
        hidden = -(-hidden // several) * several
    tied = fields.flag("tie_embedding", fields.flag("tie_word_embeddings", True))
    given = told(fields, rope_theta=1_000_000.0, rms_norm_eps=fields.real("norm_eps", 1e-5))
    return {**given, "intermediate_size": hidden, "tie_word_embeddings": tied}


def lfm2(plain: Shape, fields: ConfigFields) -> Shape:
    """The shape with its gated convolutions."""
    full = fields.numbers("full_attn_idxs")
    listed = range(plain.layers) if full is None else full
    kinds = kinds_of(fields, plain.layers, lambda i: "full_attention" if i in listed else "linear_attention")
    mixtures: list[ExpertSpec | None] = [None] * plain.layers
    if fields.get("num_experts"):
        mixture = ExpertSpec(
            count=experts_of(fields, "num_experts"),
            active=fields.whole("num_experts_per_tok"),
            hidden=fields.whole("moe_intermediate_size"),
            biased=fields.flag("use_expert_bias", True),
            normed=fields.flag("norm_topk_prob", True),
            scale=fields.real("routed_scaling_factor", 1.0),
        )
        dense = fields.count("num_dense_layers", 2)
        mixtures = [None if layer < dense else mixture for layer in range(plain.layers)]
    usual(fields, block_use_swiglu=True, use_pos_enc=True)
    fields.pass_over("block_dim", "block_norm_eps", "conv_dim", "conv_dim_out", "num_heads", "theta")  # told twice
    fields.pass_over("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init")
    conv = ConvolutionSpec(size_of(fields, "conv_L_cache", 3), fields.flag("conv_bias"))
    each = mixed(plain, kinds, replace(plain.attention(), qk_norm="head"), conv, mixtures)
    return replace(plain, each=each, mixture=mixtures[-1])


# ---- Qwen3-Next and Qwen3.5


def qwen_settings(fields: ConfigFields) -> Mapping[str, object]:
    """Those of the Llama model whose attention it has."""
    hidden = fields.whole("intermediate_size", fields.whole("moe_intermediate_size", 512))
    return {**told(fields, head_dim=256), "intermediate_size": hidden}


def qwen(plain: Shape, fields: ConfigFields) -> Shape:
    """The shape with its gated delta nets, its gated attention and its experts."""
    every = fields.whole("full_attention_interval", 4)
    kinds = kinds_of(fields, plain.layers, lambda i: "linear_attention" if (i + 1) % every else "full_attention")
    turns = fields.within("rope_parameters") or fields.within("rope_scaling") or fields
    part = turns.real("partial_rotary_factor", fields.real("partial_rotary_factor", 0.25))
    rotary = int(plain.head_dim * part)
    if not 0 < rotary <= plain.head_dim or rotary % 2:
        raise fields.fail("partial_rotary_factor", "a share of each head that is a whole number of pairs")
    plain = replace(plain, rotary=rotary, norm_offset=1.0, wide_norms=True)
    delta = DeltaSpec(
        key_heads=fields.whole("linear_num_key_heads", 16),
        heads=fields.whole("linear_num_value_heads", 32),
        key_dim=fields.whole("linear_key_head_dim", 128),
        value_dim=fields.whole("linear_value_head_dim", 128),
        size=size_of(fields, "linear_conv_kernel_dim", 4),
        fused=plain.family == "qwen3_next",
    )
    if delta.heads % delta.key_heads:
        raise fields.fail("linear_num_value_heads", f"a multiple of {delta.key_heads}")
    mixtures: list[ExpertSpec | None] = [None] * plain.layers
    if fields.get("num_experts"):
        mixture = ExpertSpec(
            count=experts_of(fields, "num_experts"),
            active=fields.whole("num_experts_per_tok", 8),
            hidden=fields.whole("moe_intermediate_size", 512),
            shared=fields.whole("shared_expert_intermediate_size", 512),
            biased=False,
            normed=fields.flag("norm_topk_prob", True),
            scores="softmax",
            shared_gate=True,
        )
        alone, step = fields.numbers("mlp_only_layers") or (), fields.whole("decoder_sparse_step", 1)
        mixtures = [None if i in alone or (i + 1) % step else mixture for i in range(plain.layers)]
    usual(fields, attn_output_gate=True)
    fields.pass_over(*AHEAD, "mtp_use_dedicated_embeddings", "num_local_experts", "full_attention_interval")
    attention = replace(plain.attention(), gated=True, qk_norm="head")
    own = next((mixture for mixture in mixtures if mixture is not None), None)
    return replace(plain, each=mixed(plain, kinds, attention, delta, mixtures), mixture=own)


# ---- parts


def experts_of(fields: ConfigFields, name: str, usual: int | None = None) -> int:
    """A number of experts."""
    count = fields.whole(name, usual)
    if count > MOST_EXPERTS:
        raise fields.fail(name, f"at most {MOST_EXPERTS}")
    return count


def usual(fields: ConfigFields, **known: object) -> None:
    """Refuse what is set otherwise than in all models of a family."""
    for name, value in known.items():
        if fields.get(name) not in (None, value):
            raise elsewhere(fields.source, f"its {name} is {str(fields.get(name))[:40]!r} (known: {value!r})")


def size_of(fields: ConfigFields, name: str, usual: int) -> int:
    """Over how many tokens a convolution goes."""
    size = fields.whole(name, usual)
    if not 2 <= size <= 64:
        raise fields.fail(name, "a convolution over 2 to 64 tokens")
    return size
