"""Tree builders against brute force, length rules by their sequences, joined drafters by their texts."""

import math
from fractions import Fraction
from itertools import combinations, count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proposing import answered

from unspool.api.lm import Settings
from unspool.api.origin import Watched
from unspool.core.asks import Scores
from unspool.core.chance import Every, Philox
from unspool.core.claim import LAW
from unspool.core.errors import BadRequest
from unspool.core.law import Drawn, Law, Point
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Prefix, Same
from unspool.proof import prove
from unspool.rules.decode import Speculate
from unspool.rules.draft import (
    RSDS,
    BigramRecycling,
    Chain,
    Draft,
    DySpec,
    Either,
    Likeliest,
    Lookup,
    Memoryless,
    Merge,
    Nothing,
    Paced,
    Sequoia,
    Source,
    Suffix,
)
from unspool.rules.grow import (
    FREE,
    Best,
    ConfidentLength,
    Cost,
    Ema,
    FixedLength,
    Heuristic,
    Threshold,
    TreeShape,
    best_first,
    best_length,
    planted,
    sequoia,
    speed_up,
    worth,
)
from unspool.rules.grow.draft_length import best_threshold
from unspool.rules.verify import rejection
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.price import measure

# ---- cost


def test_cost_goes_in_straight_lines_through_its_points():
    cost = Cost((1, 4, 8), (10.0, 10.0, 18.0))
    assert [cost(n) for n in (0, 1, 2, 4, 6, 8, 10)] == [10, 10, 10, 10, 14, 18, 22]
    assert FREE(1) == FREE(1000)


def test_a_full_batch_switches_speculation_off():
    cost = Cost((1, 16, 64), (1.0, 1.2, 4.8))  # nearly free at first, then in proportion
    alone = worth([0.6, 0.5, 0.3], cost)
    assert alone == 3
    assert cost.among(1) == cost
    assert cost.among(4)(16) == cost(64)
    assert worth([0.6, 0.5, 0.3], cost.among(64)) == 0


@pytest.mark.parametrize(("rows", "times"), [((), ()), ((1, 1), (1.0, 2.0)), ((1, 2), (1.0,)), ((1,), (0.0,))])
def test_a_cost_that_makes_no_sense_is_refused(rows, times):
    with pytest.raises(BadRequest, match="rising numbers of rows"):
        Cost(rows, times)


def test_measured_cost_has_a_time_for_every_size_and_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr("unspool.runtime.engine.price.WIDE", math.inf)  # no size is hopeless, however busy the machine
    table = Table(3, lambda text: (1, 2, 3))
    cost = measure(table, rows=(4, 1, 2), repeats=1, behind=3)
    assert cost.rows == (1, 2, 4)
    assert list(cost.times) == sorted(cost.times)
    assert table.forwards == 1 + 2 * 3
    with pytest.raises(BadRequest, match="cannot measure"):
        measure(table, rows=(0,))


def test_a_slow_model_is_measured_at_a_few_sizes_far_apart(monkeypatch):
    """With no time at all: of a draft model in another precision seventeen sizes would take minutes."""
    monkeypatch.setattr("unspool.runtime.engine.price.WIDE", math.inf)
    table = Table(3, lambda text: (1, 2, 3))
    cost = measure(table, rows=(1, 2, 3, 4, 5, 6, 7), repeats=5, behind=3, seconds=0.0)
    assert cost.rows == (1, 4)
    assert table.forwards == 1 + 2 * 2


# ---- best first

LAWS = st.lists(st.lists(st.floats(0.01, 1), min_size=2, max_size=2), min_size=3, max_size=3)


def below_of(rows):
    """A small estimator: the row is picked by the path's length and last token; two levels."""

    def below(path):
        if len(path) == 2:
            return []
        weights = rows[0] if not path else rows[1 + path[-1]]
        kids = [(x, 0.9 * w / sum(weights)) for x, w in enumerate(weights)]
        return sorted(kids, key=lambda kid: -kid[1])

    return below


def all_nodes(below):
    nodes, paths = {(): 1.0}, [()]
    for path in paths:
        for token, p in below(path):
            nodes[(*path, token)] = nodes[path] * p
            paths.append((*path, token))
    del nodes[()]
    return nodes


def closed_sets(nodes, size):
    for chosen in combinations(nodes, size):
        if all(len(path) == 1 or path[:-1] in chosen for path in chosen):
            yield chosen


