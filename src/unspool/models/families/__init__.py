"""The families that are read natively: what each takes for granted, and what it adds to Llama's words."""

from __future__ import annotations

from collections.abc import Mapping

from . import dense, gemma, mixtures
from .usual import Finish, Usual, every, from_the_first

_QKV, _ALL = ("qkv",), ("qkv", "out")

FAMILIES: Mapping[str, tuple[Usual, Finish]] = {
    "llama": (Usual(biases=(*_ALL, "mlp")), dense.plain),
    "mistral": (Usual(biases=(), sliding="always"), dense.plain),
    "qwen2": (Usual(biases=("always",), sliding="asked", typed=True, sees_all=from_the_first(28)), dense.plain),
    "qwen3": (
        Usual(head_dim=128, biases=_ALL, sliding="asked", typed=True, sees_all=from_the_first(28)),
        dense.head_norms,
    ),
    "gemma2": (Usual(**gemma.USUAL, theta=10_000.0, sees_all=every(2)), gemma.gemma2),
    "gemma3_text": (
        Usual(**gemma.USUAL, theta=1_000_000.0, local_theta=10_000.0, sees_all=every(6, "sliding_window_pattern")),
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
        ),
        gemma.gemma4,
    ),
    "ministral": (Usual(biases=(), sliding="always", typed=True), dense.plain),
    "ministral3": (
        Usual(eps=1e-5, biases=(), sliding="always", window=None, theta=1e6, head_dim=128),
        dense.ministral3,
    ),
    "phi3": (Usual(eps=1e-5, biases=(), sliding="always", window=None, part=1.0, old_longrope=True), dense.plain),
    "smollm3": (
        Usual(
            theta=2_000_000.0, biases=(*_ALL, "mlp"), tied=True, sliding="asked", typed=True, sees_all=dense.told_places
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
    "glm": (Usual(eps=1.5625e-07, head_dim=128, biases=_QKV, bias_default=True, part=0.5), dense.glm),
    "glm4": (Usual(eps=1.5625e-07, head_dim=128, biases=_QKV, bias_default=True, part=0.5), dense.glm4),
    "qwen2_moe": (
        Usual(biases=(), sliding="asked", typed=True, sees_all=mixtures.qwen2_sees_all),
        mixtures.qwen2_moe,
    ),
    "qwen3_moe": (Usual(biases=_ALL, sliding="asked"), mixtures.qwen3_moe),
    "mixtral": (Usual(eps=1e-5, theta=1_000_000.0, biases=(), sliding="always", window=None), mixtures.mixtral),
    "olmoe": (Usual(eps=1e-5, biases=_ALL), mixtures.olmoe),
    "granitemoe": (Usual(biases=_ALL), mixtures.granitemoe),
    "granitemoeshared": (Usual(biases=_ALL), mixtures.granitemoe),
    "glm4_moe": (Usual(eps=1e-5, biases=_QKV, part=0.5), mixtures.glm4_moe),
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
        ),
        mixtures.gpt_oss,
    ),
    "llama4_text": (
        Usual(eps=1e-5, theta=500_000.0, head_dim=128, biases=_ALL, typed=True, kinds=("chunked_attention",)),
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
}
"""Families that also read images or sound, and the one that their text part is; only that part is read here."""
