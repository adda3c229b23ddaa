"""Small random models in quantised GGUF files, of every family and block format."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from unspool.models.quant import FORMATS, QuantBlocks
from unspool.models.weights import GGUFCheckpoint

NUMBERS = {form.name: number for number, form in FORMATS.items()}
PACKED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
VOCAB, DIM, HIDDEN, HEADS, SHARED, WIDTH, LAYERS, CONTEXT = 97, 256, 512, 4, 2, 32, 3, 256
NORMS = {
    "qwen3": ("attn_q_norm", "attn_k_norm"),
    "gemma3": ("attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"),
}


def random_blocks(name: str, rows: int, columns: int, seed: int = 0, scale: float = 0.02) -> QuantBlocks:
    """A matrix of random quants; scales are such that its numbers are about `scale`."""
    form, made = FORMATS[NUMBERS[name]], torch.Generator().manual_seed(seed)
    count = rows * columns // form.size
    data = torch.randint(0, 256, (count, form.width), dtype=torch.uint8, generator=made)
    spread = {"Q4_0": 4.6, "Q4_1": 4.6, "Q5_0": 9.2, "Q5_1": 9.2, "Q8_0": 74, "Q4_K": 180, "Q5_K": 360, "Q6_K": 1370}[
        name
    ]

    def put(at: int, size: float) -> None:
        factor = size * (0.5 + torch.rand(count, 1, generator=made))
        data[:, at : at + 2] = factor.half().view(torch.uint8)

    put(208 if name == "Q6_K" else 0, scale / spread)
    if name in ("Q4_1", "Q5_1"):
        put(2, -1.6 * scale)
    elif name in ("Q4_K", "Q5_K"):
        put(2, 1.6 * scale / 32)
    return QuantBlocks(form, data.view(rows, -1))


def write_packed(
    path: Path, family: str = "llama", formats: tuple[str, ...] = PACKED, tied: bool = True
) -> GGUFCheckpoint:
    """Write a model whose matrices take these formats in turn, and open it."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, family)
    writer.add_name("packed")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(DIM)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_key_length(WIDTH)
    writer.add_value_length(WIDTH)
    writer.add_rope_dimension_count(WIDTH)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    if family == "gemma3":
        writer.add_sliding_window(7)
    wide, shared = HEADS * WIDTH, SHARED * WIDTH
    matrices = {"token_embd": (VOCAB, DIM)} | ({} if tied else {"output": (VOCAB, DIM)})
    norms = {"output_norm": DIM}
    biases: dict[str, int] = {}
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        sizes = {"attn_q": (wide, DIM), "attn_k": (shared, DIM), "attn_v": (shared, DIM), "attn_output": (DIM, wide)}
        sizes |= {"ffn_gate": (HIDDEN, DIM), "ffn_up": (HIDDEN, DIM), "ffn_down": (DIM, HIDDEN)}
        matrices |= {at + name: size for name, size in sizes.items()}
        for name in ("attn_norm", "ffn_norm", *NORMS.get(family, ())):
            norms[at + name] = WIDTH if name in ("attn_q_norm", "attn_k_norm") else DIM
        if family == "qwen2":
            biases |= {at + name: sizes[name][0] for name in ("attn_q", "attn_k", "attn_v")}
    made = torch.Generator().manual_seed(5)
    for number, (name, (rows, columns)) in enumerate(matrices.items()):
        fit = [form for form in formats if columns % FORMATS[NUMBERS[form]].size == 0] or ["Q8_0"]
        chosen = fit[number % len(fit)]
        blocks = random_blocks(chosen, rows, columns, number, scale=1.0 if name == "token_embd" else 0.05)
        writer.add_tensor(f"{name}.weight", blocks.data.numpy(), raw_dtype=gguf.GGMLQuantizationType[chosen])
    for name, size in norms.items():
        writer.add_tensor(f"{name}.weight", (0.5 + torch.rand(size, generator=made)).numpy())
    for name, size in biases.items():
        writer.add_tensor(f"{name}.bias", (torch.rand(size, generator=made) - 0.5).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFCheckpoint(path)