@given(LAWS, st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_the_heap_finds_the_best_tree_of_every_size(rows, size):
    below = below_of(rows)
    nodes = all_nodes(below)
    best = max(sum(nodes[path] for path in chosen) for chosen in closed_sets(nodes, size))
    twigs = best_first(below, size)
    assert len(twigs) == size
    assert sum(twig.p for twig in twigs) == pytest.approx(best)
    assert all(a.p >= b.p for a, b in pairwise(twigs))
    assert all(twig.parent < i for i, twig in enumerate(twigs))


@given(LAWS, st.lists(st.floats(0.0, 1.0), min_size=7, max_size=7))
@settings(max_examples=40, deadline=None)
def test_under_a_cost_the_heap_finds_the_most_tokens_per_time(rows, steps):
    below = below_of(rows)
    nodes = all_nodes(below)
    times = [1.0]
    for step in steps:
        times.append(times[-1] + step)
    cost = Cost(tuple(range(1, 9)), tuple(times))
    rates = [
        (1 + sum(nodes[path] for path in chosen)) / cost(1 + size)
        for size in range(7)
        for chosen in closed_sets(nodes, size)
    ]
    twigs = best_first(below, 6, cost)
    assert (1 + sum(twig.p for twig in twigs)) / cost(1 + len(twigs)) == pytest.approx(max(rates))


def test_no_budget_no_tree_and_no_pay_no_tree():
    below = below_of([[1, 1]] * 3)
    assert best_first(below, 0) == []
    assert best_first(below, 6, Cost((1, 2), (1.0, 2.0))) == []
    assert worth([0.9, 0.5], FREE) == 2


def test_no_sibling_is_worked_out_before_its_elder_is_taken():
    asked = []

    def endless(depth):
        for rank in count():
            asked.append((depth, rank))
            yield rank, 0.6 * 0.4**rank

    twigs = best_first(endless, 5, start=0, then=lambda depth, token: depth + 1)
    assert [(twig.token, twig.parent) for twig in twigs] == [(0, -1), (0, 0), (1, -1), (0, 1), (1, 0)]
    assert sorted(asked) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]


@pytest.mark.parametrize("ahead", [0.0, 0.4])
def test_nobody_is_asked_for_nodes_that_cannot_pay(ahead):
    asked = []

    def endless(depth):
        for rank in count():
            asked.append((depth, rank))
            yield rank, 0.6 * 0.4**rank

    def on(depth, token):
        return depth + 1

    steep = Cost((1, 2, 4, 32), (1.0, 1.1, 1.5, 12.0))
    every = best_first(endless, 31, start=0, then=on)
    all_asked, asked[:] = len(asked), []
    twigs = best_first(endless, 31, steep, 0, on, ahead)
    assert twigs == every[: worth([twig.p for twig in every], steep, ahead)]
    assert 0 < len(twigs) < 6
    assert len(asked) < all_asked / 3


def test_drafting_time_is_sunk_when_the_size_is_chosen():
    steep = Cost((1, 2), (1.0, 1.95))
    assert worth([0.9], steep) == 0
    assert worth([0.9], steep, ahead=5.0) == 1


def test_a_planted_tree_has_point_laws():
    tree = planted(best_first(below_of([[3, 1]] * 3), 4))
    assert len(tree) == 4
    assert all(isinstance(drawn.law, Point) and drawn.law.best == drawn.token for drawn in tree.drawn)


# ---- static shapes


def test_a_shape_wants_parents_and_elder_siblings():
    shape = TreeShape.of([(0,), (1,), (0, 0)])
    assert (len(shape), shape.depth, shape.width(()), shape.width((0,)), shape.width((1,))) == (3, 2, 2, 1, 0)
    assert shape.expected((0.5, 0.25)) == 0.5 + 0.25 + 0.25
    with pytest.raises(BadRequest, match=r"\(0, 0\) but not \(0,\)"):
        TreeShape.of([(0, 0)])
    with pytest.raises(BadRequest, match=r"\(1,\) but not \(0,\)"):
        TreeShape.of([(1,)])


def all_shapes(size, deepest, widest):
    found, fresh = {frozenset()}, {frozenset()}
    for _ in range(size):
        fresh = {
            frozenset({*shape, node})
            for shape in fresh
            for above in [(), *shape]
            if len(above) < deepest
            for node in [(*above, sum(path[:-1] == above and len(path) == len(above) + 1 for path in shape))]
            if node[-1] < widest
        }
        found |= fresh
    return found


