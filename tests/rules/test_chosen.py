"""Which of several siblings that all may stand is taken, where a rule's docstring says which."""

import pytest

from unspool.core.chance import Every, Philox
from unspool.core.law import Law, chosen
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree
from unspool.core.warp import Same
from unspool.core.warp.warp import Prefix, Scored
from unspool.rules.search import Beam
from unspool.rules.search.smc import multinomial, residual, stratified, systematic
from unspool.rules.verify import Conditional, TopBeta, TypicalAcceptance
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine


def scored(parents, tokens, laws):
    tree = Tree(tuple(chosen(x) for x in tokens), tuple(parents))
    root, *after = (Law.of(weights) for weights in laws)
    return Scored(tree, Prefix.of((0,), Same()), root, after)


ROOTLAW, END = (5, 4, 3, 1), (1, 1, 1, 97)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_top_beta_takes_the_best_of_good_siblings(order):
    """In whatever order they were drafted."""
    given = scored((ROOT,) * 3, order, (ROOTLAW, END, END, END))
    assert TopBeta(beta=3, tau=9.0)(given, Philox(0)) == (order.index(0), 3)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_typical_takes_the_likeliest_of_the_longest_paths(order):
    given = scored((ROOT,) * 3, order, (ROOTLAW, END, END, END))
    assert TypicalAcceptance(epsilon=0.09)(given, Philox(0)) == (order.index(0), 3)


def test_typical_takes_a_longer_path_before_a_likelier_one():
    given = scored((ROOT, ROOT, 1), (0, 2, 3), (ROOTLAW, END, END, END))
    assert TypicalAcceptance(epsilon=0.09)(given, Philox(0)) == (2, 3)


@pytest.mark.parametrize("rule", [stratified, systematic, residual], ids=lambda rule: rule.__name__)
def test_particles_of_equal_weight_all_stay(rule):
    """Only independent draws may lose one of them."""
    for seed in range(20):
        assert sorted(rule([0.3] * 5, Philox(seed), 7)) == [0, 1, 2, 3, 4]
    assert any(sorted(multinomial([0.3] * 5, Philox(seed), 7)) != [0, 1, 2, 3, 4] for seed in range(20))


@pytest.mark.parametrize("rule", [multinomial, stratified, systematic, residual], ids=lambda rule: rule.__name__)
def test_particles_stay_in_proportion_to_their_weights(rule):
    """E[how often i is picked] = n·wᵢ, over all branches."""
    weights = (0.55, 0.3, 0.15)
    law = Every().law(lambda chance: tuple(rule(weights, chance, 7)))
    for i, weight in enumerate(weights):
        assert sum(picks.count(i) * mass for picks, mass in law.items()) == pytest.approx(3 * weight)


def test_a_beam_that_ends_leaves_its_place_to_the_next():
    """Of three tokens the likeliest ends the text; the other two both go on, though only two beams are wanted."""
    after = {(0,): (5, 3, 2), (0, 1): (1, 4, 4), (0, 2): (97, 1, 1)}
    found = []
    engine = Engine({"target": Table(3, lambda text: after.get(text, (1, 1, 1)))})
    engine.submit(Beam(2, watch=found.extend), (0,), Philox(0), Same(), Stop(frozenset({0}), most=2))
    engine.run()
    assert [text.tokens for text in found] == [(0,), (2, 0)]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_conditional_takes_the_first_sibling_that_clears_the_bar(order):
    given = scored((ROOT,) * 3, order, (ROOTLAW, END, END, END))
    assert Conditional(base=0.1, slope=0.0)(given, Philox(0)).node == 0


@pytest.mark.parametrize(("slope", "node"), [(0.0, 2), (0.2, 0), (0.08, 1)])
def test_the_bar_of_conditional_falls_with_the_entropy(slope, node):
    """H is 1.25 nats: the bar is 0.4 (at most the best's 0.38), 0.15 and 0.3; the siblings have 0.23, 0.31 and 0.38."""
    given = scored((ROOT,) * 3, (2, 1, 0), (ROOTLAW, END, END, END))
    assert Conditional(base=0.4, slope=slope)(given, Philox(0)).node == node
