"""Families with experts: how each chooses among them, and where they stand."""

from __future__ import annotations

from dataclasses import replace

from ..config_fields import ConfigFields, elsewhere
from ..layer_shape import ExpertSpec, LayerSpec
from ..shape import Shape
from .dense import attending, granite, turning

_MOST_EXPERTS = 4096
GPT_OSS_YARN = {"rope_type": "yarn", "factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
LLAMA4: dict[str, object] = {
    "vocab_size": 202_048,
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "num_hidden_layers": 48,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "num_local_experts": 16,
}


def _count(fields: ConfigFields, *names: str) -> int:
    """How many experts there are, under the first of these names that is set."""
    name = next((name for name in names if fields.get(name) is not None), names[0])
    fields.pass_over(*names)
    if fields.whole(name) > _MOST_EXPERTS:
        raise fields.fail(name, f"at most {_MOST_EXPERTS}")
    return fields.whole(name)


def _sparse(shape: Shape, mixture: ExpertSpec, where: list[bool] | None = None) -> Shape:
    """The shape with experts in the layers that have them."""
    where = where or [layer >= mixture.dense for layer in range(shape.layers)]
    each = (replace(layer, mixture=mixture if has else None) for layer, has in zip(shape.stack, where, strict=True))
    return replace(shape, mixture=mixture, each=tuple(each))


def _qwen_layers(shape: Shape, fields: ConfigFields) -> list[bool]:
    """Which layers have experts: every `decoder_sparse_step`-th, but for those of `mlp_only_layers`."""
    step, dense = fields.whole("decoder_sparse_step", 1), fields.numbers("mlp_only_layers") or ()
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(shape.layers)]


def qwen2_sees_all(layer: int, fields: ConfigFields) -> bool:
    """Of the first `max_window_layers` layers every second is windowed."""
    first = fields.get("max_window_layers")
    return not ((layer + 1) % 2 and layer < (first if isinstance(first, int) else 28))


def qwen2_moe(shape: Shape, fields: ConfigFields) -> Shape:
    """Softmax routing, and a shared expert with a gate of its own."""
    mixture = ExpertSpec(
        count=_count(fields, "num_experts", "num_local_experts"),
        active=fields.whole("num_experts_per_tok", 4),
        hidden=fields.whole("moe_intermediate_size", 1408),
        shared=fields.whole("shared_expert_intermediate_size", 5632),
        biased=False,
        normed=fields.flag("norm_topk_prob"),
        scores="softmax",
        shared_gate=True,
    )
    shape = replace(shape, qkv_bias=fields.flag("qkv_bias", True))
    return _sparse(shape, mixture, _qwen_layers(shape, fields))


def qwen3_moe(shape: Shape, fields: ConfigFields) -> Shape:
    """Softmax routing, and norms of each head's queries and keys."""
    mixture = ExpertSpec(
        count=_count(fields, "num_experts", "num_local_experts"),
        active=fields.whole("num_experts_per_tok", 8),
        hidden=fields.whole("moe_intermediate_size", 768),
        biased=False,
        normed=fields.flag("norm_topk_prob"),
        scores="softmax",
    )
    shape = replace(shape, qk_norm=True)
    return _sparse(shape, mixture, _qwen_layers(shape, fields))


def mixtral(shape: Shape, fields: ConfigFields) -> Shape:
    """The softmax goes over the chosen experts alone."""
    count, active = _count(fields, "num_local_experts", "num_experts"), fields.whole("num_experts_per_tok", 2)
    return _sparse(shape, ExpertSpec(count, active, shape.hidden, biased=False, scores="softmax"))


def olmoe(shape: Shape, fields: ConfigFields) -> Shape:
    """Softmax routing, and norms of queries and keys over all heads."""
    if fields.get("clip_qkv") is not None:
        raise elsewhere(fields.source, "it sets clip_qkv")
    mixture = ExpertSpec(
        count=_count(fields, "num_experts", "num_local_experts"),
        active=fields.whole("num_experts_per_tok", 8),
        hidden=shape.hidden,
        biased=False,
        normed=fields.flag("norm_topk_prob"),
        scores="softmax",
    )
    return _sparse(attending(shape, *(replace(mixer, qk_norm="all") for mixer in shape.attentions)), mixture)


