"""Shortcuts: a model's own layers draft for it, with its weights, and change nothing of its text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from littlemodel import little_model

from unspool import Settings, load
from unspool.api.draft_models import in_precision
from unspool.api.self_draft import layers_of, shortcut
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Temperature
from unspool.recipes.methods import method, needs
from unspool.recipes.names import INNER
from unspool.runtime.cache.sorted_exits import LateExit
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.linear import rms
from unspool.runtime.network.llama import Llama

LONG = Settings(max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("shortcut") / "little")


def test_all_layers_are_always_right(folder):
    lm = load(folder, draft="layers:2")
    found = lm.generate("Once", LONG, "chain:depth=3")
    assert found.tokens == lm.generate("Once", LONG).tokens
    assert found.trace.accepted_tokens == found.trace.drafted > 0
    assert found.trace.forwards["target"] == 6  # 3 drafts and one more, each


@pytest.mark.parametrize("spec", ["layers:1", "layers:1-1"])
def test_whatever_it_drafts_the_greedy_text_is_the_models(folder, spec):
    lm = load(folder, batch_invariant=True, draft=spec)
    found = lm.generate("Once", LONG, "chain:depth=3")
    assert found.tokens == lm.generate("Once", LONG).tokens
    assert found.trace.drafted > 0


def test_weights_are_shared_and_keys_are_not(folder):
    lm = load(folder, kv_cache_tokens=100)
    draft = shortcut(lm, "layers:1-1").model
    assert draft.network.layers == 1
    assert draft.network._stack[0] is lm.model.network._stack[1]
    assert draft.network.ends is lm.model.network.ends
    assert draft.slots is not lm.model.slots
    assert draft.room == lm.model.room


def test_the_first_layers_are_an_early_exit(folder):
    lm = load(folder)
    network, draft = lm.model.network, shortcut(lm, "layers:1").model
    text = [5, 9, 7, 40]
    whole, part = lm.model.open(text), draft.open(text)
    state = lm.model.score([ScoreRequest(whole, NOTHING, ("hidden:1",))])[0].hidden["hidden:1"]
    left = draft.score([ScoreRequest(part, NOTHING)])[0].leaf[0].scores
    ends = network.ends
    assert torch.allclose(ends.head(rms(state, ends.norm, network.shape.norm_eps))[0], left, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("layers:", "names no layers"),
        ("layers:x", "names no layers"),
        ("layers:0-", "names no layers"),
        ("layers:0", "expected layers 0 to 9"),
        ("layers:11", "expected layers 0 to 9"),
        ("layers:99999999999999", "expected layers 0 to 9"),
        ("layers:" + "9" * 5000, "expected layers 0 to 9"),
        ("layers:0-" + "9" * 5000, "names no layers"),
        ("layers:0-99999999999999", "expected layers 0 to 9"),
        ("layers:3-1", "expected layers 0 to 9"),
        ("layers:4-5,2-3", "expected layers 0 to 9"),
        ("layers:1-3,3-4", "expected layers 0 to 9"),
    ],
    ids=lambda given: given[:24],
)
def test_what_names_no_layers_is_refused(spec, told):
    with pytest.raises(BadRequest, match=told):
        layers_of(spec, 10)


def test_names_of_layers():
    assert layers_of("layers:3", 10) == (0, 1, 2)
    assert layers_of("layers:0-1, 4,8-9", 10) == (0, 1, 4, 8, 9)


def test_only_models_that_have_layers_here_can(folder):
    with pytest.raises(BadRequest, match="native runtime"):
        load(folder, runtime="transformers", draft="layers:1")


def test_the_command(folder, here):
    words = "run", "Once", "-m", str(folder), "--draft", "layers:1"
    code, _, err = here(*words, "--method", "chain", "--max-tokens", "8")
    assert code == 0, err
    assert "layers:1 drafts for" in err
    code, out, err = here(*words, "--small", "layers:1-1", "--method", "cascade", "--max-tokens", "8", "--json")
    assert code == 0, err
    assert json.loads(out)["trace"]["forwards"]["small"] > 0  # S2D's sorted exits
    assert "They fit together" in here("plan", str(folder), "--draft", "layers:1")[1]


# ---- three models, and other precisions


def written(lm, spec, temperature=0.0):
    return lm.generate("Once", replace(LONG, temperature=temperature, seed=3), spec)


def test_a_cascade_asks_the_small_model_where_there_is_one(folder):
    two, three = load(folder, draft="layers:1"), load(folder, draft="layers:1", small="layers:1-1")
    plain = written(two, "plain")
    assert "small" not in written(two, "cascade").trace.forwards
    found = written(three, "cascade")
    assert found.trace.forwards["small"] > 0
    assert found.tokens == plain.tokens
    assert written(three, "cascade:inner=lookup").trace.forwards["small"] == 0
    assert written(three, "cascade:inner=likeliest").trace.forwards["small"] > 0
    assert needs("cascade:inner=chain") == ("draft", "small")
    assert needs("cascade:inner=recycle") == ("draft",)


@pytest.mark.parametrize("inner", [name for name in INNER if name != "heads"])  # tables have none
def test_any_drafter_stands_inside_a_cascade(inner):
    rows = [(5, 3, 2, 1), (1, 4, 4, 2), (2, 1, 6, 3)]
    tables = {
        name: Table(4, lambda text, salt=salt: [w + salt * (text[-1] == x) for x, w in enumerate(rows[sum(text) % 3])])
        for salt, name in enumerate(("target", "draft", "small"))
    }
    texts = []
    for spec in ("plain", f"cascade:inner={inner}"):
        engine = Engine(tables)
        job = engine.submit(method(spec), (0, 1, 2, 0, 1, 2), Philox(1), Temperature(0.0), Stop(most=16))
        engine.run()
        texts.append(job.result().tokens)
    assert texts[0] == texts[1]
    assert job.trace.accepted_tokens > 0


def test_sorted_exits_are_parts_of_one_network(folder):
    lm = load(folder, draft="layers:2", small="layers:1")
    small, draft = lm.draft.draft.model.network, lm.draft.model.network
    assert (draft.layers, small.layers) == (2, 1)
    assert small._stack[0] is draft._stack[0] is lm.model.network._stack[0]
    found = written(lm, "escalate:sure=0.9")
    assert found.tokens == written(lm, "plain").tokens
    assert found.trace.forwards["small"] >= found.trace.forwards["draft"] > 0


@pytest.mark.parametrize(
    ("name", "said"), [("self:int4", "int4 weights"), ("self:bf16", "bfloat16"), ("{}:int8", "int8 weights")]
)
def test_a_draft_in_another_precision_leaves_the_text_what_it_is(folder, name, said):
    lm = load(folder, dtype="fp32", quantization=None, draft=name.format(folder))
    found = written(lm, "chain:depth=3")
    assert found.tokens == written(lm, "plain").tokens
    assert found.trace.accepted_tokens > 0
    assert said in lm.draft.key
    assert said not in lm.key


def test_precisions_and_third_models_that_make_no_sense_are_refused(folder):
    with pytest.raises(BadRequest, match="self:int4"):
        load(folder, draft="self")
    with pytest.raises(BadRequest, match="give that too, as draft="):
        load(folder, small="layers:1")
    with pytest.raises(BadRequest, match="draft is 3"):
        load(folder, draft=3)
    assert in_precision("a:b/c:int4") == ("a:b/c", None, "int4")
    assert in_precision("name:fp16") == ("name", "fp16", None)
    assert in_precision("C:model") == ("C:model", None, None)


# ---- sorted exits


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("deep") / "deep", layers=5)


def layers_read(monkeypatch):
    """How many tokens have passed how many layers, in all networks together."""
    passed = []
    forward = Llama.forward

    def counting(self, batch):
        passed.append(len(batch.tokens) * self.layers)
        return forward(self, batch)

    monkeypatch.setattr(Llama, "forward", counting)
    return passed


def exits(lm):
    return lm.draft.model, lm.draft.draft.model


def test_the_later_exit_goes_on_from_the_states_of_the_earlier_one(deep, monkeypatch):
    lm = load(deep, dtype="fp32", quantization=None, draft="layers:4", small="layers:3")
    late, early = exits(lm)
    alone = shortcut(lm, "layers:4").model
    tree, text = Tree(tuple(map(chosen, (5, 6, 7, 8))), (ROOT, ROOT, 0, 2)), (1, 2, 3, 4)
    sessions = [model.open(text) for model in (early, late, alone)]
    early.score([ScoreRequest(sessions[0], tree)])
    passed = layers_read(monkeypatch)
    (found,) = late.score([ScoreRequest(sessions[1], tree)])
    assert passed == [8 * 2]  # four tokens of the text and four drafted ones, through two of four layers
    (truth,) = alone.score([ScoreRequest(sessions[2], tree)])
    for node in (ROOT, *range(4)):
        assert torch.allclose(found.law(node).p, truth.law(node).p, atol=1e-6)
    for session in sessions:
        session.keep(tree, (2,), (9,))
    one = Tree.chain([chosen(3)])
    (found,), (truth,) = (m.score([ScoreRequest(s, one)]) for m, s in ((late, sessions[1]), (alone, sessions[2])))
    assert torch.allclose(found.law(0).p, truth.law(0).p, atol=1e-6)  # the earlier exit was not even asked


def test_texts_with_the_same_words_have_sessions_of_their_own(deep):
    lm = load(deep, dtype="fp32", quantization=None, draft="layers:4", small="layers:3")
    late, early = exits(lm)
    alone = shortcut(lm, "layers:4").model
    both = [(early.open((1, 2)), late.open((1, 2))) for _ in range(2)]
    trees = [Tree.chain([chosen(x), chosen(x + 1)]) for x in (3, 7)]
    found = late.score([ScoreRequest(mine, tree) for (_, mine), tree in zip(both, trees, strict=True)])
    for scores, tree in zip(found, trees, strict=True):
        (truth,) = alone.score([ScoreRequest(alone.open((1, 2)), tree)])
        assert torch.allclose(scores.law(1).p, truth.law(1).p, atol=1e-6)
    strange = late.open((9, 9, 9))  # which the earlier exit has never seen
    late.score([ScoreRequest(strange, trees[0])])
    held = len(early.sessions)
    strange.close()
    assert len(early.sessions) == held - 1
    one, other = late.open((9, 9, 9)), late.open((9, 9, 9))
    late.score([ScoreRequest(each, trees[0]) for each in (one, other)])
    one.close()  # and with it what was opened for it, but nothing of the other's
    (scores,) = late.score([ScoreRequest(other, trees[1])])
    (truth,) = alone.score([ScoreRequest(alone.open((9, 9, 9)), trees[1])])
    assert torch.allclose(scores.law(1).p, truth.law(1).p, atol=1e-6)


@pytest.mark.parametrize("spec", ["escalate:sure=0.9", "surest:sure=0.5", "cascade:inner=chain", "chain:depth=3"])
def test_sorted_exits_write_the_models_text_in_a_batch_with_prompts_in_parts(deep, spec):
    lm = load(deep, dtype="fp32", quantization=None, draft="layers:4", small="layers:2")
    assert isinstance(lm.draft.model, LateExit)
    prompts = [(1, 2, 3), (1, 2, 3), tuple(range(1, 40)) * 8]
    settings = Settings(max_tokens=12, ignore_eos=True)
    for mine, plain in zip(lm.batch(prompts, settings, spec), lm.batch(prompts, settings, "plain"), strict=True):
        assert mine.tokens == plain.tokens


def test_what_shares_nothing_is_as_before(deep):
    for draft, small in (("layers:4", "layers:1"), ("layers:2", "layers:3"), ("layers:0-1,3-4", "layers:2")):
        lm = load(deep, dtype="fp32", quantization=None, draft=draft, small=small)
        assert not isinstance(lm.draft.model, LateExit)