@given(st.lists(st.floats(0.0, 0.33), min_size=1, max_size=3).map(tuple), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_sequoia_is_the_best_of_all_shapes(rates, size, deepest):
    best = max(TreeShape(shape).expected(rates) for shape in all_shapes(size, deepest, len(rates)))
    shape = sequoia(rates, size, deepest)
    assert len(shape) <= size
    assert shape.depth <= deepest
    assert shape.expected(rates) == pytest.approx(best)


def test_sequoia_is_best_first_where_rates_fall():
    rates = (0.6, 0.2, 0.1)
    twigs = best_first(lambda path: enumerate(rates), 12)
    assert sequoia(rates, 12, 12).expected(rates) == pytest.approx(sum(twig.p for twig in twigs))


def test_sequoia_with_only_first_children_is_a_chain_and_cost_cuts_it():
    assert sequoia((1.0, 0.0), 4, 9) == TreeShape.of([(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)])
    cut = sequoia((0.5,), 8, 8, Cost((1, 2, 9), (1.0, 1.0, 8.0)))
    assert cut == TreeShape.of([(0,)])
    assert sequoia((0.8,), 8, 8, FREE, draft=0.1).depth < 8
    with pytest.raises(BadRequest, match="add up to at most 1"):
        sequoia((0.7, 0.7), 4, 4)


# ---- lengths


def lengths(rule, rounds):
    """The lengths a rule gives when so many tokens would stand in each round."""
    state, given = rule.start(), []
    for standing in rounds:
        given.append(rule.most(state))
        state = rule.step(state, [0.5] * given[-1], min(standing, given[-1]))
    return given


def test_length_rules_by_their_sequences():
    assert lengths(FixedLength(3), [0, 9, 0]) == [3, 3, 3]
    assert lengths(Heuristic(2, 5), [9, 9, 9, 0, 0, 0, 0, 0]) == [2, 4, 5, 5, 4, 3, 2, 1]
    assert lengths(Ema(longest=8, weight=1.0, probe=5), [0, 1, 1, 1, 1, 9, 9]) == [5, 1, 3, 2, 8, 2, 4]


def test_the_best_length_maximises_the_formula():
    assert speed_up(0.8, 0.0, 3) == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert speed_up(1.0, 0.5, 2) == pytest.approx(3 / 2)
    assert best_length(0.3, 0.3, 9) == 0
    assert best_length(0.3, 0.29, 9) >= 1
    assert best_length(0.9, 0.1, 20) == max(range(21), key=lambda g: (1 - 0.9 ** (g + 1)) / (0.1 * (g * 0.1 + 1)))
    rule = Best(ratio=0.6, longest=4, probe=4)
    assert lengths(rule, [0] * 8)[1:] == [0, 0, 1, 0, 0, 0, 1]  # off, but for a look every fourth round
    assert lengths(Best(ratio=0.1, longest=4), [9] * 8)[-1] == 4


def test_confidence_stops_after_the_doubtful_token():
    rule = ConfidentLength(doubt=0.3, least=1, longest=4)
    assert not rule.enough(None, [])
    assert not rule.enough(None, [0.9])
    assert rule.enough(None, [0.9, 0.7])
    assert not ConfidentLength(doubt=1.0).enough(None, [0.01] * 5)
    assert ConfidentLength(doubt=0.0, least=2).enough(None, [0.9, 0.9])


fates = st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.8, 0.9]), st.booleans()), min_size=2, max_size=30)


@given(fates.filter(lambda fates: len({stood for _, stood in fates}) == 2))
def test_the_best_threshold_costs_least_of_all(fates):
    def cost(threshold):
        fell = [p >= threshold for p, stood in fates if not stood]
        missed = [p < threshold for p, stood in fates if stood]
        return Fraction(sum(fell), len(fell)) + 3 * Fraction(sum(missed), len(missed))

    costs = {p: cost(p) for p, _ in fates}
    assert best_threshold(fates) == max(p for p, c in costs.items() if c == min(costs.values()))