def granitemoe(shape: Shape, fields: ConfigFields) -> Shape:
    """Granite with the softmax over the chosen experts, and in later models a shared one."""
    mixture = ExpertSpec(
        count=_count(fields, "num_local_experts", "num_experts"),
        active=fields.whole("num_experts_per_tok", 2),
        hidden=shape.hidden,
        shared=fields.count("shared_intermediate_size", 0),
        biased=False,
        scores="softmax",
    )
    return _sparse(granite(shape, fields), mixture)


def glm4_moe(shape: Shape, fields: ConfigFields) -> Shape:
    """Sigmoid routing in groups with a correction of the choice, shared experts, and heads that turn by half."""
    hidden = fields.whole("moe_intermediate_size", 1408)
    mixture = ExpertSpec(
        count=_count(fields, "n_routed_experts", "num_local_experts", "num_experts"),
        active=fields.whole("num_experts_per_tok", 8),
        hidden=hidden,
        shared=hidden * fields.count("n_shared_experts", 1),
        groups=fields.whole("n_group", 1),
        open=fields.whole("topk_group", 1),
        normed=fields.flag("norm_topk_prob", True),
        scale=fields.real("routed_scaling_factor", 1.0),
        dense=fields.count("first_k_dense_replace", 1),
    )
    fields.pass_over("num_nextn_predict_layers", "num_mtp_layers")  # guess further ahead, and are left out
    return _sparse(replace(shape, qk_norm=fields.flag("use_qk_norm")), mixture)


def gpt_oss(shape: Shape, fields: ConfigFields) -> Shape:
    """Attention sinks, biases everywhere, and experts with a clamped activation; the router's bias counts."""
    for name, usual in (("swiglu_limit", 7.0), ("swiglu_alpha", 1.702)):
        if fields.real(name, usual) != usual:
            raise elsewhere(fields.source, f"its {name} is {fields.get(name)} (known: {usual})")
    fields.pass_over("experts_per_token", "initial_context_length")  # the same under another name, and of training
    mixture = ExpertSpec(
        count=_count(fields, "num_local_experts", "num_experts"),
        active=fields.whole("num_experts_per_tok", 4),
        hidden=shape.hidden,
        biased=False,
        scores="softmax",
        router_bias=True,
        expert_bias=True,
    )
    shape = replace(shape, activation="clamped_swish")
    return _sparse(attending(shape, *(replace(mixer, sinks=True) for mixer in shape.attentions)), mixture)


def llama4(shape: Shape, fields: ConfigFields) -> Shape:
    """Chunked attention where layers turn, growing queries where they do not; the inputs of experts are weighed."""
    chunk = fields.whole("attention_chunk_size", 8192)
    norm, tuning = fields.flag("use_qk_norm", True), fields.get("attn_temperature_tuning")
    tuned = tuning is None or bool(tuning)  # the first files had a number there
    grown = (fields.real("attn_scale", 0.1), fields.whole("floor_scale", 8192), 1) if tuned else None
    turns, plain = turning(shape, fields), shape.attention()
    turned = replace(plain, qk_norm="unit" if norm else None)
    still = replace(plain, rope=None, tempered=grown)
    kinds = fields.get("layer_types")
    chunked = [kind == "chunked_attention" for kind in kinds] if isinstance(kinds, list) else turns
    mixers = [
        replace(turned if turn else still, window=chunk if cut else None, chunked=cut)
        for turn, cut in zip(turns, chunked, strict=True)
    ]
    mixture = ExpertSpec(
        count=_count(fields, "num_local_experts", "num_experts"),
        active=fields.whole("num_experts_per_tok", 1),
        hidden=shape.hidden,
        shared=shape.hidden,
        biased=False,
        normed=False,
        weigh_inputs=True,
    )
    step, listed = fields.whole("interleave_moe_layer_step", 1), fields.numbers("moe_layers")
    sparse = range(step - 1, shape.layers, step) if listed is None else listed
    wide = fields.whole("intermediate_size_mlp", 16384)
    each = [LayerSpec(mixer, wide, mixture if layer in sparse else None) for layer, mixer in enumerate(mixers)]
    windows = tuple(mixer.window for mixer in mixers)
    return replace(shape, interleaved=True, hidden=wide, mixture=mixture, each=tuple(each), windows=windows)
