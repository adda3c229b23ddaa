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
from unspool.rules.unmask.routing import AboveCost, AboveSure, Bandit, Hysteresis, RunSeen
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
    with pytest.raises(BadRequest, match="checked:least"):
        CheckedUnmask(least=0)
    with pytest.raises(BadRequest, match="checked:cost"):
        AboveCost(math.nan)
    with pytest.raises(BadRequest, match="off"):
        Hysteresis(on=1, off=2)


def seen(expected, sure=1, span=4, progress=0.0, entropy=1.0):
    return RunSeen(expected, sure, span, progress, entropy)


def test_a_cost_is_weighed_against_what_is_expected_and_what_is_sure_anyway():
    assert AboveCost(1.5)(seen(1.5))
    assert not AboveCost(1.5)(seen(1.4))
    assert AboveSure(1.5)(seen(3.0, sure=2))
    assert not AboveSure(1.5)(seen(2.9, sure=2))


def test_with_hysteresis_it_begins_late_and_ends_late():
    route = Hysteresis(cost=2.0, on=1.0, off=-1.0).begin()
    assert [route(seen(e)) for e in (2.9, 3.0, 1.0, 0.9, 2.9, 3.1)] == [False, True, True, False, False, True]
    assert not route.begin()(seen(2.9))  # another request begins anew


def test_a_bandit_learns_what_brings_more_of_each_kind_of_run():
    route = Bandit(bonus=0.2).begin()
    done = {4: [], 16: []}
    for _ in range(60):
        for span, checked_tokens in ((4, 1), (16, 8)):  # short runs: two looks for one; long runs: for eight
            checks = route(seen(1.0, span=span))
            route.learn(checked_tokens if checks else 1)
            done[span].append(checks)
    assert done[4][:2] == done[16][:2] == [True, False]  # each is tried once
    assert sum(done[4]) < 12
    assert sum(done[16]) > 48


@pytest.mark.parametrize("route", ["static", "dynamic", "hysteresis", "bandit"])
def test_every_route_has_a_name_and_fills_the_canvas(route):
    tokens, trace = written(method(f"checked:route={route},cost=0.5,block=3,size=6"), 1)
    assert len(tokens) == 6
    assert trace.forwards["target"] <= 2 * 6
    assert (tokens, trace.forwards) == (lambda again: (again[0], again[1].forwards))(
        written(method(f"checked:route={route},cost=0.5,block=3,size=6"), 1)
    )
