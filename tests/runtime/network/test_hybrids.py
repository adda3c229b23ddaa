"""Recurrent and latent layers compute what transformers does, and a drafted tree over them what its chains do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import exercise
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from littlemodel import little_model, loaded

from tests.support.hybridfamilies import HYBRIDS
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
from unspool.runtime.network.quantised import rounded

transformers = pytest.importorskip("transformers", reason="the reference needs transformers: pip install 'unspool[hf]'")

VOCAB, LENGTH = 258, 90
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
FAMILIES: dict[str, dict[str, Any]] = {kind: own for _, kind, own in reversed(HYBRIDS)}
pytestmark = pytest.mark.usefixtures("one_thread")
Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Write a random model of a family once, with weights large enough to matter and letters for tokens."""
    known: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in known:
            torch.manual_seed(7)
            config = transformers.AutoConfig.for_model(name, **{**SIZES, **FAMILIES[name]})
            model = transformers.AutoModelForCausalLM.from_config(config)
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


@pytest.mark.parametrize("name", ["lfm2", "qwen3_next", "granitemoehybrid", "deepseek_v3"])
def test_logits_of_a_long_text_are_those_of_transformers(name: str, made: Made) -> None:
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


@pytest.mark.parametrize("name", ["lfm2", "qwen3_next", "nemotron_h", "deepseek_v3"])
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


@pytest.mark.parametrize("name", ["qwen3_5_text", "granitemoehybrid"])
def test_texts_of_like_lengths_leave_the_states_that_each_leaves_alone(name: str, made: Made) -> None:
    """Runs of six, seven and eight tokens are scanned together, the shorter ones filled up."""
    own, texts = network(made(name), torch.float64), [text()[first : first + 7 + first] for first in (0, 1, 2)]

    def laws(several: list[list[int]]) -> torch.Tensor:
        model = CachedModel(own)
        found = model.score([ScoreRequest(model.open(tokens), NOTHING) for tokens in several])
        return torch.stack([scores.leaf[0].scores for scores in found])

    assert float((laws(texts) - torch.cat([laws([tokens]) for tokens in texts])).abs().max()) < 1e-9


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5_text", "granitemoehybrid", "deepseek_v3"])
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


@pytest.mark.parametrize("name", ["lfm2", "qwen3_5_text"])
def test_every_method_writes_what_plain_decoding_does(name: str, made: Made) -> None:
    """A model that drafts, too, has a state to roll back."""
    with loaded(made(name), draft=str(made(name))) as lm:
        for temperature, methods in ((0.8, ("lookup", "suffix", "auto")), (0.0, ("lookup", "chain"))):
            asked = Settings(max_tokens=24, temperature=temperature, seed=5)
            plain = lm.generate("abcabcabcabd", asked, method="plain", raw=True)
            for method in methods:
                assert lm.generate("abcabcabcabd", asked, method=method, raw=True).text == plain.text, method


def test_kernels_that_know_no_such_layers_say_so(made: Made) -> None:
    recurrent, latent = (open_checkpoint(made(name)).shape for name in ("lfm2", "deepseek_v3"))
    assert unfused(recurrent, rounded=True) is None
    assert unfused(latent) is None
    assert "few bits" in str(unfused(latent, rounded=True))
    assert unpacked(recurrent) is not None
    assert unpacked(latent) is not None


@pytest.mark.parametrize("name", ["qwen3_next", "deepseek_v3"])
def test_weights_of_eight_bits_are_nearly_the_whole_ones(name: str, made: Made) -> None:
    laws = []
    for make in (dense, rounded("int8", dense, VOCAB)):
        model = CachedModel(Llama.load(open_checkpoint(made(name)), room=400, linear=make))
        laws.append(model.score([ScoreRequest(model.open(text(20)), NOTHING)])[0].leaf[0].scores)
    assert float(torch.corrcoef(torch.stack(laws))[0, 1]) > 0.99
