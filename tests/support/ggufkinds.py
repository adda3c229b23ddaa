"""Little GGUF files of every architecture that is read natively, random but always the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter, quants
from tinygguf import VOCAB, WORDS

from unspool.models.shape import Shape
from unspool.models.weights import GGUFCheckpoint

EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
SIZES: dict[str, Any] = {
    "context_length": 256,
    "block_count": 4,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.key_length": 8,
    "attention.value_length": 8,
    "rope.dimension_count": 8,
    "rope.freq_base": 10_000.0,
}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"expert_count": 4, "expert_used_count": 2},
    "qwen2moe": {**EXPERTS, "expert_shared_feed_forward_length": 32},
    "qwen3moe": EXPERTS,
    "gemma2": {
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
        "attention.sliding_window": 8,
    },
    "gpt-oss": {**EXPERTS, "attention.sliding_window": 8, "expert_gating_func": 1, **YARN},
    "olmo2": {},
    "granite": {"attention.scale": 0.2, "embedding_scale": 3.0, "residual_scale": 0.5, "logit_scale": 2.0},
    "granitemoe": {"expert_count": 4, "expert_used_count": 2, "attention.scale": 0.2, "logit_scale": 2.0},
    "smollm3": {},
    "glm4moe": {
        **EXPERTS,
        "expert_shared_count": 1,
        "expert_gating_func": 2,
        "expert_weights_scale": 1.5,
        "expert_weights_norm": True,
        "leading_dense_block_count": 1,
        "rope.dimension_count": 4,
    },
}
WIDE = {  # heads and perceptrons that fill blocks of 256
    **SIZES,
    "block_count": 1,
    "embedding_length": 256,
    "feed_forward_length": 256,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "rope.dimension_count": 64,
}


def write(
    path: Path,
    kind: str,
    stored: GGMLQuantizationType = GGMLQuantizationType.F32,
    sizes: Mapping[str, Any] = SIZES,
) -> Path:
    """Write a little file of an architecture; matrices are stored as `stored`."""
    settings = {f"{kind}.{name}": value for name, value in {**sizes, **KINDS[kind]}.items()}
    metadata = {"general.architecture": kind, "tokenizer.ggml.tokens": WORDS, **settings}
    biases = ("blk.0.attn_q.bias", "blk.0.attn_output.bias") if kind == "gpt-oss" else ("blk.0.attn_q.bias",)
    known = {"gpt-oss": ("output.weight", *biases), "qwen2moe": ("output.weight", *biases), "olmo2": ("output.weight",)}
    known["glm4moe"] = ("output.weight", "blk.0.attn_q_norm.weight")
    shape = Shape.from_gguf(metadata, known.get(kind, ()))
    writer = GGUFWriter(path, kind)
    for name, value in settings.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[
            type(value)
        ]
        add(name, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, *[1] * (VOCAB - 2)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    dice, piles = np.random.default_rng(7), dict[str, list[Any]]()
    for name, size in shape.tensors().items():
        theirs = GGUFCheckpoint._lies(SimpleNamespace(shape=shape), name, size).name
        values = dice.normal(scale=0.3 if len(size) > 1 else 0.2, size=size) + (1 if "norm" in name else 0)
        values = values[0] if ".shared_gate." in name else values
        piles.setdefault(theirs, []).append(values.astype(np.float32))
    for name, pile in piles.items():
        whole = np.stack(pile) if "_exps." in name else pile[0]
        as_kind = stored if whole.ndim > 1 and "inp" not in name and "bias" not in name else GGMLQuantizationType.F32
        writer.add_tensor(name, _as(whole, as_kind, dice), raw_dtype=as_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _as(values: Any, kind: GGMLQuantizationType, dice: Any) -> Any:
    """The values in such blocks; any blocks at all where the package can only read them, with scales below 2."""
    if kind.name not in ("Q2_K", "Q3_K", "Q4_K", "IQ4_NL", "IQ4_XS"):
        return quants.quantize(values, kind)
    size, width = GGML_QUANT_SIZES[kind]
    shape = (*values.shape[:-1], values.shape[-1] // size * width)
    return dice.integers(0, 64, shape).astype(np.uint8)
