"""The families that are read natively: what each takes for granted, and what it adds to Llama's words."""

from __future__ import annotations

from collections.abc import Mapping

from . import dense, gemma, mixtures
from .usual import Finish, Usual, every, from_the_first

_QKV, _ALL = ("qkv",), ("qkv", "out")

FAMILIES: Mapping[str, tuple[Usual, Finish]] = {
    "llama": (Usual(biases=(*_ALL, "mlp")), dense.plain),
    "mistral": (Usual(biases=(), sliding="always", given={"num_key_value_heads": 8}), dense.plain),
    "qwen2": (
        Usual(
            biases=("always",),
            sliding="asked",
            typed=True,
            sees_all=from_the_first(28),
            given={"num_key_value_heads": 32},
        ),
        dense.plain,
    ),
    "qwen3": (
        Usual(
            head_dim=128,
            biases=_ALL,
            sliding="asked",
            typed=True,
            sees_all=from_the_first(28),
            given={"num_key_value_heads": 32},
        ),
        dense.head_norms,
    ),
    "qwen3_vl_text": (Usual(theta=500_000.0, head_dim=128, given={"num_key_value_heads": 32}), dense.head_norms),
    "gemma2": (Usual(**gemma.USUAL, theta=10_000.0, sees_all=every(2), given={"num_key_value_heads": 4}), gemma.gemma2),
    "gemma3_text": (
        Usual(
            **gemma.USUAL,
            theta=1_000_000.0,
            local_theta=10_000.0,
            sees_all=every(6, "sliding_window_pattern"),
            given=gemma.GIVEN,
        ),
        gemma.gemma3,
    ),
    "gemma4_text": (
        Usual(
            **{**gemma.USUAL, "window": 512},
            theta=1_000_000.0,
            local_theta=10_000.0,
            sees_all=every(6),
            part=0.25,
            proportional=True,
            given={**gemma.GIVEN, "vocab_size": 262_144, "num_hidden_layers": 30},
        ),
        gemma.gemma4,
    ),
    "ministral": (Usual(biases=(), sliding="always", typed=True, given={"num_key_value_heads": 8}), dense.plain),
    "ministral3": (
        Usual(
            eps=1e-5,
            biases=(),
            sliding="always",
            window=None,
            theta=1e6,
            head_dim=128,
            given={"num_key_value_heads": 8, "rope_parameters": dense.MINISTRAL_YARN},
        ),
        dense.ministral3,
    ),
    "phi3": (Usual(eps=1e-5, biases=(), sliding="always", window=None, part=1.0, old_longrope=True), dense.phi3),
    "smollm3": (
        Usual(
            theta=2_000_000.0,
            biases=(*_ALL, "mlp"),
            tied=True,
            sliding="asked",
            typed=True,
            sees_all=dense.told_places,
            given={"num_key_value_heads": 4},
        ),
        dense.smollm3,
    ),
    "olmo2": (Usual(eps=1e-5, biases=_ALL, context=2048), dense.olmo2),
    "olmo3": (
        Usual(
            eps=1e-5,
            theta=500_000.0,
            local_theta=500_000.0,
            biases=_ALL,
            context=2048,
            sliding="always",
            typed=True,
            sees_all=every(4),
        ),
        dense.olmo2,
    ),
    "granite": (Usual(biases=(*_ALL, "mlp")), dense.granite),
    "glm": (
        Usual(eps=1.5625e-07, head_dim=128, biases=_QKV, bias_default=True, part=0.5, given={"num_key_value_heads": 2}),
        dense.glm,
    ),
    "glm4": (
        Usual(eps=1.5625e-07, head_dim=128, biases=_QKV, bias_default=True, part=0.5, given={"num_key_value_heads": 2}),
        dense.glm4,
    ),
    "qwen2_moe": (
        Usual(
            biases=(), sliding="asked", typed=True, sees_all=mixtures.qwen2_sees_all, given={"num_key_value_heads": 16}
        ),
        mixtures.qwen2_moe,
    ),
    "qwen3_moe": (Usual(biases=_ALL, sliding="asked", given={"num_key_value_heads": 4}), mixtures.qwen3_moe),
    "qwen3_vl_moe_text": (
        Usual(
            theta=500_000.0, given={"num_key_value_heads": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
        ),
        mixtures.qwen3_moe,
    ),
    "mixtral": (
        Usual(eps=1e-5, theta=1_000_000.0, biases=(), sliding="always", window=None, given={"num_key_value_heads": 8}),
        mixtures.mixtral,
    ),
    "olmoe": (Usual(eps=1e-5, biases=_ALL), mixtures.olmoe),
    "granitemoe": (Usual(biases=_ALL), mixtures.granitemoe),
    "granitemoeshared": (Usual(biases=_ALL), mixtures.granitemoe),
    "glm4_moe": (Usual(eps=1e-5, biases=_QKV, part=0.5, given={"num_key_value_heads": 8}), mixtures.glm4_moe),
    "gpt_oss": (
        Usual(
            eps=1e-5,
            theta=150_000.0,
            head_dim=64,
            biases=_ALL,
            bias_default=True,
            sliding="always",
            window=128,
            typed=True,
            sees_all=every(2),
            given={"num_key_value_heads": 8, "rope_parameters": mixtures.GPT_OSS_YARN},
        ),
        mixtures.gpt_oss,
    ),
    "llama4_text": (
        Usual(
            eps=1e-5,
            theta=500_000.0,
            head_dim=128,
            biases=_ALL,
            typed=True,
            kinds=("chunked_attention",),
            given=mixtures.LLAMA4,
        ),
        mixtures.llama4,
    ),
}
"""What a family takes for granted, and the function that finishes its Shape."""

TEXT_OF: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "mistral3": "mistral",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "llama4": "llama4_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
}
"""Families that also read images or sound, and the one that their text part is; only that part is read here."""
