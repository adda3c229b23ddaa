"""The Ling family, mixtures of experts in the words of Qwen3, and LLaDA2, which fills holes with its layers.

LLaDA2 (2512.15745) sees its own block of 32 places, counted from the first, and all before it, and the law of a place
is read at that place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core.errors import BadModel
from .config_fields import ConfigFields
from .layer_shape import ExpertSpec
from .shape import DiffusionSpec, Shape
from .stored import Stored

LLADA2 = "llada2_moe"
LING = ("bailing_moe", "bailing_moe_v2", LLADA2)
_MASK, _BLOCK = 156895, 32  # of LLaDA2 where the file does not say
_PART = "partial_rotary_factor"
_MOST_EXPERTS = 4096
_SAME = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "tie_word_embeddings",
    "hidden_act",
    "quantization_config",
)
_USUAL: Mapping[str, object] = {
    "score_function": "sigmoid",
    "router_dtype": "fp32",
    "use_sliding_window": False,
    "use_rmsnorm": True,
    "norm_head": False,
    "norm_softmax": False,
}
_NAMES: Mapping[str, str] = {
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
}


def settings(fields: ConfigFields, family: str) -> Mapping[str, object]:
    """The settings of such a model as those of the Qwen3 model whose attention it has."""
    # The first models of this family have no key for the function, and take the softmax.
    given: dict[str, object] = {"score_function": "softmax"} if family == "bailing_moe" else {}
    given |= {name: value for name, value in fields.values.items() if name in _USUAL and value is not None}
    for name, value in given.items():
        if value != _USUAL[name]:
            raise BadModel(
                f"{fields.source}: {name} is {value!r}; of the Ling family the native runtime reads only models with "
                f"{name} {_USUAL[name]!r}. Use the transformers runtime for this model."
            )
    told = {name: fields.values[name] for name in _SAME if name in fields.values}
    turns = fields.within("rope_parameters")
    if turns is not None:
        told["rope_parameters"] = {name: value for name, value in turns.values.items() if name != _PART}
    head_dim = fields.whole("head_dim", fields.whole("hidden_size") // fields.whole("num_attention_heads"))
    return {**told, "model_type": "qwen3", "head_dim": head_dim, "rms_norm_eps": fields.real("rms_norm_eps", 1e-5)}


def shaped(plain: Shape, fields: ConfigFields, family: str) -> Shape:
    """The shape with these layers' experts, with its heads turned in part, and with what it fills holes by."""
    hidden, count = fields.whole("moe_intermediate_size"), fields.whole("num_experts")
    if count > _MOST_EXPERTS:
        raise fields.fail("num_experts", f"at most {_MOST_EXPERTS}")
    mixture = ExpertSpec(
        count=count,
        active=fields.whole("num_experts_per_tok"),
        hidden=hidden,
        shared=hidden * fields.count("num_shared_experts", 0),
        groups=fields.whole("n_group", 8),
        open=fields.whole("topk_group", 4),
        biased=fields.flag("moe_router_enable_expert_bias", True),
        normed=fields.flag("norm_topk_prob", True),
        scale=fields.real("routed_scaling_factor", 2.5),
        dense=fields.count("first_k_dense_replace", 0),
    )
    turns = fields.within("rope_parameters") or fields
    rotary = int(plain.head_dim * turns.real(_PART, fields.real(_PART, 0.5)))
    if rotary < 1:
        raise fields.fail(_PART, "a share of each head that is at least a pair of numbers")
    filling = None
    if family == LLADA2:
        mask, block = fields.whole("mask_token_id", _MASK), fields.whole("block_size", _BLOCK)
        filling = DiffusionSpec("blocks", "aligned", mask, block=block)
    return replace(
        plain,
        family=family,
        qkv_bias=fields.flag("use_qkv_bias"),
        out_bias=fields.flag("use_bias"),
        qk_norm=fields.flag("use_qk_norm", True),
        rotary=rotary,
        mixture=mixture,
        filling=filling,
    )


def stored(name: str, shape: Shape) -> Stored:
    """Where the files of this family keep a tensor: queries, keys and values lie on top of each other."""
    if name == "model.embed_tokens.weight":
        return Stored("model.word_embeddings.weight")
    part, ending = name.rsplit(".", 1)
    for ours, theirs in _NAMES.items():
        if part.endswith(ours):
            return Stored(f"{part.removesuffix(ours)}{theirs}.{ending}")
    ends = {"q": shape.heads, "k": shape.heads + shape.kv_heads, "v": shape.heads + 2 * shape.kv_heads}
    own = next((which for which in ends if part.endswith(f"self_attn.{which}_proj")), None)
    if own is None:
        return Stored(name)
    count = shape.heads if own == "q" else shape.kv_heads
    rows = slice((ends[own] - count) * shape.head_dim, ends[own] * shape.head_dim)
    fused = f"{part.removesuffix(f'self_attn.{own}_proj')}attention.query_key_value.{ending}"
    return Stored(fused, rows, ends["v"] * shape.head_dim)