def test_of_equally_good_thresholds_the_largest_is_taken_whatever_rounding_says():
    """It costs 1 at 0.3 (3·2/6), at 0.2 (1/2 + 3·1/6) and at 0.1 (2/2); as floats the second is less than the first."""
    fates = [*[(0.3, True)] * 4, (0.2, True), (0.2, False), (0.1, True), (0.1, False)]
    assert 1 / 2 + 3 * (1 - 5 / 6) < 3 * (1 - 4 / 6)
    assert best_threshold(fates) == 0.3


def test_a_threshold_is_learned_once_enough_fates_of_both_kinds_are_known():
    rule = Threshold(first=0.4, least=4, memory=5)
    state = rule.start()
    assert rule.enough(state, [0.9, 0.3])
    assert not rule.enough(state, [0.3, 0.9])  # only the last token counts; the doubtful one would have been the last
    state = rule.step(state, [0.9, 0.8, 0.7], 3)
    assert state[0] == 0.4
    state = rule.step(state, [0.6, 0.5, 0.9], 0)  # what follows a rejected token has no fate
    assert state == (0.7, ((0.9, True), (0.8, True), (0.7, True), (0.6, False)))
    assert rule.enough(state, [0.65])
    state = rule.step(rule.step(state, [0.2], 1), [0.2], 1)
    assert len(state[1]) == 5
    assert state[0] == 0.2  # to stop too soon costs thrice as much
    assert rule.step(state, [], 0) == state


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedLength(-1),
        lambda: Heuristic(0),
        lambda: Ema(weight=0),
        lambda: Best(-1),
        lambda: Threshold(least=1),
    ],
)
def test_lengths_that_make_no_sense_are_refused(make):
    with pytest.raises(BadRequest, match="cannot be used; expected"):
        make()


# ---- drafters


def proposed(draft, table, prefix, budget=8, chance=None):
    """The tree that a drafter proposes when a table answers for the draft model, and how often it asked."""

    def score(ask):
        texts = [prefix.text + ask.tree.tokens(ask.tree.path(node)) for node in range(len(ask.tree))]
        return Scores([table.law(text) for text in texts], [table.law(prefix.text)])

    source = draft.begin(prefix) if hasattr(draft, "begin") else draft
    return answered(source.propose(prefix, budget, chance or Philox(0)), score)


def text_of(weights):
    return Table(3, lambda text: weights[sum(text) % len(weights)])


DRAFT = text_of([(6, 3, 1), (1, 2, 7), (4, 4, 2)])
PREFIX = Prefix.of((0, 1), Same())


def test_likeliest_is_the_best_tree_of_the_model():
    tree, asked = proposed(Likeliest(width=9, depth=2), DRAFT, PREFIX, budget=5)

    def below(path):
        kids = enumerate(DRAFT.law(PREFIX.text + path).p.tolist())
        return [] if len(path) == 2 else sorted(kids, key=lambda kid: -kid[1])

    best = best_first(below, 5)
    assert {tree.tokens(tree.path(n)) for n in range(5)} == {
        planted(best).tokens(planted(best).path(n)) for n in range(5)
    }
    assert asked == 2
    chain, asked = proposed(Likeliest(width=1, depth=3), DRAFT, PREFIX)
    assert chain.parent == (-1, 0, 1)
    assert asked == 3
    assert proposed(Likeliest(width=3, depth=4, gain=9.0), DRAFT, PREFIX)[1] == 1


def test_likeliest_branches_under_greedy_decoding_too():
    from unspool.core.warp import Temperature

    tree, _ = proposed(Likeliest(width=2, depth=2), DRAFT, Prefix.of((0, 1), Temperature(0.0)))
    assert len(tree.kids(ROOT)) == 2
    assert tree.drawn[tree.kids(ROOT)[0]].token == DRAFT.law((0, 1)).best


@pytest.mark.parametrize(
    "draft",
    [
        DySpec(0.0),
        RSDS(2, 4),
        Likeliest(3, 3),
        Paced(FixedLength(9)),
        Sequoia(TreeShape.of([(0,), (1,), (0, 0), (1, 0)])),
    ],
)
def test_no_drafter_exceeds_its_budget_or_repeats_a_sibling(draft):
    for budget in range(6):
        tree, _ = proposed(draft, DRAFT, PREFIX, budget)
        assert len(tree) <= budget
        for node in [ROOT, *range(len(tree))]:
            tokens = tree.tokens(tree.kids(node))
            assert len(set(tokens)) == len(tokens)


