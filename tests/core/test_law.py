"""Laws: their algebra against plain floats, and what they refuse."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from unspool.core.canvas import HOLE
from unspool.core.chance import At, Philox, Role
from unspool.core.claim import LAW
from unspool.core.errors import BadScores, EmptyLaw
from unspool.core.law import NEVER, Law, Point
from unspool.proof import prove
from unspool.rules.decode import Speculate
from unspool.rules.draft import Masks
from unspool.rules.verify import rejection

quick = settings(max_examples=80, deadline=None)
V = 6
weight = st.one_of(st.just(0.0), st.floats(1e-3, 10))
weights = st.lists(weight, min_size=V, max_size=V).filter(any)


def normal(values):
    total = math.fsum(values)
    return [v / total for v in values]


def assert_p(law, expected):
    assert law.p.tolist() == pytest.approx(expected, abs=1e-12)


@quick
@given(weights)
def test_a_law_is_its_weights_normalised(w):
    law, p = Law.of(w), normal(w)
    assert_p(law, p)
    assert [law[x] for x in range(V)] == pytest.approx(p, abs=1e-12)
    assert law.log_z == pytest.approx(math.log(math.fsum(w)), abs=1e-12)
    assert law.cdf.tolist() == pytest.approx([math.fsum(p[: i + 1]) for i in range(V)], abs=1e-12)
    assert w[law.best] == pytest.approx(max(w), rel=1e-12)  # of two that differ in the last bit logarithms may not
    assert law.best == w.index(w[law.best])
    assert law.size == V


@quick
@given(weights, st.floats(-50, 50))
def test_a_shift_of_all_scores_changes_nothing(w, shift):
    assert_p(Law(Law.of(w).scores + shift), normal(w))


@quick
@given(weights, weights, st.sampled_from([0.5, 1.0, 2.5]))
def test_minus_is_the_normalised_positive_part(p, q, scale):
    rest = [max(0.0, scale * a - b) for a, b in zip(normal(p), normal(q), strict=True)]
    assume(max(rest) > 1e-9)  # below that the rest is rounding
    assert_p(Law.of(p).minus(Law.of(q), scale), normal(rest))


def test_minus_leaves_p_where_nothing_is_left():
    p = Law.of([1, 3, 0, 4])
    assert p.minus(p) is p
    assert p.minus(Law.of([1, 3, 0, 4]), scale=0.5) is p


@quick
@given(weights, weights)
def test_what_is_accepted_and_the_residual_make_up_the_law(p, q):
    a, b = Law.of(p), Law.of(q)
    common = torch.minimum(a.p, b.p)
    made_up = common + (1 - common.sum()) * a.minus(b).p
    torch.testing.assert_close(made_up, a.p, atol=1e-12, rtol=0)


@quick
@given(weights, st.sets(st.integers(0, V - 1)))
def test_without_and_only_condition_the_law(w, gone):
    left = [0.0 if x in gone else v for x, v in enumerate(w)]
    mask = torch.tensor([x not in gone for x in range(V)])
    if any(left):
        assert_p(Law.of(w).without(*gone), normal(left))
        assert_p(Law.of(w).only(mask), normal(left))
    else:
        assert Law.of(w).without(*gone).is_empty()
        assert Law.of(w).only(mask).is_empty()


@quick
@given(weights, weights, st.floats(0, 1))
def test_mix_is_a_weighted_mean(p, q, share):
    mean = [(1 - share) * a + share * b for a, b in zip(normal(p), normal(q), strict=True)]
    assert_p(Law.of(p).mix(Law.of(q), share), mean)


@quick
@given(weights, st.floats(0.2, 5))
def test_temper_raises_to_a_power(w, t):
    assert_p(Law.of(w).temper(t), normal([v ** (1 / t) for v in w]))


@quick
@given(weights, st.floats(0, 1, exclude_max=True))
def test_invert_finds_the_interval(w, u):
    law = Law.of(w)
    ends = [end for _, end in law.steps]
    assume(min(abs(u - end) for end in ends) > 1e-12)
    token = law.invert(u)
    low = max((end for x, end in law.steps if x < token), default=0.0)
    assert w[token] > 0
    assert low <= u < dict(law.steps)[token]


@quick
@given(weights)
def test_invert_of_the_cdf_is_the_next_possible_token(w):
    law = Law.of(w)
    possible = [x for x in range(V) if w[x] > 0]
    for token, after in itertools.pairwise(possible):
        middle = float(law.cdf[token] + law.cdf[after]) / 2
        assert law.invert(middle) == after
    assert law.invert(0.0) == possible[0]
    assert law.invert(1 - 2**-53) == possible[-1]


def test_invert_never_gives_a_token_of_no_mass_at_either_end():
    law = Law(torch.tensor([NEVER, NEVER, 0.3, NEVER, 0.1, NEVER], dtype=torch.float32))
    assert {law.invert(u) for u in (0.0, 1e-300, 0.3, 0.9999999, 1 - 2**-53)} == {2, 4}


@quick
@given(st.integers(0, 2**32), st.integers(2, 3000))
def test_steps_end_at_one_even_in_single_precision(seed, size):
    scores = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    scores[0] = NEVER
    steps = Law(scores).steps
    assert steps[-1] == (size - 1, 1.0)
    assert steps[0][0] == 1
    assert [end for _, end in steps] == sorted(end for _, end in steps)


def test_a_draw_brings_its_law_along():
    law = Law.of([0, 1, 0])
    drawn = law.draw(Philox(3), At(0, Role.PICK))
    assert drawn.token == 1
    assert drawn.law is law


def test_of_equals_the_best_is_the_first():
    assert Law(torch.zeros(100_000)).best == 0
    assert Law(torch.tensor([1.0, 2.0, 2.0])).temper(0).best == 1


@pytest.mark.parametrize("size", [17024, 17000, 49152])
def test_the_best_of_a_large_vocabulary_is_the_first_of_the_largest(size):
    for first, second in ((0, 1), (127, 128), (5000, 5001), (4095, 8000), (128, size - 1), (size - 2, size - 1)):
        scores = torch.full((size,), -1.0)
        scores[[first, second]] = 3.0
        assert Law(scores).best == first
        assert Law(scores.repeat(2).view(2, size).T.contiguous().T[1]).best == first  # which is no row in memory
        for bad in (math.nan, math.inf):
            scores[second] = bad
            with pytest.raises(BadScores):
                Law(scores).best  # noqa: B018
    with pytest.raises(EmptyLaw):
        Law(torch.full((size,), NEVER)).best  # noqa: B018


def test_top_lists_the_most_probable_first():
    law = Law.of([1, 4, 2, 3])
    assert law.top(3) == [1, 3, 2]
    assert sorted(law.top(99)) == [0, 1, 2, 3]


# ---- point laws


@quick
@given(weights, st.integers(0, V - 1))
def test_a_point_law_is_one_among_zeros(w, token):
    like = Law.of(w)
    point = Law.point(token, like)
    one = [float(x == token) for x in range(V)]
    assert_p(point, one)
    assert point.spread(like).tolist() == one
    assert [point[x] for x in range(V)] == one
    assert point.steps == [(token, 1.0)]
    assert {point.invert(u) for u in (0.0, 0.5, 1 - 2**-53)} == {token}
    assert point.temper(0) is point
    assert point.temper(2.0) is point
    assert not point.is_empty()
    assert point.without(token).is_empty()


@quick
@given(weights, st.integers(0, V - 1))
def test_a_point_law_takes_part_in_the_algebra_without_a_vocabulary(w, token):
    p, point = Law.of(w), Law.point(token)
    rest = [v if x != token else 0.0 for x, v in enumerate(normal(w))]
    assert_p(p.minus(point), normal(rest) if any(rest) else normal(w))
    assert_p(p.mix(point, 0.25), [0.75 * v + 0.25 * (x == token) for x, v in enumerate(normal(w))])
    assert point[token] == 1.0
    assert point.logprob(token + 1) == NEVER
    with pytest.raises(TypeError, match="spread"):
        _ = point.p


def test_the_residual_of_a_point_target_is_the_point():
    p = Law.of([1, 5, 2]).temper(0)
    assert isinstance(p, Point)
    assert_p(p.minus(Law.of([1, 1, 1])), [0, 1, 0])


# ---- what a law refuses

ASKED = {
    "best": lambda law: law.best,
    "log_z": lambda law: law.log_z,
    "p": lambda law: law.p,
    "one": lambda law: law[0],
    "cdf": lambda law: law.cdf,
    "draw": lambda law: law.invert(0.5),
    "minus": lambda law: law.minus(Law.of([1, 2])),
    "temper": lambda law: law.temper(0),
}


@pytest.mark.parametrize("ask", ASKED)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_broken_scores_are_refused_as_broken(ask, bad):
    with pytest.raises(BadScores, match="dtype"):
        ASKED[ask](Law(torch.tensor([0.0, bad])))


@pytest.mark.parametrize("ask", ASKED)
def test_an_empty_law_is_refused_as_empty(ask):
    law = Law(torch.tensor([NEVER, NEVER]))
    assert law.is_empty()
    with pytest.raises(EmptyLaw, match="Loosen"):
        ASKED[ask](law)


def test_every_law_can_be_shown():
    assert repr(Law.of([1, 3])) == "Law({1: 0.75, 0: 0.25})"
    assert repr(Law.of([6, 5, 4, 3, 2, 1])).endswith("4: 0.0952, …})")
    assert repr(Law.point(4)) == "Point(4)"
    assert "nan" in repr(Law(torch.tensor([0.0, math.nan])))
    assert "nan" in repr(Law(torch.tensor([NEVER, NEVER])))


@quick
@given(st.floats(-400, 400), st.lists(st.floats(-12, 0), min_size=V, max_size=V))
def test_large_logits_in_single_precision_do_not_cost_precision(shift, levels):
    scores = torch.tensor(levels, dtype=torch.float32) + shift
    exact = Law(scores.double())
    law = Law(scores)
    assert law.p.tolist() == pytest.approx(exact.p.tolist(), abs=3e-7)
    assert [law[x] for x in range(V)] == pytest.approx(exact.p.tolist(), abs=3e-7)


def test_a_hole_is_no_token_of_any_law():
    """Its number is −1, which must not be taken for the last token of the vocabulary."""
    law = Law.of([1.0, 2.0, 3.0])
    assert law[HOLE] == 0
    for other in (law.without(HOLE), law.without(HOLE, HOLE), law.minus(Law.point(HOLE))):
        assert other.p.tolist() == pytest.approx(law.p.tolist())
    assert law.without(HOLE, 0).p.tolist() == pytest.approx([0, 0.4, 0.6])
    assert prove(Speculate(Masks(1), rejection, budget=3), LAW, quick=True).ok  # the text had masks in it
