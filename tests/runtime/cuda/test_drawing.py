"""Chains that a draft model draws on its device: those of the rule, token by token, with nothing left behind."""

from __future__ import annotations

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
import torch
from test_leaps import VOCAB, Reader, scores
from test_rows import left

from unspool.core.asks import Draw
from unspool.core.chance import At, Philox, Role
from unspool.core.errors import BadScores
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.core.warp import Prefix, Temperature
from unspool.rules.decode import Speculate
from unspool.rules.draft import Chain
from unspool.rules.verify import rejection, sample_match
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.draft_bridge.best_effort import BestEffortDraft
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the device here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy, of what kernels mask away
]
PROMPTS = ([5, 1, 4] * 7, [2, 3, 2, 3, 2], [1])


def drafting(network, prefix_cache, sequences):
    """A model that draws on its device, but does not draft for itself."""
    model = graph_model(network, prefix_cache, sequences)
    model.device.speculation = None
    return model


def host(network, prefix_cache, sequences):
    """The same model, which leaves every rule to the host."""
    model = drafting(network, prefix_cache, sequences)
    model.device.check, model.drafting = lambda asked, checks: None, None
    return model


def by_the_rule(text, seed, number, depth, t):
    found = []
    for i in range(depth):
        law = Temperature(t)(None, Law(scores([*text, *found])))
        found.append(Philox(seed, number).choose(law, At(len(text) + i, Role.DRAFT, round=len(text))))
    return found


def drawn(model, sessions, t, depths):
    draws = [
        Draw(Prefix.of(tuple(s.leaves[0].tokens), Temperature(t)), depth, Philox(7, i),
             At(len(s.leaves[0].tokens), Role.DRAFT, round=len(s.leaves[0].tokens)), "draft")
        for i, (s, depth) in enumerate(zip(sessions, depths, strict=True))
    ]  # fmt: skip
    return model.drafting.draw([ScoreRequest(session, NOTHING) for session in sessions], draws)


@pytest.mark.parametrize("t", [0.0, 0.7])
def test_a_chain_drawn_on_the_device_is_the_one_that_the_rule_draws(t):
    network = Reader(VOCAB, 400, 128)
    model = drafting(network, 2, 16)
    sessions, texts = [model.open(prompt) for prompt in PROMPTS], [list(prompt) for prompt in PROMPTS]
    for turn in range(3):
        depths, forwards = [(3, 1, 2), (2, 2, 2), (1, 3, 1)][turn], network.forwards
        found = drawn(model, sessions, t, depths)
        assert network.forwards - forwards <= 3 + 1  # one more where a whole chain was kept
        for number, (text, depth, drew) in enumerate(zip(texts, depths, found, strict=True)):
            chain = by_the_rule(text, 7, number, depth, t)
            assert drew.tree.tokens(range(depth)) == tuple(chain)
            for i, node in enumerate(drew.tree.drawn):
                expected = Temperature(t)(None, Law(scores([*text, *chain[:i]])))
                assert torch.allclose(node.law.spread(expected), expected.spread(expected), atol=1e-5)
        forwards = network.forwards
        asked = [ScoreRequest(s, drew.tree) for s, drew in zip(sessions, found, strict=True)]
        answers = model.score(asked)
        assert network.forwards - forwards == 1
        assert [answer.rows for answer in answers] == [1, 1, 1]  # only the last of each chain was not computed
        for text, drew, answer in zip(texts, found, answers, strict=True):
            for node in range(len(drew.tree)):
                text_there = [*text, *drew.tree.tokens(drew.tree.path(node))]
                assert torch.allclose(answer.law(node).scores, scores(text_there), atol=1e-5)
        for number, (session, drew) in enumerate(zip(sessions, found, strict=True)):
            node = min(turn, len(drew.tree) - 1)
            session.keep(drew.tree, [node], [number])
            texts[number] += [*drew.tree.tokens(drew.tree.path(node)), number]
            assert session.leaves[0].tokens == texts[number]
    for session in sessions:
        session.close()
    assert left(model) == (0, 0)


@pytest.mark.parametrize(("t", "verify"), [pytest.param(0.0, rejection, marks=pytest.mark.slow), (0.8, rejection)])
def test_texts_with_a_draft_model_are_the_same_on_the_device_and_by_the_rules(t, verify):
    def texts(kind):
        target, draft = kind(Reader(VOCAB, 900, 128), 2, 16), kind(Reader(VOCAB, 900, 128), 2, 16)
        engine = Engine({"target": target, "draft": BestEffortDraft(draft)})
        method = Speculate(Chain(3), verify, budget=3)
        limits = {"warp": Temperature(t), "stop": Stop(most=6, spare=4), "laws": False}
        jobs = [engine.submit(method, prompt, Philox(3, i), **limits) for i, prompt in enumerate(PROMPTS[1:])]
        engine.run()
        assert left(target) == left(draft) == (0, 0)
        return [job.result().tokens for job in jobs], [job.trace for job in jobs]

    (ours, traces), (theirs, others) = texts(drafting), texts(host)
    assert ours == theirs
    assert [trace.forwards for trace in traces] == [trace.forwards for trace in others]
    assert [trace.accepted for trace in traces] == [trace.accepted for trace in others]


def test_a_draft_that_has_no_room_or_no_place_left_is_drawn_by_its_scores():
    model = drafting(Reader(VOCAB, 12, 128), 0, 16)
    sessions = [model.open([1, 2, 3, 4, 5, 6, 7, 0, 1, 2])]
    assert drawn(model, sessions, 0.0, [4]) is None  # four more slots than there are
    assert len(drawn(model, sessions, 0.0, [2])[0].tree) == 2
    sessions[0].close()
    model = drafting(Reader(VOCAB, 400, 12), 0, 16)
    sessions = [model.open([1] * 10)]
    assert drawn(model, sessions, 0.0, [3]) is None
    sessions[0].close()
    assert left(model) == (0, 0)


def test_broken_scores_of_a_draft_are_left_to_whoever_scores_them():
    class Broken(Reader):
        def read(self, x):
            return super().read(x) * float("nan")

    model = drafting(Broken(VOCAB, 400, 128), 0, 16)
    session = model.open([1, 2, 3])
    assert drawn(model, [session], 0.0, [3]) == [None]
    session.close()
    assert left(model) == (0, 0)
    target = drafting(Broken(VOCAB, 400, 128), 0, 16)
    engine = Engine({"target": target, "draft": BestEffortDraft(drafting(Reader(VOCAB, 400, 128), 0, 16))})
    method = Speculate(Chain(2), rejection, budget=2)
    job = engine.submit(method, [1, 2], Philox(0), Temperature(0.9), Stop(most=9, spare=4), laws=False)
    engine.run()
    assert isinstance(job.error, BadScores)


def test_two_rules_that_kernels_decide_otherwise_do_not_decide_for_each_other():
    """One falls by coins, one matches samples: in one step each text is what it is alone."""

    def texts(*verifiers):
        target, draft = (drafting(Reader(VOCAB, 900, 128), 2, 16) for _ in range(2))
        engine = Engine({"target": target, "draft": BestEffortDraft(draft)})
        limits = {"warp": Temperature(1.5), "stop": Stop(most=8, spare=4), "laws": False}
        methods = [Speculate(Chain(2), verify, budget=2) for verify in verifiers]
        jobs = [engine.submit(method, PROMPTS[1], Philox(3), **limits) for method in methods]
        engine.run()
        return [job.result().tokens for job in jobs]

    assert texts(rejection, sample_match) == texts(rejection) + texts(sample_match)
    assert texts(sample_match, rejection) == texts(sample_match) + texts(rejection)
