"""Checked drafts on canvases: always checked they have the law of reading, never checked they are the rule's own."""

import math

import pytest

from unspool.core.chance import Philox
from unspool.core.claim import LAW
from unspool.core.errors import BadRequest
from unspool.core.stop import Stop
from unspool.core.warp import Same, Temperature
from unspool.proof import prove
from unspool.recipes.methods import method
from unspool.recipes.unmask_looks import checked
from unspool.rules.unmask.checked import CheckedUnmask
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

pytestmark = pytest.mark.usefixtures("one_thread")


def written(decoder, seed, warp=None, most=6):
    table = Table(3, lambda text: [1 + (3 * text[-1] + 5 * len(text) + x) % 7 for x in range(3)])
    engine = Engine({"target": table})
    job = engine.submit(decoder, (1, 2), Philox(seed), warp or Same(), Stop(most=most))
    engine.run()
    return job.result().tokens, job.trace


@pytest.mark.parametrize("block", [0, 2])
def test_always_checked_the_law_is_that_of_reading(block):
    always = checked(cost=-math.inf, threshold=0.5, block=block, size=3)
    assert prove(always, LAW, quick=True, shaped=False).ok


def test_a_check_that_keeps_what_it_rejects_is_caught(monkeypatch):
    monkeypatch.setattr("unspool.core.law.Law.minus", lambda self, q, scale=1.0: self)  # the residual forgotten
    assert not prove(checked(cost=-math.inf, size=3), LAW, quick=True, shaped=False).ok


def test_never_checked_it_is_the_rule_alone():
    for seed in range(6):
        never = written(checked(cost=math.inf, threshold=0.4, block=3, size=6), seed)
        assert never[0] == written(method("confident:threshold=0.4,block=3,size=6"), seed)[0]


def test_greedy_and_always_checked_it_writes_what_reading_writes():
    greedy = Temperature(0.0)
    for seed in range(4):
        always = written(checked(cost=-math.inf, block=3, size=6), seed, greedy)
        assert always[0] == written(method("plain"), seed, greedy)[0]


def test_a_check_costs_a_look_and_at_least_one_token_stands():
    tokens, trace = written(checked(cost=-math.inf, block=3, size=6), 1)
    assert len(tokens) == 6
    assert trace.forwards["target"] <= 2 * 6


def test_what_cannot_be_used_is_refused():
    with pytest.raises(BadRequest, match="checked:cost"):
        CheckedUnmask(least=0)
