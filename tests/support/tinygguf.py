"""Little GGUF files, random but always the same, of architectures that llama.cpp and the native runtime both read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants

WORDS = ["<s>", "</s>", *"abcdefghijklmnopqrst", "ab", "Ġ"]
VOCAB, DIM, HEADS, KV_HEADS, HIDDEN, LAYERS = len(WORDS), 32, 4, 2, 64, 2
WINDOW = 4


def tiny_gguf(
    path: Path,
    architecture: str = "llama",
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    context: int = 256,
    pre: str = "default",
) -> Path:
    """Write one; matrices are stored as `kind`, text is cut into words in the way `pre`."""
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(context)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(DIM)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv([0, KV_HEADS] if architecture == "lfm2" else KV_HEADS)  # 0: a layer with a state
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_key_length(DIM // HEADS)
    writer.add_value_length(DIM // HEADS)
    writer.add_rope_dimension_count(DIM // HEADS)
    writer.add_rope_freq_base(10_000.0)
    if architecture == "gemma3":
        writer.add_sliding_window(WINDOW)
    if architecture == "lfm2":
        writer.add_shortconv_l_cache(3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, *[1] * (VOCAB - 2)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    dice = np.random.default_rng(7)

    def add(name: str, *size: int) -> None:
        values = dice.normal(scale=0.3, size=size) if len(size) > 1 else np.ones(size)
        stored = kind if len(size) > 1 else GGMLQuantizationType.F32
        writer.add_tensor(name, quants.quantize(values.astype(np.float32), stored), raw_dtype=stored)

    add("token_embd.weight", VOCAB, DIM)
    add("token_embd_norm.weight" if architecture == "lfm2" else "output_norm.weight", DIM)
    for layer in range(LAYERS):
        _layer(add, f"blk.{layer}.", "shortconv" if architecture == "lfm2" and layer == 0 else architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _layer(add, at: str, architecture: str) -> None:  # type: ignore[no-untyped-def]
    width = DIM // HEADS * KV_HEADS
    state = architecture == "shortconv"
    if state:
        add(f"{at}shortconv.conv.weight", DIM, 3)
        add(f"{at}shortconv.in_proj.weight", 3 * DIM, DIM)
        add(f"{at}shortconv.out_proj.weight", DIM, DIM)
    for name, *size in (
        ("attn_norm", DIM),
        ("attn_q", DIM, DIM),
        ("attn_k", width, DIM),
        ("attn_v", width, DIM),
        ("attn_output", DIM, DIM),
        ("ffn_norm", DIM),
        ("ffn_gate", HIDDEN, DIM),
        ("ffn_up", HIDDEN, DIM),
        ("ffn_down", DIM, HIDDEN),
    ):
        if not (state and name in ("attn_q", "attn_k", "attn_v", "attn_output")):
            add(f"{at}{name}.weight", *size)
    if architecture == "qwen2":
        for name, size in (("attn_q", DIM), ("attn_k", width), ("attn_v", width)):
            add(f"{at}{name}.bias", size)
    if architecture in ("qwen3", "gemma3", "lfm2"):
        for name in ("attn_q_norm", "attn_k_norm"):
            add(f"{at}{name}.weight", DIM // HEADS)
    if architecture == "gemma3":
        for name in ("post_attention_norm", "post_ffw_norm"):
            add(f"{at}{name}.weight", DIM)