def test_sprout_opens_slots_in_falling_order_and_a_sure_draft_gives_a_chain():
    sure = Table(3, lambda text: (0, 1, 0))
    assert proposed(DySpec(0.0), sure, PREFIX, 4)[0].parent == (-1, 0, 1, 2)
    assert len(proposed(DySpec(0.99), DRAFT, PREFIX, 8)[0]) == 1


def test_a_thicket_of_width_one_is_a_chain():
    thicket, _ = proposed(RSDS(1, 3), DRAFT, PREFIX)
    chain, _ = proposed(Chain(3), DRAFT, PREFIX)
    assert thicket.parent == chain.parent == (-1, 0, 1)


def test_a_thicket_draws_sequences_without_replacement():
    """Its last level is an ordered sample without replacement: q(s) · q(t) / (1 − q(s))."""

    def last_level(chance):
        tree, _ = proposed(RSDS(2, 2), DRAFT, PREFIX, chance=chance)
        return tuple(tree.tokens(tree.path(n)) for n in range(len(tree)) if tree.depth(n) == 2)

    law = Every().law(last_level)
    q = {(a, b): DRAFT.law((0, 1))[a] * DRAFT.law((0, 1, a))[b] for a in range(3) for b in range(3)}
    assert len(law) == 9 * 8
    for (s, t), mass in law.items():
        assert mass == pytest.approx(q[s] * q[t] / (1 - q[s]))


def test_a_full_thicket_is_exact():
    from truth import law_of_text

    from unspool.proof.case import _BASE

    tables, stop = _BASE.tables(), Stop(most=2)

    def decoded(chance):
        engine = Engine(tables)
        job = engine.submit(Speculate(RSDS(2, 2), rejection, budget=4), (0,), chance, Same(), stop)
        engine.run()
        return job.result()

    law, truth = Every().law(decoded), law_of_text(tables["target"], (0,), Same(), stop)
    assert set(law) == set(truth)
    assert all(law[text] == pytest.approx(truth[text], abs=1e-12) for text in truth)


def test_a_length_rule_that_drops_the_doubtful_token_is_caught():
    class Dropping(Memoryless):
        def propose(self, prefix, budget, chance):
            tree = (
                yield from Paced(ConfidentLength(doubt=0.4, least=1, longest=1))
                .begin(prefix)
                .propose(prefix, 1, chance)
            )
            (x, law), *_ = tree.drawn
            return NOTHING if law[x] < 0.4 else tree

    assert not prove(Speculate(Dropping(), rejection), LAW, quick=True).ok


def test_confidence_counts_under_greedy_decoding_too():
    from unspool.core.warp import Temperature

    greedy = Prefix.of((0, 1), Temperature(0.0))
    assert len(proposed(Paced(ConfidentLength(doubt=0.2, least=1, longest=5)), DRAFT, greedy)[0]) == 1
    assert len(proposed(Paced(ConfidentLength(doubt=1.0, least=1, longest=5)), DRAFT, greedy)[0]) == 5


def test_switching_drafting_off_and_on_is_exact():
    assert prove(Speculate(Paced(Best(ratio=0.4, longest=2, probe=2)), rejection), LAW, quick=True).ok


def test_options_of_the_new_drafters_are_checked_by_name():
    from unspool.recipes.methods import method

    for spec in ("rsd_s:width=0", "dyspec:least=1", "likeliest:depth=0", "sequoia:rate=1", "paced:length=longish"):
        with pytest.raises(BadRequest, match=r"expected|there are: heuristic"):
            method(spec)
    assert method("paced:length=confident").draft == Paced(ConfidentLength())


def test_a_pace_is_kept_per_request_and_read_off_the_text():
    draft = Paced(Heuristic(first=1, longest=3))
    source = draft.begin(PREFIX)
    (tree, _), prefix = proposed(source, DRAFT, PREFIX), PREFIX
    assert len(tree) == 1
    prefix = prefix.then((tree.drawn[0].token, 0))
    source.learn(prefix, NOTHING, Scores([], []))
    assert len(proposed(source, DRAFT, prefix)[0]) == 3
    assert len(proposed(draft.begin(prefix), DRAFT, prefix)[0]) == 1


# ---- joined drafters


class Says(Draft, Source):
    """A drafter that always says the same chain."""

    def __init__(self, *tokens):
        self.tokens, self.begun = tokens, 0

    def begin(self, prefix):
        self.begun += 1
        return self

    def propose(self, prefix, budget, chance):
        yield from ()
        return Tree.chain([Drawn(x, Law.point(x)) for x in self.tokens[:budget]])


