"""GGUF files made of models of transformers, named by the package gguf, have the logits of those models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("gguf", reason="the package gguf, which writes the little files, is not installed")
pytest.importorskip("transformers", reason="the reference needs transformers: pip install 'unspool[hf]'")

import gguf
from safetensors.torch import load_file

from tests.support.families import FAMILIES, LENGTH, SIZES, VOCAB, Family, near, run, text, written
from unspool.core.errors import BadModel, NotNative
from unspool.models.shape import Shape
from unspool.models.weights import GGUFCheckpoint
from unspool.runtime.cpu.packed_llama import load_packed
from unspool.runtime.network.llama import Llama

pytestmark = pytest.mark.usefixtures("one_thread")
BY_KIND = {family.kind: family for family in FAMILIES}
BLOCKS = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}  # which 32 divides
OWN = {"query_pre_attn_scalar": 8}  # the format has no key for it, and takes the size of a head
PHI = "rope_scaling_attn_factors"
WINDOW, LONG = 7, (1 + torch.log(torch.tensor(2.0)) / torch.log(torch.tensor(64.0))).sqrt().item()
KINDS: dict[str, tuple[str, Family, dict[str, Any]]] = {
    "Phi-4": ("phi3", BY_KIND["phi3"]._replace(settings={"head_dim": 8}), {}),
    "Phi-3 in a window": ("phi3", BY_KIND["phi3"]._replace(settings={"head_dim": 8, "sliding_window": WINDOW}), {}),
    "Phi-4-mini, LongRoPE": (
        "phi3",
        BY_KIND["phi3"],
        {"rope_dimension_count": 6, "rope_scaling_orig_ctx_len": 64, PHI: LONG},
    ),
    "Gemma 2": (
        "gemma2",
        BY_KIND["gemma2"]._replace(settings={**BY_KIND["gemma2"].settings, **OWN}),
        {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    ),
    "Gemma 3": (
        "gemma3",
        BY_KIND["gemma3_text"]._replace(settings={**BY_KIND["gemma3_text"].settings, **OWN}),
        {"rope_freq_base": 1_000_000.0},
    ),
}


def made(kind: str, folder: Path, stored: str = "F32", **changed: Any) -> tuple[torch.nn.Module, Path]:
    """A random model, and the GGUF file of it."""
    architecture, family, told = KINDS[kind]
    family = family._replace(settings={**family.settings, **changed})
    model = written(family, folder)
    sizes: dict[str, Any] = {**SIZES, "head_dim": 8, **family.settings}
    writer = gguf.GGUFWriter(folder / "model.gguf", architecture)
    writer.add_context_length(sizes["max_position_embeddings"])
    writer.add_block_count(sizes["num_hidden_layers"])
    writer.add_embedding_length(sizes["hidden_size"])
    writer.add_feed_forward_length(sizes["intermediate_size"])
    writer.add_head_count(sizes["num_attention_heads"])
    writer.add_head_count_kv(sizes["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_key_length(sizes["head_dim"])
    writer.add_value_length(sizes["head_dim"])
    writer.add_sliding_window(sizes.get("sliding_window", 0))
    writer.add_token_list([f"<{number}>" for number in range(VOCAB)])
    for name, value in {"rope_dimension_count": sizes["head_dim"], **told}.items():
        getattr(writer, f"add_{name}")(value)
    names = gguf.get_tensor_name_map(
        next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), sizes["num_hidden_layers"]
    )
    for name, tensor in load_file(folder / "model.safetensors").items():
        theirs = names.get_name(name, try_suffixes=(".weight",))
        offset = 1 if architecture.startswith("gemma") and "norm" in name else 0
        as_kind = gguf.GGMLQuantizationType[stored if tensor.dim() > 1 and "lm_head" not in name else "F32"]
        writer.add_tensor(theirs, gguf.quants.quantize((tensor + offset).numpy(), as_kind), raw_dtype=as_kind)
    rope = model.config.to_dict()["rope_parameters"]
    for length in ("short", "long"):
        if rope.get(f"{length}_factor"):
            writer.add_tensor(f"rope_factors_{length}.weight", torch.tensor(rope[f"{length}_factor"]).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model, folder / "model.gguf"


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    model, path = made(kind, tmp_path)
    with torch.no_grad():
        want = model(text(0)[None]).logits[0]
    assert want.abs().max() > 1
    near(run(Llama.load(GGUFCheckpoint(path)), text(0), list(range(LENGTH))), want, 1e-4)


@pytest.mark.parametrize("stored", ["Q8_0", "Q4_0"])
def test_fused_matrices_stay_packed(stored: str, tmp_path: Path) -> None:
    """Parts of a fused matrix are read alone: packed, they are the blocks of the file, and half a byte a weight."""
    _, path = made("Phi-4", tmp_path, stored, **BLOCKS)
    checkpoint, at = GGUFCheckpoint(path), "model.layers.1."
    both = checkpoint.file.tensor("blk.1.ffn_up.weight")
    for name, rows in (("mlp.gate_proj.weight", slice(0, 96)), ("mlp.up_proj.weight", slice(96, 192))):
        assert torch.equal(checkpoint.tensor(at + name), both[rows])
        assert torch.equal(checkpoint.blocks(at + name).whole(), both[rows])
    fused = checkpoint.file.entry("blk.1.attn_qkv.weight").bytes
    assert sum(checkpoint.packed_bytes(f"{at}self_attn.{part}_proj.weight") for part in "qkv") == fused
    whole = run(Llama.load(checkpoint), text(0), list(range(LENGTH)))
    packed = run(load_packed(checkpoint, LENGTH), text(0), list(range(LENGTH)))
    assert float((packed - whole).norm()) < 0.1 * float(whole.norm())  # numbers between them are rounded to 8 bits


def test_factors_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = made("Phi-4-mini, LongRoPE", tmp_path)
    checkpoint = GGUFCheckpoint(path)
    monkeypatch.setattr(checkpoint.file, "tensor", lambda name: torch.tensor([1.0, float("nan"), 2.0]))
    with pytest.raises(BadModel, match="positive numbers"):
        checkpoint._stretched(checkpoint.shape)
    other = replace(checkpoint.shape, rotary=4)
    with pytest.raises(BadModel, match="positive numbers"):
        checkpoint._stretched(other)


def test_a_scale_of_its_own_is_refused() -> None:
    sizes = {"block_count": 1, "embedding_length": 8, "attention.head_count": 2, "feed_forward_length": 8}
    sizes |= {"context_length": 64, "vocab_size": 9, "rope.scaling.attn_factor": 1.5}
    told = {"general.architecture": "llama", **{f"llama.{name}": value for name, value in sizes.items()}}
    with pytest.raises(NotNative, match="attn_factor"):
        Shape.from_gguf({**told, "llama.attention.layer_norm_rms_epsilon": 1e-5})


def test_tensors_that_nobody_reads_are_refused(tmp_path: Path) -> None:
    _, path = made("Phi-4", tmp_path)
    held = path.read_bytes()
    path.write_bytes(held.replace(b"output_norm.weight", b"output_nerm.weight"))
    with pytest.raises(BadModel, match="misses 1"):
        GGUFCheckpoint(path)
    path.write_bytes(held.replace(b"token_embd.weight", b"rope_factors_long"))
    with pytest.raises((BadModel, NotNative)):
        GGUFCheckpoint(path)
