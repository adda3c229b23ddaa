"""Damaged files of every kind are refused in words: nothing else is raised, nothing hangs, and memory stays small.

What is not refused can be used: a damaged weight is still a number. A few mutations of each kind are tried in every
run, two hundred when there is time.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from selection import crossed
from test_adapter import SIZES as MATRICES
from test_adapter import saved
from test_coded import KINDS as CODINGS
from test_coded import folder_of, opened, oss

from tests.support.drafterfiles import KINDS as DRAFTERS
from tests.support.drafterfiles import LAYERS
from tests.support.families import FAMILIES, Family, run, told
from tests.support.familyfolders import SHARDS, sharded
from tests.support.littlemodel import little_model
from tests.support.mutated import gguf, hold, refused, safetensors, settings
from unspool.api.trained_draft import attached
from unspool.core.law import Drawn, Law
from unspool.core.tree import Tree
from unspool.models.adapter import AdaptedCheckpoint
from unspool.models.drafters.opening import open_drafter
from unspool.models.weights import open_checkpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cpu.packed import packs
from unspool.runtime.cpu.packed_llama import load_packed
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.llama import Llama

pytestmark = pytest.mark.usefixtures("one_thread")
ROOM, MANY = 16, pytest.param(200, marks=pytest.mark.slow)
CHAIN = Tree.chain([Drawn(token, Law.point(token)) for token in (3, 4)])


def used(path: Path) -> None:
    """Open a model, read its words if it has any, and let it read three tokens."""
    checkpoint = open_checkpoint(path)
    if path.is_file() or (path / "tokenizer.json").is_file():
        checkpoint.vocabulary()
    net = load_packed(checkpoint, ROOM) if packs(checkpoint) else Llama.load(checkpoint, room=ROOM)
    found = run(net, torch.tensor([0, 1, 2]) % checkpoint.shape.vocab, list(range(3)))
    assert found.shape == (3, checkpoint.shape.vocab)


# ---- GGUF


GGUF_KINDS = ("Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4", "Q4_K")
GGUF_FAMILIES = ("qwen3moe", "gpt-oss", "glm4moe", "granitemoe", "gemma2")


@pytest.mark.parametrize("count", [10, MANY])
@pytest.mark.parametrize("stored", GGUF_KINDS)
def test_gguf_files_in_blocks(stored: str, count: int, tmp_path: Path) -> None:
    kinds = pytest.importorskip("ggufkinds")
    path = kinds.write(tmp_path / "model.gguf", "olmo2", kinds.GGMLQuantizationType[stored], kinds.WIDE)
    said = hold({path: gguf}, lambda: used(path), count)
    assert sum(map(bool, said)) >= count // 3


@pytest.mark.parametrize("count", [10, MANY])
@pytest.mark.parametrize("family", GGUF_FAMILIES)
def test_gguf_files_of_a_family(family: str, count: int, tmp_path: Path) -> None:
    kinds = pytest.importorskip("ggufkinds")
    path = kinds.write(tmp_path / "model.gguf", family, kinds.GGMLQuantizationType.MXFP4)
    said = hold({path: gguf}, lambda: used(path), count)
    assert sum(map(bool, said)) >= count // 3


# ---- folders


@pytest.mark.parametrize("count", [10, MANY])
@pytest.mark.parametrize("kind", [*CODINGS, "mxfp4"])
def test_folders_of_coded_weights(kind: str, count: int, tmp_path: Path) -> None:
    opened(tmp_path, *(oss() if kind == "mxfp4" else folder_of(kind)[:2]))
    files = {tmp_path / "config.json": settings, tmp_path / "model.safetensors": safetensors}
    said = hold(files, lambda: used(tmp_path), count)
    assert sum(map(bool, said)) >= count // 3


@pytest.mark.parametrize("count", [3, MANY])
@pytest.mark.parametrize("family", crossed(FAMILIES, quick=3, name=lambda family: family.title))
def test_folders_of_a_family(family: Family, count: int, tmp_path: Path) -> None:
    index = sharded(family, tmp_path)
    files = {tmp_path / "config.json": settings, index: settings, tmp_path / SHARDS[0]: safetensors}
    assert any(hold(files, lambda: used(tmp_path), count))


@pytest.mark.parametrize(
    ("kind", "changed", "why"),
    [
        (
            "gemma4_text",
            {"enable_moe_block": True, "num_experts": 10**9, "top_k_experts": 1, "moe_intermediate_size": 8},
            "1000000000 experts",
        ),
        ("qwen3_moe", {"num_experts": 4096, "num_hidden_layers": 4096}, "experts in 4096 layers"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0, "factor": 2.0}}, "equally fast"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e-300}}, "beta_fast"),
        ("llama", {"head_dim": 2, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "two pairs"),
        ("phi3", {"original_max_position_embeddings": 1}, "one token"),
        ("qwen3_moe", {"mlp_only_layers": [[1]]}, "whole numbers"),
        ("qwen3_moe", {"num_hidden_layers": 4096, "mlp_only_layers": list(range(10**6))}, "misses"),
        ("llama4_text", {"moe_layers": "all"}, "whole numbers"),
    ],
)
def test_absurd_numbers_are_refused_before_they_cost_anything(kind, changed, why, tmp_path: Path) -> None:
    family = next(family for family in FAMILIES if family.kind == kind)
    sharded(family, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**told(family), **changed}))
    words = refused(lambda: open_checkpoint(tmp_path))
    assert words is not None
    assert why in words


@pytest.mark.parametrize("count", [8, MANY])
@pytest.mark.parametrize("fused", [False, True])
def test_folders_of_adapters(fused: bool, count: int, tmp_path: Path) -> None:
    base, lora = little_model(tmp_path / "base"), tmp_path / "lora"
    patterns = {"rank_pattern": {"q_proj": 3}, "alpha_pattern": {"down_proj": 6.0}, "target_modules": ["q_proj"]}
    saved(lora, MATRICES, **(patterns if fused else {}))
    files = {lora / "adapter_config.json": settings, lora / "adapter_model.safetensors": safetensors}
    checkpoint = open_checkpoint(base)

    def attempt() -> None:
        run(Llama.load(AdaptedCheckpoint(checkpoint, lora), room=ROOM), torch.tensor([3, 4, 5]), [0, 1, 2])

    assert sum(map(bool, hold(files, attempt, count))) >= count // 3


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> CachedModel:
    path = little_model(tmp_path_factory.mktemp("target"), LAYERS)
    return CachedModel(Llama.load(open_checkpoint(path), room=64), prefix_cache=0)


@pytest.mark.parametrize("count", [3, MANY])
@pytest.mark.parametrize("kind", crossed(DRAFTERS, quick=3))
def test_folders_of_drafters(kind: str, count: int, target: CachedModel, tmp_path: Path) -> None:
    DRAFTERS[kind](tmp_path)
    network = target.network
    assert isinstance(network, Llama)

    def attempt() -> None:
        drafter = attached(target, open_drafter(tmp_path, network.shape))
        mine, theirs = target.open([3, 4, 5, 6]), drafter.open([3, 4, 5, 6])
        try:
            drafter.follow(theirs, mine)
            target.score([ScoreRequest(mine, CHAIN)])
            drafter.score([ScoreRequest(theirs, CHAIN)])
        finally:
            mine.close()
            theirs.close()

    files = {tmp_path / "config.json": settings, tmp_path / "model.safetensors": safetensors}
    assert any(hold(files, attempt, count))
