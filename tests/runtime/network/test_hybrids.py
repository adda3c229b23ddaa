"""Recurrent and latent layers compute what transformers does, and a drafted tree over them what its chains do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import exercise
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from littlemodel import little_model, loaded

from unspool import Settings
from unspool.core.law import chosen
from unspool.core.tree import NOTHING, Tree
from unspool.models.weights import open_checkpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cpu.packed_llama import unpacked
from unspool.runtime.cuda.fusible import unfused
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network import batch_invariant
from unspool.runtime.network.linear import dense
from unspool.runtime.network.llama import Llama

transformers = pytest.importorskip("transformers", reason="the reference needs transformers: pip install 'unspool[hf]'")

VOCAB, LENGTH = 258, 90
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
DELTA = {
    "head_dim": 16,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_hidden_layers": 3,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 40}
MAMBA = {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "mamba_n_heads": 8,
    "mamba_d_head": 12,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_chunk_size": 16,
    "shared_intermediate_size": 56,
}
GRANITE = {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}
NEMOTRON = {
    "head_dim": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 12,
    "n_groups": 2,
    "ssm_state_size": 8,
    "chunk_size": 16,
    "n_routed_experts": 4,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 40,
}
LATENT = {
    "num_key_value_heads": 6,
    "kv_lora_rank": 20,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
    "num_hidden_layers": 2,
}
ROUTED = {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
MSCALE = {"mscale": 1.0, "mscale_all_dim": 0.8, "beta_fast": 32, "beta_slow": 1}
CONV = {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "lfm2": ("Lfm2Config", {**CONV, "block_multiple_of": 16, "conv_bias": True}),
    "lfm2_moe": ("Lfm2MoeConfig", {**CONV, **EXPERTS, "num_dense_layers": 1}),
    "qwen3_5": ("Qwen3_5TextConfig", DELTA),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", {**DELTA, **SHARED}),
    "qwen3_next": ("Qwen3NextConfig", {**DELTA, **SHARED}),
    "granite": ("GraniteMoeHybridConfig", {**MAMBA, **GRANITE, "num_local_experts": 0}),
    "nemotron": (
        "NemotronHConfig",
        {**NEMOTRON, "layers_block_type": ["linear_attention", "mlp", "linear_attention", "full_attention", "moe"]},
    ),
    "deepseek": ("DeepseekV3Config", {**LATENT, **ROUTED, "q_lora_rank": 24, "first_k_dense_replace": 1}),
    "deepseek-yarn": (
        "DeepseekV3Config",
        {**LATENT, "q_lora_rank": None, "first_k_dense_replace": 2, "rope_parameters": {**YARN, **MSCALE}},
    ),
    "glm4_lite": ("Glm4MoeLiteConfig", {**LATENT, **ROUTED, "n_group": 1, "q_lora_rank": 24}),
    "minicpm3": ("MiniCPM3Config", {**LATENT, "q_lora_rank": 24, "dim_model_base": 16}),
}
Made = Callable[[str], Path]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Write a random model of a family once, with weights large enough to matter and letters for tokens."""
    known: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in known:
            torch.manual_seed(7)
            kind, own = FAMILIES[name]
            model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind)(**{**SIZES, **own}))
            buffers = [part for part in model.named_buffers() if "bias" in part[0]]
            for at, weight in [*model.named_parameters(), *buffers]:
                if "A_log" in at:
                    continue
                weight.data.normal_(std=0.15)
                if "norm" in at and ("qwen" not in name or "linear_attn" in at):
                    weight.data += 1
            known[name] = little_model(tmp_path_factory.mktemp(name))
            model.save_pretrained(known[name])
        return known[name]

    return make


def text(length: int = LENGTH) -> list[int]:
    return torch.randint(3, VOCAB, (length,), generator=torch.Generator().manual_seed(1)).tolist()


def network(folder: Path, dtype: torch.dtype = torch.float32) -> Llama:
    return Llama.load(open_checkpoint(folder), dtype, room=400)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_transformers(name: str, made: Made) -> None:
    """A prompt read in pieces, a chain of drafts, and what follows the part of it that is kept."""
    tokens = text()
    reference = transformers.AutoModelForCausalLM.from_pretrained(made(name), attn_implementation="eager").eval()
    with torch.no_grad():
        want = reference(torch.tensor([tokens])).logits[0]
    model = CachedModel(network(made(name)))
    session = model.open(tokens[:70])
    model.read([(session, 65)])
    draft = Tree.chain([chosen(x) for x in tokens[70:80]])
    scores = model.score([ScoreRequest(session, draft)])[0]
    got = torch.stack([law.scores for law in (*scores.leaf, *scores.after)])
    assert float((got - want[69:80]).abs().max()) < 1e-4
    session.keep(draft, (4,), (tokens[75],))
    scores = model.score([ScoreRequest(session, Tree.chain([chosen(x) for x in tokens[76:]]))])[0]
    got = torch.stack([law.scores for law in (*scores.leaf, *scores.after)])
    assert float((got - want[75:]).abs().max()) < 1e-4


@pytest.mark.parametrize("name", ["lfm2", "qwen3_next", "nemotron", "deepseek"])
def test_trees_forks_and_batches_equal_recomputation(name: str, made: Made) -> None:
    own, alone = network(made(name), torch.float64), CachedModel(network(made(name), torch.float64))

    def scratch(tokens: tuple[int, ...]) -> torch.Tensor:
        session = alone.open(tokens)
        law = alone.score([ScoreRequest(session, NOTHING)])[0].leaf[0]
        session.close()
        return law.scores

    @given(st.data())
    @settings(max_examples=5, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def check(data: st.DataObject) -> None:
        exercise(data, CachedModel(own), scratch, 1e-9, vocab=3, longest=9)
        assert own.slots.in_use == 0

    check()


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5", "granite", "deepseek"])
def test_with_fixed_shapes_a_token_has_the_same_bits_in_any_company(name: str, made: Made) -> None:
    wide, head = batch_invariant.padded(dense, 8), batch_invariant.padded(dense, 8)
    made_so = Llama.load(
        open_checkpoint(made(name)),
        room=400,
        linear=wide,
        planner=batch_invariant.PerTokenPlanner,
        router=head,
    )
    batch_invariant.check(CachedModel(made_so))


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5"])
def test_every_method_writes_what_plain_decoding_does(name: str, made: Made) -> None:
    """A model that drafts, too, has a state to roll back."""
    with loaded(made(name), draft=str(made(name))) as lm:
        for temperature, methods in ((0.8, ("lookup", "suffix", "auto")), (0.0, ("lookup", "chain"))):
            asked = Settings(max_tokens=24, temperature=temperature, seed=5)
            plain = lm.generate("abcabcabcabd", asked, method="plain", raw=True)
            for method in methods:
                assert lm.generate("abcabcabcabd", asked, method=method, raw=True).text == plain.text, method


@pytest.mark.parametrize(("name", "what"), [("lfm2", "recurrent layers"), ("deepseek", "latent attention")])
def test_kernels_that_know_no_such_layers_say_so(name: str, what: str, made: Made) -> None:
    shape = open_checkpoint(made(name)).shape
    assert what in str(unfused(shape))
    assert unpacked(shape) is not None
