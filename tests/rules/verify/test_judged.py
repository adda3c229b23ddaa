"""Judge decoding: what stands beside what plain decoding draws, what does not, and how its head is trained."""

from __future__ import annotations

import json

import pytest
import torch

from tests.support.littlemodel import little_model
from unspool import load
from unspool.api.settings import Settings
from unspool.core.asks import Check
from unspool.core.chance import Philox
from unspool.core.claim import SEED
from unspool.core.errors import BadRequest
from unspool.core.law import chosen
from unspool.core.tree import ROOT, Tree
from unspool.core.warp import Same, Temperature
from unspool.core.warp.warp import Prefix, Scored
from unspool.proof import prove
from unspool.recipes.methods import method
from unspool.rules.decode import Speculate
from unspool.rules.draft import Lookup
from unspool.rules.draft.specdecpp import AcceptanceHead
from unspool.rules.verify import Judged
from unspool.rules.verify.judged import STATE
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import ScoreRequest
from unspool_train import judge_head as training

pytestmark = pytest.mark.usefixtures("one_thread")
TARGET = Table(4, lambda text: [0.7 if x == (text[-1] + 1) % 4 else 0.1 for x in range(4)])
DRAFTED = Tree.chain([chosen(token) for token in (2, 3, 3, 0)])  # behind 1: the second 3 is not the target's


def verdict(judge, threshold=0.5, tree=DRAFTED, warp=None):
    check = Check(tree, Prefix.of((1,), warp or Temperature(0.0)), Judged(judge, threshold), Philox(0))
    (scores,) = TARGET.score([ScoreRequest(TARGET.open((1,)), tree, (STATE,))])
    return tuple(check.answer(scores).verdict)


def says(*right):
    """A judge that holds those tokens right whose state leans to one of these."""
    return lambda states: torch.tensor([9.0 if int(state.argmax()) in right else -9.0 for state in states])


def test_what_the_target_says_stands_and_beside_it_what_is_held_right():
    assert verdict(says()) == (1, 0), "2 3, and then the target's own"
    assert verdict(says(0)) == (3, 1), "the state behind the second 3 leans to 0, which then is drafted and said"
    assert verdict(says(0), threshold=1.0) == (1, 0), "nothing exceeds 1"
    assert verdict(says(1, 2, 3)) == (1, 0), "judged is the state behind the token itself"


def test_the_first_of_several_is_judged_and_what_the_target_says_goes_first():
    tree = Tree(tuple(chosen(token) for token in (0, 3, 2)), (ROOT, ROOT, ROOT))
    assert verdict(says(0, 1), tree=tree) == (2, 3)
    without = Tree(tuple(chosen(token) for token in (0, 3)), (ROOT, ROOT))
    assert verdict(says(1), tree=without) == (0, 1)
    assert verdict(says(0), tree=without) == (ROOT, 2), "the second is not asked about"


def test_what_is_forbidden_is_never_right():
    class Without3(Same):
        def __call__(self, state, law):
            return law.only(torch.tensor([True, True, True, False]))

    assert verdict(says(0, 1, 2, 3), tree=Tree.chain([chosen(3)]), warp=Without3())[0] == ROOT


def test_a_judge_that_says_no_is_sample_matching_and_others_are_not():
    draft = Lookup(ngram=1, least=1, depth=2)
    assert prove(Speculate(draft, Judged(says(0, 1, 2, 3), 1.0), budget=2), claim=SEED, quick=True).ok
    assert not prove(Speculate(draft, Judged(says(0, 1, 2, 3)), budget=2), claim=SEED, quick=True).ok


def test_a_target_that_tells_no_states_is_refused_in_words():
    scored = Scored(Tree.chain([chosen(0)]), Prefix.of((1,), Temperature(0.0)), TARGET.law((1,)), [TARGET.law((1, 0))])
    with pytest.raises(BadRequest, match="reads the states of the target"):
        Judged(says())(scored, Philox(0))
    with pytest.raises(BadRequest, match="threshold"):
        Judged(says(), 1.5)
    with pytest.raises(BadRequest, match="needs a trained head"):
        method("chain + judged")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("target"), 4)


def test_a_head_is_trained_on_labels_that_make_themselves(target, tmp_path, capsys, monkeypatch):
    """Swaps of the draft model's tokens are labelled by how the answer ends; the head that is written decodes."""
    monkeypatch.setattr(training, "final_number", lambda text: str(sum(map(ord, text)) % 3))
    file, out = tmp_path / "asked.jsonl", tmp_path / "judge.safetensors"
    file.write_text("\n".join(json.dumps({"question": f"What is {n}?"}) for n in range(9)), encoding="utf-8")
    told = training.JudgeSettings(
        model=str(target), draft="layers:2", questions=str(file), out=str(out), tokens=12, swaps=3
    )
    trained = training.judge(told)
    assert "swapped tokens" in capsys.readouterr().out
    assert 0 <= trained.accuracy <= 1
    lm, asked = load(target, draft="layers:2"), Settings(max_tokens=16, temperature=0)
    plain = lm.generate("a text", asked).tokens
    assert lm.generate("a text", asked, f"chain:depth=4 + judged:head={out},threshold=1").tokens == plain
    assert len(lm.generate("a text", asked, f"chain:depth=4 + judged:head={out},threshold=0").tokens) == 16
    AcceptanceHead(7, 0).save(out)
    with pytest.raises(BadRequest, match="reads states of 7 numbers"):
        lm.generate("a text", asked, f"chain:depth=4 + judged:head={out},threshold=0")


def test_a_label_says_whether_the_number_stays(target, monkeypatch):
    """With a draft model that says one token everywhere, what is swapped and where it ends is known."""
    lm = load(target, draft="layers:2")
    asked = [training.NumberQuestion(f"What is {n}?", None) for n in range(4)]
    settings = training.JudgeSettings(tokens=10, swaps=2)
    kept = training.labelled(lm, asked, settings, lambda text: "7")
    assert kept.right.all()
    assert kept.states.shape[1] == 32
    turns = iter(range(1000))
    lost = training.labelled(lm, asked, settings, lambda text: str(next(turns)))
    assert not lost.right.any()
    assert torch.equal(kept.states, lost.states)
    with pytest.raises(BadRequest, match="needs two questions"):
        training.labelled(lm, [training.NumberQuestion("What?", "no number")], settings, lambda text: "7")


def test_a_head_learns_what_a_plane_divides():
    dice = torch.Generator().manual_seed(0)
    states = torch.randn(400, 6, generator=dice)
    data = training.Labels(states, states[:, 1] - states[:, 4] > 0.5, torch.arange(400) % 20)
    trained = training.train(data, training.JudgeSettings(steps=100, rate=5e-2))
    assert trained.accuracy > 0.9
    assert trained.right_stand > 0.9 > 0.2 > trained.wrong_stand


@pytest.mark.parametrize(
    ("text", "number"),
    [("so 1,250 in all.", "1250"), ("3 and 4.50", "4.5"), ("-7", "-7"), ("none", None), ("#### 12", "12")],
)
def test_the_last_number_of_an_answer(text, number):
    assert training.final_number(text) == number


def test_sums_of_our_own_have_answers():
    found = training.sums(20, 3)
    assert len({question.text for question in found}) > 10
    assert all(question.number is not None and question.number.isdecimal() for question in found)
    assert found == training.sums(20, 3)