def paths(tree):
    return {tree.tokens(tree.path(n)) for n in range(len(tree))}


def test_either_takes_the_first_that_speaks():
    assert paths(proposed(Either(Nothing(), Says(1, 2), Says(0)), DRAFT, PREFIX)[0]) == {(1,), (1, 2)}
    assert len(proposed(Either(Nothing()), DRAFT, PREFIX)[0]) == 0
    drawn, _ = proposed(Either(Nothing(), Chain(2)), DRAFT, PREFIX)
    assert drawn == proposed(Chain(2), DRAFT, PREFIX)[0]


def test_merge_holds_equal_paths_once_and_keeps_to_the_budget():
    tree, _ = proposed(Merge(Says(1, 2), Says(1, 0), Says(1, 2, 2)), DRAFT, PREFIX)
    assert paths(tree) == {(1,), (1, 2), (1, 0), (1, 2, 2)}
    assert len(tree) == 4
    assert len(proposed(Merge(Says(1, 2), Says(0, 2)), DRAFT, PREFIX, budget=3)[0]) == 3


def test_merge_makes_chosen_tokens_of_drawn_ones():
    tree, _ = proposed(Merge(Chain(2), Lookup(1, 1, 2)), DRAFT, PREFIX)
    assert len(tree) >= 2
    assert all(isinstance(drawn.law, Point) for drawn in tree.drawn)


def test_merge_learns_which_source_to_believe_and_forgets_it_with_the_request():
    draft = Merge(Says(1, 1), Says(2, 2))
    source, prefix = draft.begin(PREFIX), PREFIX
    assert paths(proposed(source, DRAFT, prefix, budget=2)[0]) == {(1,), (2,)}
    for _ in range(4):
        proposed(source, DRAFT, prefix, budget=2)
        prefix = prefix.then((2, 2))
        source.learn(prefix, NOTHING, Scores([], []))
    assert paths(proposed(source, DRAFT, prefix, budget=2)[0]) == {(2,), (2, 2)}
    assert paths(proposed(draft.begin(prefix), DRAFT, prefix, budget=2)[0]) == {(1,), (2,)}


def test_a_merge_of_guides_is_the_merge_of_their_trees():
    """`Suffix` and `BigramRecycling` tell `Merge` what follows a path; behind a plain source they propose a tree."""
    text = (0, 1, 2, 0, 1, 2, 2, 0, 1)
    tops = {i: [(text[i], 0.6), ((text[i] + 1) % 3, 0.4)] for i in range(1, len(text))}

    class Knowing(Draft):
        def begin(self, prefix):
            source = BigramRecycling().begin(prefix)
            source.told(text, tops)
            return source

    def plain(draft):
        return Watched(draft, lambda prefix, tree: None)  # which is no guide

    for budget in (1, 2, 3, 5):
        guided, grown = (
            proposed(Merge(*drafts), DRAFT, Prefix.of(text, Same()), budget)[0]
            for drafts in ((Suffix(4), Knowing()), (plain(Suffix(4)), plain(Knowing())))
        )
        assert len(guided) == budget
        assert paths(guided) == paths(grown)


def test_merge_drafts_nothing_where_nothing_pays():
    linear = Cost((1, 2), (1.0, 2.0))
    assert len(proposed(Merge(Says(1, 2), cost=linear), DRAFT, PREFIX)[0]) == 0


def test_joins_of_nothing_are_refused():
    for join in (Either, Merge):
        with pytest.raises(BadRequest, match="needs at least one drafter"):
            join()


def test_a_merge_under_rejection_is_exact_in_law():
    assert prove(Speculate(Merge(Chain(1), Lookup(1, 1, 1)), rejection, budget=1), LAW, quick=True).ok


def test_merge_and_either_write_what_plain_decoding_writes(smollm2):
    prompt = [{"role": "user", "content": "Repeat this sentence three times: The quick brown fox jumps."}]
    brief = Settings(max_tokens=24, temperature=0.7, seed=3)
    plain = smollm2.generate(prompt, brief)
    for method in ("merge", "either"):
        output = smollm2.generate(prompt, brief, method=method)
        assert output.tokens == plain.tokens
        assert output.trace.forwards["target"] < plain.trace.forwards["target"]
