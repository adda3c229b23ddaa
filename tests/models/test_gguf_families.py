"""GGUF files of further architectures have the laws that llama.cpp finds in them; experts lie in one tensor."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("gguf", reason="the package gguf, which writes the little files, is not installed")
if find_spec("xllamacpp") is None:  # which is not imported: its shared object alone is used
    pytest.skip("the wheel xllamacpp is not installed: pip install 'unspool[llamacpp]'", allow_module_level=True)

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants
from tinygguf import VOCAB, WORDS

from unspool.core.errors import BadModel
from unspool.core.tree import NOTHING
from unspool.models.shape import Shape
from unspool.models.weights import GGUFCheckpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.llamacpp.load import load_llamacpp
from unspool.runtime.network.llama import Llama

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
}
CLOSE = {"gemma2": 5e-3}  # llama.cpp looks its GELU up in half precision


def write(path: Path, kind: str, stored: GGMLQuantizationType = GGMLQuantizationType.F32) -> Path:
    """Write a little file of an architecture; matrices are stored as `stored`."""
    settings = {f"{kind}.{name}": value for name, value in (SIZES | KINDS[kind]).items()}
    metadata = {"general.architecture": kind, "tokenizer.ggml.tokens": WORDS, **settings}
    biases = ("blk.0.attn_q.bias", "blk.0.attn_output.bias") if kind == "gpt-oss" else ("blk.0.attn_q.bias",)
    known = {"gpt-oss": ("output.weight", *biases), "qwen2moe": ("output.weight", *biases), "olmo2": ("output.weight",)}
    shape = Shape.from_gguf(metadata, known.get(kind, ()))
    writer = GGUFWriter(path, kind)
    for name, value in settings.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
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
        theirs, _ = GGUFCheckpoint._stored_name(SimpleNamespace(shape=shape), name)
        values = dice.normal(scale=0.3 if len(size) > 1 else 0.2, size=size) + (1 if "norm" in name else 0)
        values = values[0] if ".shared_gate." in name else values
        piles.setdefault(theirs, []).append(values.astype(np.float32))
    for name, pile in piles.items():
        whole = np.stack(pile) if "_exps." in name else pile[0]
        as_kind = stored if whole.ndim > 1 and "inp" not in name and "bias" not in name else GGMLQuantizationType.F32
        writer.add_tensor(name, quants.quantize(whole, as_kind), raw_dtype=as_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def laws(model: Any, texts: list[tuple[int, ...]]) -> list[torch.Tensor]:
    asked = [ScoreRequest(model.open(text), NOTHING) for text in texts]
    return [scores.leaf[0].scores for scores in model.score(asked)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_architecture_has_the_laws_of_llama_cpp(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", kind)
    theirs, _ = load_llamacpp(path, torch.float32, room=512, sequences=4)
    ours = CachedModel(Llama.load(GGUFCheckpoint(path), torch.float64), prefix_cache=0)
    dice = np.random.default_rng(1)
    texts = [tuple(dice.integers(2, VOCAB, size=length).tolist()) for length in (1, 5, 30)]
    for mine, other in zip(laws(ours, texts), laws(theirs, texts), strict=True):
        assert float((mine - mine.mean()).abs().max()) > 0.2
        assert float((mine - other).abs().max()) < CLOSE.get(kind, 1e-4)


@pytest.mark.parametrize("stored", [GGMLQuantizationType.Q8_0, GGMLQuantizationType.MXFP4, GGMLQuantizationType.Q4_0])
def test_quantised_experts_are_read_one_by_one(stored: GGMLQuantizationType, tmp_path: Path) -> None:
    checkpoint = GGUFCheckpoint(write(tmp_path / "model.gguf", "qwen3moe", stored))
    whole = checkpoint.file.tensor("blk.1.ffn_up_exps.weight")
    for expert in range(4):
        name = f"model.layers.1.mlp.experts.{expert}.up_proj.weight"
        assert torch.equal(checkpoint.tensor(name), whole[expert])
        assert torch.equal(checkpoint.blocks(name).whole(), whole[expert])
    assert checkpoint.packed_bytes(name) * 4 == checkpoint.file.entry("blk.1.ffn_up_exps.weight").bytes


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"qwen3moe.expert_count": 5}, "wrong shape"),
        ({"qwen3moe.expert_used_count": 9}, "cannot be built"),
        ({"qwen3moe.expert_count": 1 << 20}, "at most"),
        ({"qwen3moe.expert_gating_func": 2}, "function 2"),
    ],
)
def test_experts_that_do_not_fit_are_refused(changed: dict[str, int], why: str, tmp_path: Path, monkeypatch) -> None:
    path, read = write(tmp_path / "model.gguf", "qwen3moe"), Shape.from_gguf
    monkeypatch.setattr(Shape, "from_gguf", lambda metadata, *rest: read({**metadata, **changed}, *rest))
    with pytest.raises(BadModel, match=why):
        GGUFCheckpoint(path)
