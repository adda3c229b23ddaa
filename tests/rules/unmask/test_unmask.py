"""Rules that choose holes: what each is in its degenerate cases, on laws made by hand and on whole texts."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import pytest
import torch
from hypothesis import given as given_all
from hypothesis import settings
from hypothesis import strategies as st

from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Canvas, Field, Status
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp import Same, Temperature
from unspool.loops.unmasker import begun, look
from unspool.proof import prove
from unspool.recipes.methods import method
from unspool.rules.decode import Denoise
from unspool.rules.unmask import (
    Ancestral,
    Annealed,
    Clocked,
    Confident,
    Credited,
    DenoiseState,
    Dynamic,
    EntropyBound,
    Explore,
    Factor,
    FixedBlocks,
    Guided,
    Hierarchy,
    Local,
    Peaked,
    Quota,
    Redundant,
    Stable,
    Timed,
    TriedCandidates,
)
from unspool.rules.unmask.annealed import SCHEDULES
from unspool.rules.unmask.certainty import (
    CERTAINTIES,
    confidence,
    drawn,
    entropy,
    foremost,
    leftmost,
    margin,
    random,
    ranked,
)
from unspool.rules.unmask.end_token import Endless, Late
from unspool.runtime.cache.table_model import Joint, Table
from unspool.runtime.engine.engine import Engine

pytestmark = pytest.mark.usefixtures("one_thread")

GREEDY = Temperature(0.0)


def given(*drawn):
    """A few examples: every one looks at laws several times."""
    return lambda test: settings(max_examples=25, deadline=None)(given_all(*drawn)(test))


def law(p: float, token: int = 0, vocab: int = 4) -> Law:
    """The law with this much on one token and the rest spread evenly."""
    return Law.of([p if x == token else (1 - p) / (vocab - 1) for x in range(vocab)])


def state(*laws: Law, canvas: Canvas | None = None, chance=None, warp=GREEDY) -> DenoiseState:
    """A look at a canvas whose holes have these laws, left to right."""
    canvas = canvas or Canvas.blank((), len(laws))
    return DenoiseState(canvas, Field(dict(zip(canvas.holes, laws, strict=True))), warp, chance or Philox(1))


def peaks(*sure: float) -> DenoiseState:
    return state(*map(law, sure))


def table(vocab: int = 3, seed: int = 3) -> Table:
    """A model whose laws differ after every text."""
    return Table(vocab, lambda text: [1 + (hash((seed, text, x)) % 97) ** 2 for x in range(vocab)])


def told(rule, model, prompt=(0,), warp=GREEDY, stop=None, seed=7):
    """What a method writes, how many looks it takes, and the canvases it shows."""
    engine = Engine({"target": model})
    job = engine.submit(rule, prompt, Philox(seed), warp, stop or Stop(most=64))
    engine.run()
    done = job.result()
    return done.tokens, job.trace.forwards["target"], [emit.canvas for emit in job.emitted if emit.canvas]


def law_of(rule, model, prompt=(0,)):
    """The exact law of what a method writes."""
    engine = Engine({"target": model})

    def text(chance):
        job = engine.submit(rule, prompt, chance, Same(), Stop())
        engine.run()
        return job.result().tokens

    return Every().law(text)


def truth(model, size, prompt=(0,)):
    """The law of what plain decoding writes."""
    return {text[len(prompt) :]: p for text, p in model._texts(prompt, 1.0, len(prompt) + size)}


class Recorded:
    """A table that writes down the canvases it is shown."""

    def __init__(self, model: Table) -> None:
        self.model, self.vocab, self.seen = model, model.vocab, []

    def look(self, asked):
        self.seen += [ask.look for ask in asked]
        return self.model.look(asked)


sures = st.lists(st.integers(300, 990).map(lambda n: n / 1000 + 1e-4), min_size=1, max_size=6)


# ---- how sure a hole is


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8))
def test_of_two_tokens_margin_confidence_and_entropy_agree_on_the_order(p):
    seen = state(*(Law.of([round(x, 3), 1 - round(x, 3)]) for x in p))
    assert ranked(seen, margin) == ranked(seen, confidence)
    mine, other = ranked(seen, entropy), ranked(seen, confidence)
    assert [seen.peak(i).p for i in mine] == pytest.approx([seen.peak(i).p for i in other], abs=1e-7)


def test_the_calmest_hole_comes_first_by_entropy():
    sharp, flat = Law.of([0.5, 0.5, 0, 0]), Law.of([0.52, 0.16, 0.16, 0.16])
    assert ranked(state(flat, sharp), entropy) == [1, 0]  # some code sorts by +H, which fills the flattest first
    assert ranked(state(flat, sharp), confidence) == [0, 1]
    assert ranked(state(flat, sharp), leftmost) == [0, 1]


def test_drawn_is_the_probability_of_the_token_that_will_be_written():
    seen = state(Law.of([0.7, 0.2, 0.1]), warp=Same())
    token = seen.preview(0).token
    assert drawn(seen, 0) == pytest.approx([0.7, 0.2, 0.1][token])
    assert seen.draw(0).token == token
    greedy = state(Law.of([0.7, 0.2, 0.1]))
    assert drawn(greedy, 0) == confidence(greedy, 0)


def test_what_is_drawn_to_choose_by_is_drawn_anew_at_every_look():
    """A hole that is left open for a token that did not please would else be shown that token for ever."""

    def twice(chance):
        canvas = Canvas.blank((), 1)
        looks = [state(Law.of([1, 1]), canvas=at, chance=chance, warp=Same()) for at in (canvas, canvas.fill({}))]
        return tuple(look.preview(0).token for look in looks)

    assert Every().law(twice) == {pair: pytest.approx(1 / 4) for pair in [(0, 0), (0, 1), (1, 0), (1, 1)]}


def test_a_random_order_is_any_order_equally_often():
    orders = Every().law(lambda chance: tuple(ranked(state(*[law(0.5)] * 3, chance=chance), random)))
    assert orders == {order: pytest.approx(1 / 6) for order in permutations(range(3))}


def test_heat_draws_without_replacement_by_weight():
    scores = {0: 1.0, 1: 2.0, 2: 0.5}

    def pair(chance):
        return tuple(foremost(state(*[law(0.5)] * 3, chance=chance), lambda _, i: scores[i], 2, heat=0.5))

    w = {i: math.exp(score / 0.5) for i, score in scores.items()}
    total = sum(w.values())
    expected = {(a, b): w[a] / total * w[b] / (total - w[a]) for a, b in permutations(w, 2)}
    assert total_variation(Every().law(pair), expected) < 1e-12


def test_a_count_beyond_the_holes_is_all_of_them():
    assert sorted(foremost(peaks(0.4, 0.5), confidence, 9, heat=1.0)) == [0, 1]


def test_an_unknown_certainty_is_answered_with_the_known_ones():
    with pytest.raises(BadRequest, match=r"'certain'.*confidence.*drawn.*margin.*entropy.*random"):
        method("quota:certainty=certain")
    for name, certainty in CERTAINTIES.items():
        assert method(f"quota:certainty={name}").unmask.certainty is certainty


# ---- whole texts by every rule

RULES = {
    "quota": Quota(3),
    "quota random": Quota(3, random),
    "quota drawn": Quota(3, drawn),
    "timed": Timed(3),
    "timed, heated": Timed(3, margin, 0.3),
    "ancestral": Ancestral(3),
    "annealed": Annealed(3),
    "factor": Factor(1.0),
    "clocked": Clocked(0.8, 4),
    "entropy bound": EntropyBound(0.5),
    "peaked": Peaked(0.6),
    "stable": Stable(0.5, 0.5, 1, 8),
    "local": Local(0.8, 0.5, 1),
    "hierarchy": Hierarchy(0.8, 0.4),
    "dynamic": Dynamic(0.8, 4),
    "redundant": Redundant(0.8, 0.6, 2, 1, 0.5, 2),
    "explore": Explore(0.8, 3),
    "confident, drawn": Confident(0.8, drawn),
}


@pytest.mark.parametrize("warp", [GREEDY, Same()], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", RULES)
def test_every_look_fills_something_that_stays(name, warp):
    blocks = {} if name in ("explore",) else {"blocks": FixedBlocks(4)}
    rule = Denoise(RULES[name], 7, **blocks)
    model = table(vocab=2)
    tokens, looks, canvases = told(rule, model, warp=warp)
    assert len(tokens) == 7
    assert looks == len(canvases) <= 7
    for before, after in zip([Canvas.blank((0,), 7), *canvases], canvases, strict=False):
        assert len(after.holes) < len(before.holes) or before.window != after.window
        for i, x in enumerate(before.tokens):
            assert x in (HOLE, after.tokens[i])
    assert told(rule, model, warp=warp) == (tokens, looks, canvases)  # no memory from one request to the next


@pytest.mark.parametrize("name", RULES)
def test_an_early_end_of_text_leaves_enough_to_choose_from(name):
    tokens, _, canvases = told(Denoise(RULES[name], 6), table(), stop=Stop(frozenset({1}), most=6), warp=Same())
    assert 1 not in tokens[:-1]
    assert HOLE not in canvases[-1].tokens[1 : 1 + len(tokens)]


@pytest.mark.parametrize(
    "rule",
    [
        Quota(3),
        Quota(3, random),
        Quota(3, margin),
        Dynamic(2.0, 3),
        Factor(0.0),
        EntropyBound(0.0),
        Peaked(0.0),
        Local(2.0, 2.0, 1),
        Hierarchy(2.0, 2.0),
        Stable(2.0, 1.0, 1, 3),
        Redundant(2.0, 2.0, 2, 1, 2.0, 1),
        Explore(2.0, 3),
        Timed(3, last=0.0),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_one_hole_per_look_by_laws_alone_is_exact(rule):
    model = table()
    assert total_variation(law_of(Denoise(rule, 3), model), truth(model, 3)) < 1e-12


@pytest.mark.parametrize(
    "rule", [Quota(2, drawn), Annealed(9, heat=0), Timed(2, drawn, last=0.0)], ids=lambda rule: type(rule).__name__
)
def test_to_keep_the_surest_draw_is_not_exact_even_one_by_one(rule):
    model = table(vocab=2)
    _, looks, _ = told(Denoise(rule, 2), model, warp=Same())
    assert looks == 2
    assert total_variation(law_of(Denoise(rule, 2), model), truth(model, 2)) > 0.01


def test_one_place_per_block_is_left_to_right_and_greedy():
    model = table()
    text = (0,)
    for _ in range(5):
        text += (model.law(text).best,)
    canvas = told(Denoise(Quota(1), 5, FixedBlocks(1)), Left(model))
    assert canvas[0] == text[1:]


class Left:
    """A table that sees nothing right of a hole, and so says of it what plain decoding would."""

    def __init__(self, model: Table) -> None:
        self.model, self.vocab = model, model.vocab

    def look(self, asked):
        return [
            Field({i: self.model.law(ask.look.canvas.tokens[:i]) for i in ask.look.places}, rows=1) for ask in asked
        ]


def test_where_tokens_depend_on_each_other_a_threshold_decides_between_all_and_nothing():
    # one item of n is replaced, each equally likely: every place alone is (n − 1)/n sure that it is not the one
    n = 4
    model = Joint(2, {tuple(int(i == j) for i in range(n)): 1 / n for j in range(n)})
    eager, looks, _ = told(Denoise(Confident((n - 1) / n - 1e-9), n), model, prompt=())
    assert (eager, looks) == ((0,) * n, 1)  # a text that the model says is impossible
    patient, looks, _ = told(Denoise(Confident((n - 1) / n + 0.01), n), model, prompt=())
    assert (sum(patient), looks) == (1, 4)
    careful, _, _ = told(Denoise(EntropyBound(0.1), n), model, prompt=())
    assert sum(careful) == 1


# ---- quotas


@given(st.integers(1, 40), st.integers(1, 50))
def test_quotas_add_up_to_the_block(n, steps):
    canvas, counts = Canvas.blank((5, 5), n), []
    while canvas.holes:
        chosen = Quota(steps, leftmost)(state(*[law(0.5)] * len(canvas.holes), canvas=canvas))
        counts.append(len(chosen))
        canvas = canvas.fill(dict.fromkeys(chosen, 0))
    full = min(n, steps)
    assert counts == [n // full + (t < n % full) for t in range(full)]


def test_a_quota_is_by_the_block_and_not_more_than_there_is():
    canvas = Canvas.blank((), 4).fill({0: 1, 1: 1, 2: 1})
    assert Quota(2)(state(law(0.5), canvas=canvas)) == [3]
    tokens, looks, _ = told(Denoise(Quota(2), 8, FixedBlocks(4)), table(vocab=2))
    assert (len(tokens), looks) == (8, 4)
    _, _, canvases = told(Denoise(Quota(2), 6, FixedBlocks(3)), table(vocab=2))
    left = [6, *(canvas.tokens.count(HOLE) for canvas in canvases)]
    assert [a - b for a, b in pairwise(left)] == [2, 1, 2, 1]  # the odd one comes first in every block


def test_what_stands_among_the_holes_does_not_count_and_does_not_change():
    canvas = Canvas.blank((), 5)
    status = (Status.HOLE, Status.GIVEN, Status.HOLE, Status.HOLE, Status.HOLE)
    preset = Canvas((HOLE, 9, HOLE, HOLE, HOLE), status, canvas.filled, canvas.window)
    for rule in (Quota(2), Clocked(1.0, 2, last=0.0)):
        first = rule(state(*[law(0.5)] * 4, canvas=preset))
        assert len(first) == 2
        assert 1 not in first


def test_an_end_of_text_can_wait_until_nothing_else_is_left():
    seen = state(law(0.9, token=3), law(0.6), law(0.8, token=3))
    assert ranked(seen, confidence) == [0, 2, 1]
    assert ranked(seen, Late(confidence, frozenset({3}))) == [1, 0, 2]
    assert Quota(3, Late(confidence, frozenset({3})))(state(law(0.9, 3), law(0.8, 3)))  # and when it is alone it comes

    class Words:
        eos = frozenset({3})

    fitted = method("quota:ends=late").fit(Words())
    assert fitted.unmask.certainty == Late(confidence, frozenset({3}))
    assert method("quota:ends=never").fit(Words()).view == Endless(frozenset({3}))
    with pytest.raises(BadRequest, match=r"'soon'.*any, late, never"):
        method("quota:ends=soon")


def test_a_forbidden_end_is_out_of_sight_too():
    model = table()
    tokens, _, canvases = told(Denoise(Quota(2), 6, view=Endless(frozenset({1}))), model, warp=Same())
    assert 1 not in tokens
    view = Endless(frozenset({1}))(canvases[0], [2])
    asked = next(view)
    with pytest.raises(StopIteration) as answer:
        view.send(Field({2: Law.of([0.2, 0.6, 0.2])}))
    assert asked == Look(canvases[0], (2,))
    assert answer.value.value.peaks[2].p == pytest.approx(0.5)


def test_sure_holes_come_at_once_if_they_are_at_least_the_quota():
    rule = Dynamic(0.8, steps=3)  # of six holes two per look
    assert sorted(rule(peaks(0.9, 0.5, 0.85, 0.4, 0.8, 0.6))) == [0, 2, 4]
    assert sorted(rule(peaks(0.9, 0.5, 0.7, 0.4, 0.6, 0.6))) == [0, 2]


@given(sures, st.floats(0.3, 1.2))
def test_dynamic_is_between_quota_and_confident(p, threshold):
    assert sorted(Dynamic(threshold, len(p))(peaks(*p))) == sorted(Confident(threshold)(peaks(*p)))
    assert sorted(Dynamic(2.0, 3)(peaks(*p))) == sorted(Quota(3)(peaks(*p)))


# ---- time


def test_the_floor_of_a_share_may_be_nothing_for_long_and_then_a_burst():
    _, looks, canvases = told(Denoise(Timed(4), 3), table())
    assert looks == 2  # of four steps: the first two fill nothing, and are passed over without a look
    assert [len(canvas.holes) for canvas in canvases] == [2, 0]


def test_as_many_steps_as_holes_fill_one_each_if_time_runs_to_its_end():
    _, looks, _ = told(Denoise(Timed(6, last=0.0), 6), table())
    assert looks == 6
    _, looks, canvases = told(Denoise(Timed(2, last=0.0), 8, FixedBlocks(4)), table(vocab=2))
    assert looks == 4  # the clock starts anew with every block
    assert [sum(x == HOLE for x in canvas.tokens) for canvas in canvases] == [6, 4, 2, 0]


def test_the_reverse_process_in_one_step_draws_all_at_once_and_in_many_is_nearly_exact():
    model = table(vocab=2)
    exact = truth(model, 2)
    marginals = [{x: sum(p for text, p in exact.items() if text[i] == x) for x in range(2)} for i in range(2)]
    product = {(x, y): marginals[0][x] * marginals[1][y] for x in range(2) for y in range(2)}
    assert total_variation(law_of(Denoise(Ancestral(1), 2), model), product) < 1e-12
    gaps = [total_variation(law_of(Denoise(Ancestral(steps), 2), model), exact) for steps in (1, 2, 4)]
    assert gaps[0] > 1.8 * gaps[1] > 3.2 * gaps[2] > 0.001


def test_every_hole_has_its_own_coin():
    first = Every().law(lambda chance: tuple(begun(Ancestral(2, last=0.0))(state(*[law(0.5)] * 2, chance=chance))))
    # with a half each at the first step, and all at the last where no coin fell
    assert first == {(0,): pytest.approx(0.25), (1,): pytest.approx(0.25), (0, 1): pytest.approx(0.5)}


def test_the_clock_runs_with_the_holes_that_are_left():
    assert Clocked(1.0, 4, last=0.0)._due(8, 8) == 2
    # three were filled ahead of time, so t = 5/8 and the next step ends at 1/2; by number of looks it would be 3/4
    assert Clocked(1.0, 4, last=0.0)._due(5, 8) == 1
    assert Clocked(1.0, 4, last=0.0)._due(4, 8) == 2
    assert Clocked(1.0, 4)._due(1, 8) == 1
    assert Clocked(1.0, 1)._due(8, 8) == 8
    assert [Clocked(1.0, 64)._due(left, 8) for left in range(8, 0, -1)] == [1] * 8  # no look is idle


def test_what_is_surer_than_the_threshold_does_not_wait_for_the_clock():
    assert sorted(Clocked(0.8, 4)(peaks(0.9, 0.5, 0.85, 0.79))) == [0, 2]
    assert Clocked(0.95, 4)(peaks(0.9, 0.5, 0.85, 0.8)) == [0]


# ---- annealing


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_closes_all_holes(schedule):
    shares = [SCHEDULES[schedule](t / 20, 64) for t in range(1, 21)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(0, abs=1e-9)
    tokens, looks, _ = told(Denoise(Annealed(4, schedule=SCHEDULES[schedule]), 7), table(vocab=2))
    assert len(tokens) == 7
    assert looks <= 4


def test_the_cosine_keeps_few_at_first_and_the_last_look_all():
    canvas, left = Canvas.blank((), 16), []
    while canvas.holes:
        chosen = Annealed(8)(state(*[law(0.5)] * len(canvas.holes), canvas=canvas))
        canvas = canvas.fill(dict.fromkeys(chosen, 0))
        left.append(len(canvas.holes))
    assert left == [math.floor(16 * math.cos(math.pi * t / 16)) for t in range(1, 8)] + [0]


def test_one_look_fills_all_and_a_single_hole_does_not_wait():
    assert len(Annealed(1)(peaks(0.4, 0.5, 0.6))) == 3
    assert Annealed(12)(peaks(0.4)) == [0]


def test_without_heat_the_surest_draws_are_kept():
    assert sorted(Annealed(2, heat=0)(peaks(0.5, 0.9, 0.6, 0.8))) == [1, 3]
    heated = Every().law(lambda chance: tuple(Annealed(2, 2.0)(state(law(0.8), law(0.4), chance=chance))))
    assert heated == {(0,): pytest.approx(2 / 3), (1,): pytest.approx(1 / 3)}  # ∝ p^(1/(2·½)), which is p


def test_an_unknown_schedule_is_answered_with_the_known_ones():
    with pytest.raises(BadRequest, match=r"'linear'.*cosine, uniform"):
        method("annealed:schedule=linear")


# ---- thresholds


@given(sures)
def test_above_one_a_threshold_leaves_the_surest_alone(p):
    seen = peaks(*p)
    surest = [max(seen.holes, key=lambda i: (seen.peak(i).p, -i))]
    for rule in (Confident(1.01), Factor(1e-9), Local(1.01, 1.01), Hierarchy(1.01, 1.01), Peaked(0.0), EntropyBound(0)):
        assert list(rule(peaks(*p))) == surest
    assert len(Confident(0.0)(peaks(*p))) == len(p)


def test_the_more_are_filled_the_surer_the_last_must_be():
    # the bars are 1/2 for two holes, with factor 1: p ≥ 2/3, then 3/4, then 4/5
    assert Factor(1.0)(peaks(0.3, 0.2, 0.25)) == [0]
    assert Factor(1.0)(peaks(0.3, 0.7, 0.9)) == [2, 1]
    assert Factor(1.0)(peaks(0.76, 0.74, 0.9)) == [2, 0]
    assert Factor(1.0)(peaks(0.76, 0.77, 0.9, 0.79)) == [2, 3, 1]
    assert Factor(1.0)(peaks(0.9, 0.5)) == [0]  # the last of all is no better for being the last
    assert Factor(0.0)(state(law(0.9), law(1.0), law(1.0))) == [1, 2]


@given(sures, st.floats(0.05, 1.5))
def test_a_factor_bounds_what_a_look_may_carry(p, factor):
    chosen = list(Factor(factor)(peaks(*p)))
    n = len(chosen)
    if n > 1:
        nats = sum(-math.log(p[i]) for i in chosen[1:])
        assert nats <= -n * math.log(1 - min(factor / (n + 1), 1 - 1e-12)) + 1e-9
    bars = [1 - factor / (m + 1) for m in range(1, len(p) + 1)]
    passing = [m for m, (x, bar) in enumerate(zip(sorted(p, reverse=True), bars, strict=True), 1) if x >= bar]
    assert n == max([1, *passing])


@given(sures, st.floats(0.3, 1.1), st.floats(0.0, 1.0), st.integers(0, 4))
def test_near_what_is_sure_the_bar_is_lower(p, threshold, share, radius):
    seen = peaks(*p)
    base = set(Confident(threshold)(seen))
    assert set(Local(threshold, threshold, radius)(seen)) == base
    assert set(Local(threshold, threshold * share, 0)(seen)) == base
    assert set(Local(threshold, threshold * share, radius)(seen)) >= base
    if max(seen.peak(i).p for i in seen.holes) < threshold:
        assert len(Local(threshold, threshold * share, radius)(seen)) == 1  # no anchor, nothing near it


def test_near_is_as_far_as_the_radius():
    assert Local(0.9, 0.7, 2)(peaks(0.75, 0.8, 0.6, 0.95, 0.6, 0.72, 0.75)) == [1, 3, 5]
    with pytest.raises(BadRequest, match=r"local:relaxed is 0.95.*threshold, 0.9"):
        Local(0.9, 0.95)


def test_the_surest_of_every_run_is_filled():
    canvas = Canvas.blank((), 7).fill({3: 1})
    rule = Hierarchy(0.9, 0.4)
    seen = state(*map(law, (0.5, 0.6, 0.45, 0.41, 0.95, 0.91)), canvas=canvas)
    assert set(rule(seen)) == {1, 5, 6}  # the best left of what stands, and right of it all that are sure
    seen = state(*map(law, (0.35, 0.3, 0.3, 0.39, 0.3, 0.3)), canvas=canvas)
    assert list(rule(seen)) == [4]


@given(sures, st.floats(0.3, 1.1))
def test_without_a_low_bar_runs_do_not_matter(p, threshold):
    assert sorted(Hierarchy(threshold, 1.1)(peaks(*p))) == sorted(Confident(threshold)(peaks(*p)))


def test_a_threshold_may_be_about_the_token_that_was_drawn():
    class Last:
        def choose(self, law, at):
            return law.size - 1

    unlikely = state(law(0.95), law(0.9), chance=Last(), warp=Same())
    assert Confident(0.85)(unlikely) == [0, 1]
    unlikely = state(law(0.95), law(0.9), chance=Last(), warp=Same())
    assert Confident(0.85, drawn)(unlikely) == [1]  # both drew what is rare; the second drew the less rare


# ---- entropies


def test_calm_holes_are_filled_together():
    calm, restless = Law.of([0.9, 0.1, 0, 0]), Law.of([0.6, 0.4, 0, 0])  # 0.325 and 0.673 nats
    assert Peaked(0.5)(state(restless, calm, calm)) == [1, 2]
    assert Peaked(0.3)(state(restless, calm, calm)) == [1]
    assert Peaked(0.0)(state(restless, law(1.0), law(1.0))) == [1, 2]


def test_without_a_budget_only_what_is_certain_comes_along():
    certain, other = law(1.0), law(0.6)
    assert sorted(EntropyBound(0.0)(state(other, certain, certain))) == [0, 1, 2]  # the largest is free
    assert sorted(EntropyBound(0.0)(state(other, certain, other, certain))) == [0, 1, 3]


def test_the_largest_entropy_so_far_is_free_and_not_the_last():
    wide = Law.of([0.6] + [0.4 / 7] * 7)  # surer of its best token than the next, with twice its entropy
    narrow = Law.of([0.59, 0.41] + [0.0] * 6)
    seen = state(wide, narrow)
    assert seen.peak(0).entropy > 1.4 > 0.7 > seen.peak(1).entropy
    assert EntropyBound(0.7, confidence)(seen) == [0, 1]
    assert EntropyBound(0.6, confidence)(seen) == [0]


@given(sures, st.floats(0, 2), st.sampled_from([entropy, confidence, margin]))
def test_a_run_within_the_budget_could_not_be_longer(p, budget, order):
    seen = peaks(*p)
    chosen = list(EntropyBound(budget, order)(seen))
    ranks = ranked(seen, order)
    assert chosen == ranks[: len(chosen)]

    def spent(places):
        nats = [seen.peak(i).entropy for i in places]
        return sum(nats) - max(nats)

    assert spent(chosen) <= budget + 1e-9
    assert len(chosen) == len(ranks) or spent(ranks[: len(chosen) + 1]) > budget - 1e-9


@pytest.mark.parametrize("name", ["entropy_bound", "peaked"])
def test_the_stated_bound_is_not_kept_by_filling_one_at_a_time(name):
    proof = prove(name, quick=True)
    assert proof.ok
    assert proof.tv > 0.05


# ---- memories


def watched(rule, *looks, size=None):
    """What a rule with a memory chooses at one look after the other, if nothing were filled."""
    rule = begun(rule)
    return [sorted(rule(state(*laws))) for laws in looks]


def test_a_law_must_have_stopped_moving():
    still, moves = law(0.8), (law(0.8), law(0.95), law(0.8), law(0.95))
    chosen = watched(Stable(0.7, 0.01, 2, steps=3), *((still, law(0.5), move) for move in moves))
    assert chosen[:2] == [[0], [2]]  # no law is stable before it was compared twice: the surest by the quota
    assert chosen[2:] == [[0], [0]]
    assert watched(Stable(0.7, 0.01, 1, steps=3), *((still, law(0.5), move) for move in moves))[1] == [0]


@given(
    st.lists(st.lists(st.sampled_from([0.3, 0.5, 0.6, 0.72, 0.8, 0.9]), min_size=3, max_size=3), min_size=3, max_size=4)
)
def test_stability_off_is_the_threshold_or_the_quota(looks):
    laws = [[law(p) for p in look_] for look_ in looks]

    def threshold(own, quota):
        sure = [i for i in range(3) if own[i].p[0] >= 0.7]
        return sure or sorted(Quota(quota)(state(*own)))

    assert watched(Stable(0.7, 0.01, 0, 2), *laws) == [threshold(own, 2) for own in laws]
    assert watched(Stable(0.7, math.inf, 2, 2), *laws)[2:] == [threshold(own, 2) for own in laws[2:]]
    assert watched(Stable(0.0, 0.0, 1, 2), *laws) == [sorted(Quota(2)(state(*own))) for own in laws]


def test_a_law_that_was_impossible_before_has_moved_infinitely_far():
    before, after = Law.of([1, 0, 0]), Law.of([0.8, 0.2, 0])
    assert watched(Stable(0.5, 10.0, 1, 2), (before, before), (after, before))[1] == [1]


def test_what_is_remembered_of_a_block_ends_with_it():
    canvas, laws = Canvas.blank((), 4), (law(0.7), law(0.6))
    near, far = canvas.within(0, 2), canvas.within(2, 4)
    for rule in (Stable(0.5, 1.0, 1, 2), Redundant(0.9, 2.0, 1, 0, 0.5, 2)):
        mine = begun(rule)
        chosen = [sorted(mine(state(*laws, canvas=window))) for window in (near, near, far, far, near, near)]
        assert chosen == [[0], [0, 1], [2], [2, 3], [0], [0, 1]]


def test_a_law_is_compared_with_the_one_before_and_not_the_other_way_round():
    sharp, flat = Law.of([0.9, 0.1]), Law.of([0.5, 0.5])
    # KL(flat ‖ sharp) is 0.511 nats, KL(sharp ‖ flat) 0.368
    assert watched(Stable(0.4, 0.45, 1, 2), (sharp, sharp), (flat, sharp))[1] == [1]
    assert watched(Stable(0.4, 0.45, 1, 2), (flat, sharp), (sharp, sharp))[1] == [0, 1]


def test_a_guess_that_stays_the_same_is_filled_in_the_end():
    rule = Redundant(0.9, 2.0, 1, 0, steady=0.6, streak=3)
    sure, steady, other = law(0.7), law(0.65), law(0.65, token=1)
    assert watched(rule, *[(sure, steady)] * 3) == [[0], [0], [0, 1]]
    assert watched(rule, (sure, steady), (sure, other), (sure, steady), (sure, steady), (sure, steady))[3:] == [
        [0],
        [0, 1],
    ]
    assert watched(rule, *[(sure, law(0.5))] * 4) == [[0]] * 4  # steady, but not sure enough


@given(sures)
def test_redundancy_off_is_the_threshold(p):
    base = sorted(Confident(0.8)(peaks(*p)))
    off = Redundant(0.8, cluster=2.0, streak=10**9)
    assert watched(off, *[[law(x) for x in p]] * 4) == [base] * 4
    single = Redundant(0.8, cluster=0.8, span=1, known=0, streak=10**9)
    different = [law(x, token=i % 2) for i, x in enumerate(p)]  # neighbours do not share a guess
    assert watched(single, different) == [base]
    eager = Redundant(0.8, cluster=2.0, steady=0.5, streak=1)
    assert watched(eager, [law(x) for x in p]) == [sorted({*base, *(i for i, x in enumerate(p) if x >= 0.5)})]


def test_holes_that_are_sure_on_the_mean_are_filled_together():
    laws = [law(x, token=i) for i, x in enumerate((0.85, 0.78, 0.8, 0.5))]
    assert watched(Redundant(0.9, 0.8, span=3, known=0, streak=99), laws) == [[0]]  # the base fills one of the three
    assert watched(Redundant(0.9, 0.75, span=3, known=1, streak=99), laws) == [[0, 1, 2]]
    canvas = Canvas.blank((), 6).fill({1: 0, 2: 0, 4: 0})
    seen = state(law(0.7, 0), law(0.8, 1), law(0.7, 2), canvas=canvas)
    assert sorted(begun(Redundant(0.9, 0.6, span=3, known=1, streak=99))(seen)) == [3]  # too much stands in every span


def test_of_neighbours_with_one_guess_only_the_surest_is_filled():
    shared = [law(0.5, 1), law(0.82, 2), law(0.85, 2), law(0.81, 2), law(0.89, 3)]
    assert watched(Redundant(0.9, 0.8, span=1, known=0, streak=99), shared[:1] + shared[4:]) == [[1]]
    rule = Redundant(0.9, cluster=0.84, span=2, known=0, streak=99)
    assert watched(rule, shared) == [[2, 4]]


def shown(view, canvas, *fields):
    """What a view makes of one look after the other."""
    view = begun(view)
    answers = []
    for field in fields:
        asking = view(canvas, list(field))
        next(asking)
        with pytest.raises(StopIteration) as answer:
            asking.send(field)
        answers.append(answer.value.value)
    return answers


def test_credit_of_a_guess_that_stays_the_same_converges():
    canvas, own = Canvas.blank((), 1), law(0.6)
    fields = shown(Credited(0.7, 0.8, 0.2), canvas, *[Field({0: own})] * 60)
    gains = [(field[0].scores - own.scores).tolist() for field in fields]
    assert gains[0] == pytest.approx([0.7 * math.log1p(0.6**0.2), 0, 0, 0])
    assert gains[-1] == pytest.approx([0.7 * math.log1p(0.6**0.2 / 0.2), 0, 0, 0], abs=1e-4)
    assert gains[-1][0] < 0.7 * math.log(6)
    assert [gain[0] for gain in gains] == sorted(gain[0] for gain in gains)


def test_only_best_guesses_have_credit_and_they_lose_it():
    canvas = Canvas.blank((), 2)
    one_, two = Field({0: law(0.6, 1), 1: law(0.5)}), Field({0: law(0.6, 2), 1: law(0.5)})
    first, second = shown(Credited(1.0, 0.5, 1.0), canvas, one_, two)
    assert (first[0].scores - one_[0].scores).exp().tolist() == pytest.approx([1, 1.6, 1, 1])
    assert (second[0].scores - two[0].scores).exp().tolist() == pytest.approx([1, 1.3, 1.6, 1])
    assert (second[1].scores - two[1].scores).exp().tolist() == pytest.approx([1.75, 1, 1, 1])


def test_without_weight_credit_is_a_plain_look():
    field = Field({0: law(0.6), 1: law(0.5)})
    assert shown(Credited(0.0), Canvas.blank((), 2), field, field) == [field, field]
    model = table(vocab=2)
    assert told(Denoise(Confident(0.7), 8, view=Credited(0.0)), model) == told(Denoise(Confident(0.7), 8), model)


def test_credit_fills_sooner_and_is_forgotten_with_the_block():
    class Constant:
        vocab = 4

        def look(self, asked):
            return [Field({i: law(0.7) for i in ask.look.places}, 1) for ask in asked]

    slow, fast = (told(Denoise(Confident(0.8), 8, FixedBlocks(4), view), Constant()) for view in (look, Credited()))
    assert slow[0] == fast[0]
    assert (slow[1], fast[1]) == (8, 4)
    # in both blocks the first look has too little credit for more than one, and the second enough for all
    assert [sum(x == HOLE for x in canvas.tokens) for canvas in fast[2]] == [7, 4, 3, 0]


def test_exploration_fills_the_least_certain_where_nothing_is_sure():
    rule = Explore(0.9, block=2)
    assert rule(peaks(0.5, 0.4, 0.95, 0.6)) == [2, 1]  # what is sure in any block, and one of the first
    assert rule(peaks(0.5, 0.95, 0.3, 0.6)) == [1]
    assert rule(peaks(0.5, 0.4, 0.3, 0.6)) == [1]
    half = Canvas.blank((9,), 4).fill({1: 0})  # blocks are counted from the end of the prompt, not from the first hole
    assert rule(state(law(0.5), law(0.3), law(0.4), canvas=half)) == [2]


def telling() -> Joint:
    """Texts of four tokens: if 0 comes first, which is likelier, all else is open; if 1 does, all else is told."""
    texts = {(0, 0, a, b, c): 0.6 / 8 for a in (1, 2) for b in (1, 2) for c in (1, 2)}
    return Joint(3, texts | {(0, 1, 2, 2, 2): 0.4})


def test_of_several_candidates_the_one_stands_after_which_most_is_sure():
    tokens, looks, _ = told(method("explore:threshold=0.95,size=4,candidates=3"), telling())
    assert tokens == (1, 2, 2, 2)
    assert looks == 2  # one at the canvas, one at all candidates; what is sure after the best is filled with it
    alone, looks, _ = told(method("explore:threshold=0.95,size=4"), telling())
    assert alone[0] != 1
    assert looks == 4


def test_candidates_are_tried_in_one_look_beside_what_is_sure():
    seen = state(Law.of([0.4, 0.3, 0.2, 0.1]), law(0.96, 1), law(0.5), law(0.5))
    checking = TriedCandidates(0.9, 2)(seen, [1, 0])
    asked = next(checking)
    assert asked.trials == ({1: 1, 0: 0}, {1: 1, 0: 1})
    assert asked.wanted == (2, 3)
    with pytest.raises(StopIteration) as end:
        checking.send(Field({2: law(0.5), 3: law(0.5), 6: law(0.95, 2), 7: law(0.5)}, rows=8))
    assert end.value.value == [1, 0, 2]
    assert [seen.draw(i).token for i in (1, 0, 2)] == [1, 1, 2]
    with pytest.raises(StopIteration) as end:  # where all that was chosen is sure there is nothing to try
        next(TriedCandidates(0.9, 2)(peaks(0.95, 0.4), [0]))
    assert end.value.value == [0]


@given(sures, st.floats(0.3, 1.1))
def test_without_exploration_one_block_is_the_threshold(p, threshold):
    assert Explore(threshold, 99, confidence)(peaks(*p)) == Confident(threshold)(peaks(*p))


# ---- guidance


def test_guidance_goes_further_than_the_prompt_leads():
    canvas = Canvas.blank((7, 8), 2).fill({2: 1})
    asking = Guided(1.5)(canvas, [3])
    assert next(asking) == Look(canvas, (3,))
    led, alone = Law.of([0.5, 0.3, 0.2, 0.0]), Law.of([0.2, 0.3, 0.5, 0.0])
    second = asking.send(Field({3: led}, rows=4))
    assert second.canvas.tokens == (HOLE, HOLE, 1, HOLE)
    with pytest.raises(StopIteration) as answer:
        asking.send(Field({3: alone}, rows=4))
    field = answer.value.value
    assert field.rows == 8
    weights = torch.tensor([0.2 * 2.5**2.5, 0.3, 0.5 * 0.4**2.5, 0.0])  # p₀·(p/p₀)^(w + 1)
    assert field[3].p.tolist() == pytest.approx((weights / weights.sum()).tolist())


def test_without_scale_or_prompt_guidance_is_a_plain_look():
    model = table()
    plain = told(Denoise(Quota(2), 4), model)
    assert told(Denoise(Quota(2), 4, view=Guided(0.0)), model) == plain
    recorded = Recorded(model)
    told(Denoise(Quota(2), 4, view=Guided(2.0)), recorded, prompt=())
    assert len(recorded.seen) == 2
    tokens, looks, canvases = told(Denoise(Quota(2), 4, view=Guided(2.0)), model)
    assert (len(tokens), looks, len(canvases)) == (4, 4, 2)


# ---- by name


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("quota:steps=2,certainty=random", Quota(2, random)),
        ("timed:steps=9,certainty=margin,heat=0.5", Timed(9, margin, 0.5)),
        ("confident:threshold=0.8,certainty=drawn", Confident(0.8, drawn)),
        ("entropy_bound:budget=0.3,certainty=confidence", EntropyBound(0.3, confidence)),
        ("explore:threshold=0.8,block=8", Explore(0.8, 8)),
        ("credited:threshold=0.8", Confident(0.8)),
        ("guided:scale=2,steps=4", Quota(4)),
    ],
)
def test_options_reach_the_rule(spec, rule):
    assert method(spec).unmask == rule


@pytest.mark.parametrize(
    "spec",
    [
        "quota:steps=0",
        "timed:heat=-1",
        "ancestral:steps=0",
        "annealed:heat=-1",
        "factor:factor=-0.1",
        "clocked:steps=0",
        "entropy_bound:budget=-1",
        "peaked:nats=-1",
        "stable:history=-1",
        "local:radius=-1",
        "hierarchy:low=nan",
        "dynamic:steps=0",
        "redundant:streak=0",
        "explore:block=0",
        "credited:decay=1",
        "guided:scale=-1",
    ],
)
def test_what_cannot_be_is_refused_by_name(spec):
    name, option = spec.split("=")[0].split(":")
    with pytest.raises(BadRequest, match=f"{name}:{option}"):
        method(spec)
