"""Drafts that end by what the draft model knows of itself, and by what a step costs."""

from __future__ import annotations

import math

import pytest
from proposing import answered

from unspool.core.asks import Price, Scores
from unspool.core.chance import Philox
from unspool.core.cost import Cost
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.tree import ROOT
from unspool.core.warp import Prefix, Same, Temperature
from unspool.recipes.methods import method
from unspool.rules.draft import SVIP, AdaEDL, DySpecThreshold, Paced
from unspool.rules.draft.svip import refusal_bound
from unspool.rules.grow import Best, best_length
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

EVEN = Law.of((1, 1, 1, 1))
SURE = Table(4, lambda text: (97, 1, 1, 1))
UNSURE = Table(4, lambda text: (1, 1, 1, 1))


def proposed(draft, table, warp=None, budget=32):
    prefix = Prefix.of((0, 1), warp or Same())

    def score(ask):
        texts = [prefix.text + ask.tree.tokens(ask.tree.path(node)) for node in range(len(ask.tree))]
        return Scores([table.law(text) for text in texts], [table.law(prefix.text)])

    return answered(draft.begin(prefix).propose(prefix, budget, Philox(0)), score)


# ---- entropy


def test_the_bound_is_the_root_of_the_scaled_entropy():
    assert refusal_bound(EVEN, 0.2) == pytest.approx(math.sqrt(0.2 * math.log(4)))
    assert refusal_bound(Law.of((1, 0, 0)), 0.2) == pytest.approx(0)


@pytest.mark.parametrize("length", [SVIP(0.4, longest=7), AdaEDL(0.6, longest=7)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_sure_draft_goes_to_the_end_and_an_unsure_one_stops_after_its_first_token(length, temperature):
    """At temperature 0 every law is a point, which says nothing of how sure the draft is."""
    assert len(proposed(Paced(length), SURE, Temperature(temperature))[0]) == 7
    assert len(proposed(Paced(length), UNSURE, Temperature(temperature))[0]) == 1


def test_the_bar_rises_while_drafts_are_refused_and_falls_while_they_stand():
    rule = AdaEDL(first=0.5, aim=0.9, by=0.1)
    begun = rule.start()
    refused, stood = rule.step(begun, (0.5, 0.5), 0), rule.step(begun, (0.5, 0.5), 2)
    assert begun[0] == 0.5
    assert refused[0] == pytest.approx(0.51)
    assert stood[0] == pytest.approx(0.49)
    assert rule.step(begun, (), 0) == begun


@pytest.mark.parametrize("spec", ["svip:scale=-1", "svip:longest=0", "adaedl:aim=2", "adaedl:by=nan"])
def test_numbers_that_make_no_sense_are_refused(spec):
    with pytest.raises(BadRequest, match="expected"):
        method(spec)


# ---- cost


def test_the_best_length_is_found_for_what_a_draft_step_costs_here():
    """Nobody types the ratio: it is the price of the draft's forward in forwards of the target."""
    prices = {"draft": Cost((1,), (0.2,)), "target": Cost((1,), (1.0,))}
    source = method("paced:length=best").draft.begin(Prefix.of((0, 1), Same()))
    proposing = source.propose(Prefix.of((0, 1), Same()), 16, Philox(0))
    ask, asked = next(proposing), []
    while isinstance(ask, Price):
        asked.append(ask.by)
        ask = proposing.send(prices[ask.by])
    assert asked == ["draft", "target"]
    assert source.length == Best(0.2)
    assert source.length.most(source.length.start()) == best_length(0.5, 0.2, 16) == 1


def test_a_ratio_that_is_given_is_not_measured():
    assert not Best(0.3).asks_price
    assert Best().asks_price


# ---- DySpec by a threshold

TREE = Table(3, lambda text: ((6, 3, 1), (1, 2, 7), (4, 4, 2))[sum(text) % 3])


def test_every_slot_above_the_threshold_is_opened_in_one_forward_a_level():
    tree, asked = proposed(DySpecThreshold(0.1, 6), TREE)
    depth = max(map(tree.depth, range(len(tree))))
    assert asked <= depth + 1
    values = {ROOT: 1.0}
    for node in range(len(tree)):  # the value of its slot, and of the one below it
        elder = [kid for kid in tree.kids(tree.parent[node]) if kid < node]
        here = values[tree.parent[node]]
        for kid in elder:
            here *= 1 - tree.drawn[kid].law[tree.drawn[kid].token]
        assert here > 0.1
        values[node] = here * tree.drawn[node].law[tree.drawn[node].token]
    assert any(len(tree.kids(node)) > 1 for node in (ROOT, *range(len(tree))))


def test_at_temperature_0_it_holds_the_likely_tokens_and_plain_decodings_text():
    tree, _ = proposed(DySpecThreshold(0.15, 3), TREE, Temperature(0.0))
    assert tree.tokens(tree.kids(ROOT)) == (2, 1)  # 0.7 and 0.2; the third has 0.1
    tables = {"target": TREE, "draft": TREE}
    texts = []
    for spec in ("plain", "dyspec_threshold:nodes=16"):
        engine = Engine(tables)
        job = engine.submit(method(spec), (0, 1), Philox(3), Temperature(0.0), Stop(most=20))
        engine.run()
        texts.append(job.result().tokens)
    assert texts[0] == texts[1]
    assert job.trace.tokens_per_forward > 2.5


def test_a_budget_cuts_the_tree():
    for budget in range(5):
        assert len(proposed(DySpecThreshold(0.01, 6), TREE, budget=budget)[0]) <= budget
