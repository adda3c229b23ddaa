"""SpecDec++: a chain goes on as long as the head expects it to stand, and what was judged stays."""

from __future__ import annotations

import pytest
import torch

from unspool.core.asks import Scores
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.stop import Stop
from unspool.core.warp import Same
from unspool.core.warp.warp import Prefix
from unspool.proof import prove
from unspool.rules.decode import Speculate
from unspool.rules.draft import Chain, SpecDecPP
from unspool.rules.draft.specdecpp import states_of
from unspool.rules.verify import rejection
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine

DRAFT = Table(4, lambda text: [1.0 + (x == (text[-1] + 1) % 4) * len(text) for x in range(4)])


def drafted(judge, doubt=0.3, least=1, longest=6, budget=8, seed=0):
    """The drafted tokens of one round, and the forwards of the draft model that they took."""
    prefix = Prefix.of((0,), Same())
    proposing = SpecDecPP(judge, doubt, least, longest).propose(prefix, budget, Philox(seed))
    forwards, reply = 0, None
    while True:
        try:
            ask = proposing.send(reply)
        except StopIteration as end:
            return end.value.tokens(range(len(end.value))), forwards
        (reply,) = DRAFT.score([ScoreRequest(DRAFT.open((0,)), ask.tree, ask.want)])
        forwards += 1


def sure(p):
    return lambda states: torch.full((len(states),), p).logit()


def test_a_sure_head_drafts_to_the_end_and_a_doubtful_one_stops_after_the_token_it_judged():
    everything, forwards = drafted(sure(0.99))
    assert (len(everything), forwards) == (6, 6)
    stopped, forwards = drafted(sure(0.5))
    assert stopped == everything[:1]  # 1 − 0.5 > 0.3, and the token stays
    assert forwards == 2  # the second one has read it
    assert drafted(sure(0.5), least=3)[0] == everything[:3]
    assert drafted(sure(0.8))[0] == everything[:2]  # 1 − 0.8² > 0.3
    assert drafted(sure(0.8), doubt=0.6)[0] == everything[:5]
    assert len(drafted(sure(0.99), budget=2)[0]) == 2


def test_the_head_reads_the_state_behind_the_token_that_it_judges():
    """A table's state is its law: it leans to the token after the drafted one, the more the longer the text is."""
    seen = []

    def judge(states):
        seen.append(states[0].tolist())
        return torch.full((1,), 9.0)

    tokens, _ = drafted(judge, longest=4)
    text = (0, *tokens)
    assert seen == [pytest.approx(DRAFT.law(text[: i + 2]).p.tolist()) for i in range(3)]


def test_a_draft_model_that_tells_no_states_is_refused_in_words():
    with pytest.raises(BadRequest, match="reads the states of its draft model"):
        states_of(Scores([], [DRAFT.law((0,))]))


def test_whatever_a_head_says_the_law_is_the_targets_and_a_head_that_drops_its_token_is_caught():
    def fickle(states):
        return (states[:, 0] - 0.4) * 9

    assert prove(Speculate(SpecDecPP(fickle, 0.5, 1, 2), rejection, budget=2), quick=True).ok
    assert not prove(Speculate(Dropping(fickle, 0.5, 1, 2), rejection, budget=2), quick=True).ok


class Dropping(SpecDecPP):
    """Planted: the doubtful token goes."""

    def propose(self, prefix, budget, chance):
        tree = yield from super().propose(prefix, budget, chance)
        return tree.within(len(tree) - 1) if 0 < len(tree) < min(self.longest, budget) else tree


def test_it_stops_sooner_where_drafts_are_bad():
    """The longer the text, the surer is the draft of what the target says: to see that is to draft less in vain."""

    def wary(states):
        return torch.where(states.amax(-1) > 0.6, 9.0, -9.0)

    target = Table(4, lambda text: [float(x == (text[-1] + 1) % 4) for x in range(4)])

    def rate(draft):
        engine = Engine({"target": target, "draft": DRAFT})
        method = Speculate(draft, rejection, budget=8)
        jobs = [engine.submit(method, (0,), Philox(seed), Same(), Stop(most=30)) for seed in range(6)]
        engine.run()
        assert {job.result().tokens for job in jobs} == {tuple((1 + i) % 4 for i in range(30))}
        return sum(job.trace.accepted_tokens for job in jobs) / sum(job.trace.drafted for job in jobs)

    assert rate(SpecDecPP(wary, 0.3, 1, 8)) > rate(Chain(8)) + 0.02
