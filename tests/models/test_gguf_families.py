"""GGUF files of further architectures have the laws that llama.cpp finds in them; experts lie in one tensor."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("gguf", reason="the package gguf, which writes the little files, is not installed")
if find_spec("xllamacpp") is None:  # which is not imported: its shared object alone is used
    pytest.skip("the wheel xllamacpp is not installed: pip install 'unspool[llamacpp]'", allow_module_level=True)

import numpy as np
from gguf import GGMLQuantizationType
from ggufkinds import KINDS, write
from tinygguf import VOCAB

from unspool.core.errors import BadModel
from unspool.core.tree import NOTHING
from unspool.models.shape import Shape
from unspool.models.weights import GGUFCheckpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.llamacpp.open_gguf import load_llamacpp
from unspool.runtime.network.llama import Llama

CLOSE = {"gemma2": 5e-3}  # llama.cpp looks its GELU up in half precision


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
