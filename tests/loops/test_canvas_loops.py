"""Loops of their own on a canvas: what they promise, and what they are without their trick."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from canvases import Scripted, law_of, table, told
from letters import Letters
from proposing import ended

from unspool.core.asks import Done
from unspool.core.canvas import Binding, Canvas, Field, Status
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp import Frequency, Presence, Same, Temperature, TopK, TopP
from unspool.loops.guard import guarded, unbound
from unspool.loops.plain import plain
from unspool.recipes.methods import method
from unspool.rules.constrain import Constrained, ItemSet, Static
from unspool.rules.decode import (
    AnyOrder,
    Chunks,
    Deliberate,
    Denoise,
    Fragments,
    GivenText,
    Insert,
    Least,
    Scattered,
    Slots,
)
from unspool.rules.decode.anyorder import Alike, Copied, left, mixed
from unspool.rules.unmask import Confident, Context, Cooling, FixedBlocks
from unspool.runtime.cache.table_model import Joint, Table
from unspool.runtime.engine.engine import Engine

# ---- any-subset speculation

EXACT = Denoise(Confident(2.0), 3, FixedBlocks(1))  # one after the other, from left to right


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("guess", [Alike(), Copied()], ids=str)
@pytest.mark.parametrize("order", [left, mixed])
def test_speculation_in_any_order_leaves_the_law_as_it_is(depth, guess, order):
    model = table(2)
    mine = law_of(AnyOrder(depth, 3, guess, order), model)
    assert total_variation(mine, law_of(EXACT, model)) < 1e-12


@pytest.mark.parametrize("warp", [Temperature(0.6), TopK(2), Frequency(0.9), Presence(0.9) | TopP(0.7)], ids=str)
@pytest.mark.parametrize("guess", [Alike(), Copied()], ids=str)
def test_from_left_to_right_it_has_plain_decodings_law_under_warps_too(warp, guess):
    """Each hole is shaped by what stands when it is settled, those of the same round among it."""
    model = table(3)
    mine, plainly = (law_of(method, model, most=3, warp=warp) for method in (AnyOrder(3, 3, guess), plain()))
    assert total_variation(mine, plainly) < 1e-12


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("order", [left, mixed])
def test_looks_never_outnumber_tokens(depth, order):
    for seed in range(6):
        for guess in (Alike(), Copied()):
            tokens, looks, _ = told(AnyOrder(depth, 5, guess, order), table(2, seed), (0, 1), Philox(seed), Same())
            assert looks <= len(tokens) == 5


def test_one_hole_at_a_time_is_sequential():
    tokens, looks, _ = told(AnyOrder(1, 5), table(), (0,), Philox(3), Same())
    assert looks == 5
    assert tokens == told(Denoise(Confident(2.0), 5, FixedBlocks(1)), table(), (0,), Philox(3), Same())[0]


def test_independent_holes_all_stand():
    even = Table(3, lambda text: [1, 2, 3])
    engine = Engine({"target": even})
    job = engine.submit(AnyOrder(4, 7), (0,), Philox(1), Same(), Stop())
    engine.run()
    looks, trace = job.trace.forwards["target"], job.trace
    assert looks == 4  # one exact, three drafted and one more in two looks; then one exact and one drafted
    assert trace.accepted_tokens == trace.drafted == 4


def test_a_bug_in_the_acceptance_is_caught():
    class Sharp(Alike):
        """Drafts by other laws than the model's."""

        def __call__(self, canvas, places):
            laws = yield from super().__call__(canvas, places)
            return {i: laws[i].temper(0.5) for i in laws}

    model, truth = table(2), law_of(EXACT, table(2))
    unverified, verified = (law_of(AnyOrder(2, 3, Sharp(exact)), model) for exact in (1, 0))
    assert total_variation(unverified, truth) > 0.01
    assert total_variation(verified, truth) < 1e-12


def test_names_of_guesses_and_orders_are_checked():
    with pytest.raises(BadRequest, match=r"'alik'.*alike, copied"):
        method("anyorder:guess=alik")
    with pytest.raises(BadRequest, match=r"'up'.*left, mixed"):
        method("anyorder:order=up")
    assert method("anyorder:guess=copied,order=mixed,depth=3") == AnyOrder(3, 0, Copied(), mixed)


# ---- deliberation


HYPOTHESIS = (2, 1, 0, 1)


def test_no_doubt_returns_the_hypothesis_without_a_look():
    assert told(Deliberate(GivenText(HYPOTHESIS), Least(0.0)), table())[:2] == (HYPOTHESIS, 0)


def test_one_chunk_is_decoding_from_scratch_at_that_length():
    rule, model = Confident(0.6), table(2)
    mine = law_of(Deliberate(GivenText((1, 1, 0)), Chunks(1), rule), model)
    assert total_variation(mine, law_of(Denoise(rule, 3), model)) < 1e-12


def test_the_least_expected_tokens_are_written_again_given_the_rest():
    blank = {1: (2, 0.9), 2: (3, 0.9), 3: (0, 0.9), 4: (1, 0.4)}  # what it expects before it sees the text
    model = Scripted(blank, {2: (4, 0.99), 3: (4, 0.99)})
    tokens, looks, _ = told(Deliberate(GivenText((2, 1, 5, 1)), Least(0.5), Confident(0.9)), model)
    assert (tokens, looks) == ((2, 4, 4, 1), 2)
    first, second = model.asked
    assert first.canvas.tokens == (0, -1, -1, -1, -1)  # the answer is not seen
    assert second.canvas.tokens == (0, 2, -1, -1, 1)
    assert second.places == (2, 3)


def test_chunks_see_earlier_ones_as_they_were_rewritten():
    model = Scripted(dict.fromkeys(range(1, 6), (3, 0.99)))
    tokens, looks, _ = told(Deliberate(GivenText((0, 1, 2, 0, 1)), Chunks(2), Confident(0.9)), model)
    assert (tokens, looks) == ((3,) * 5, 2)
    assert [look.canvas.tokens for look in model.asked] == [(0, -1, -1, -1, 0, 1), (0, 3, 3, 3, -1, -1)]


def test_scattered_holes_fall_on_every_set_alike():
    def masked(chance):
        canvas = Canvas.blank((0,), 4).fill(dict.fromkeys(range(1, 5), 1), Status.DRAFT)
        with pytest.raises(StopIteration) as end:
            next(Scattered(0.5)(canvas, chance))
        return tuple(end.value.value[0])

    law = Every().law(masked)
    assert len(law) == 6
    assert list(law.values()) == pytest.approx([1 / 6] * 6)


def test_a_second_thought_has_noise_of_its_own():
    coin = Table(2, lambda text: [1, 1])
    first = Denoise(Confident(0.0), 1)
    again = Deliberate(first, Chunks(1))
    texts = [[told(method, coin, (0,), Philox(n), Same())[0] for n in range(20)] for method in (first, again)]
    assert 3 < sum(a == b for a, b in zip(*texts, strict=True)) < 17


def test_a_rewritten_text_ends_where_it_should():
    model = Scripted(dict.fromkeys(range(1, 6), (4, 0.99)))
    tokens, _, _ = told(Deliberate(GivenText((0, 1, 2, 0)), Chunks(2)), model, stop=Stop(frozenset({4})))
    assert tokens == (4,)


# ---- fragments


def test_no_rounds_leave_the_first_text():
    model = table()
    first = Denoise(Cooling(1.0), 4)
    for seed in range(5):
        mine = told(Fragments(first, rounds=0), model, (0,), Philox(seed), Same())
        assert mine[:2] == told(first, model, (0,), Philox(seed), Same())[:2]


def few_zeros(tokens, logprobs):
    return -sum(x == 0 for x in tokens)


def test_a_fragment_is_replaced_only_by_something_no_worse():
    first = GivenText((0, 5, 0, 0, 5, 0, 1))
    for seed in range(4):
        for token, better in ((1, True), (0, False)):
            model = Scripted(dict.fromkeys(range(20), (token, 1.0)))
            method = Fragments(first, {5}, few_zeros, rounds=4, least=2, most=3)
            tokens, _, _ = told(method, model, (3,), Philox(seed))
            assert tokens.count(5) == 2  # separators stand
            if better:
                assert few_zeros(tokens, ()) > few_zeros(first.tokens, ())
            else:
                assert few_zeros(tokens, ()) >= few_zeros(first.tokens, ())


def test_holes_replace_one_fragment_and_the_rest_is_seen():
    model = Scripted(dict.fromkeys(range(20), (1, 1.0)))
    told(Fragments(GivenText((0, 5, 0, 0, 5, 2)), {5}, few_zeros, rounds=1, least=3, most=3), model, (3,), Philox(2))
    seen = model.asked[0].canvas.tokens[1:]
    assert seen in ((-1, -1, -1, 5, 0, 0, 5, 2), (0, 5, -1, -1, -1, 5, 2), (0, 5, 0, 0, 5, -1, -1, -1))
    assert len(model.asked) == 3  # one token per look


def test_a_text_does_not_outgrow_its_room():
    model = Scripted(dict.fromkeys(range(30), (1, 1.0)))
    method = Fragments(GivenText((0, 5, 0)), {5}, few_zeros, rounds=6, least=5, most=15)
    for seed in range(5):
        tokens, _, _ = told(method, model, (3,), Philox(seed), stop=Stop(most=6))
        assert len(tokens) <= 6
        assert 5 in tokens


def test_the_worst_of_a_population_goes_and_the_best_is_handed_out():
    """Texts of a population differ from the first on, and an oracle of the text decides."""
    asked = []

    def ones(text):
        asked.append(text)
        return text.count("1")

    model = table(vocab=4)
    stop = Stop(most=6, piece=lambda token: str(token).encode())
    first = Denoise(Cooling(1.0), 6)
    method = Fragments(first, {3}, rounds=12, least=1, most=3, population=4, reward=ones)
    tokens, _, _ = told(method, model, (0,), Philox(5), Same(), stop=stop)
    assert len(set(asked[:4])) > 1
    assert len(asked) > 4
    assert "".join(map(str, tokens)).count("1") == max(text.count("1") for text in asked)
    alone = told(replace(method, population=1, rounds=0), model, (0,), Philox(5), Same(), stop=stop)[0]
    assert alone == told(first, model, (0,), Philox(5), Same(), stop=stop)[0]
    with pytest.raises(BadRequest, match="fragments:population"):
        Fragments(first, population=0)


def test_a_population_ends_where_its_laws_would_take_too_much_room(monkeypatch):
    monkeypatch.setattr("unspool.rules.decode.fragments.KEPT", 12)
    asked = []
    stop = Stop(most=6, piece=lambda token: bytes([65 + len(asked), token]))
    method = Fragments(
        Denoise(Cooling(1.0), 6), {3}, rounds=0, population=50, reward=lambda text: asked.append(text) or 0
    )
    told(method, table(vocab=4), (0,), Philox(5), Same(), stop=stop)
    assert len(asked) == 2


def test_fragments_need_separators():
    with pytest.raises(BadRequest, match="separators="):
        told(Fragments(GivenText((0, 1))), table())


# ---- the order and the guidance that go with them


def test_without_randomness_the_surest_draw_comes_first():
    model = Scripted({1: (0, 0.5), 2: (1, 0.9), 3: (2, 0.7)})
    _, _, canvases = told(Denoise(Cooling(0.0), 3), model)
    assert [c.filled[1:4] for c in canvases[:3]] == [(-1, 0, -1), (-1, 0, 1), (2, 0, 1)]


def test_randomness_lets_the_unsure_come_first():
    model = Scripted({1: (0, 0.9), 2: (1, 0.8), 3: (2, 0.1)})
    firsts, lasts = set(), set()
    for seed in range(30):
        _, _, canvases = told(Denoise(Cooling(3.0), 3), model, chance=Philox(seed))
        order = sorted((1, 2, 3), key=lambda i: canvases[2].filled[i])
        firsts.add(order[0])
        lasts.add(order[2])
    assert firsts == {1, 2, 3}
    assert 3 in lasts


@pytest.mark.parametrize("view", [Context(1.0, 0.5), Context(3.0, 0.0)])
def test_no_guidance_is_one_plain_look(view):
    model = table()
    plain = told(Denoise(Confident(0.6), 3), model, (0, 1, 2, 0))
    assert told(Denoise(Confident(0.6), 3, view=view), model, (0, 1, 2, 0))[:2] == plain[:2]


def test_guidance_leads_away_from_the_poorer_prompt():
    rich, poor = Scripted({2: (1, 0.6)})._law(1, 0.6), Scripted({})._law(1, 0.3)
    model = Scripted({4: (1, 0.6)}, {4: (1, 0.3)})
    engine = Engine({"target": model})
    job = engine.submit(Denoise(Confident(0.0), 1, view=Context(2.0, 0.5)), (0, 1, 2, 3), Philox(0), Same(), Stop())
    job.laws = True
    engine.run()
    law = next(emit.after[0] for emit in job.emitted if emit.tokens)
    expected = [a * a / b for a, b in zip(rich.p.tolist(), poor.p.tolist(), strict=True)]
    assert law.p.tolist() == pytest.approx([x / sum(expected) for x in expected])
    assert sum(x == -1 for x in model.asked[1].canvas.tokens[:4]) == 2


# ---- insertion

NONE = 5


class Between:
    """Between two tokens goes their mean, if that is a third one; certain."""

    vocab = 6

    def __init__(self) -> None:
        self.asked = []

    def look(self, asked):
        self.asked += [ask.look for ask in asked]
        return [Field({i: self._law(ask.look.canvas.tokens, i) for i in ask.look.places}, 1) for ask in asked]

    def _law(self, tokens, i):
        a, b = tokens[i - 1], tokens[i + 1] if i + 1 < len(tokens) else tokens[i - 1]
        token = (a + b) // 2 if abs(a - b) > 1 and i > 1 else NONE
        return Law.of([0.9 if x == token else 0.02 for x in range(6)])


def test_a_model_that_inserts_nothing_returns_the_words():
    model = Scripted(dict.fromkeys(range(20), (NONE, 0.9)))
    assert told(Insert(NONE, (1, 2, 3), decay=0), model)[:2] == ((1, 2, 3), 1)


def test_gaps_are_filled_at_once_until_all_stay_closed():
    model = Between()
    tokens, looks, _ = told(Insert(NONE, (0, 4), decay=0), model, (2,))
    assert tokens == (0, 1, 2, 3, 4)
    assert looks == 3  # 2, then 1 and 3, then nothing
    assert model.asked[1].canvas.tokens == (2, -1, 0, -1, 2, -1, 4, -1)


@pytest.mark.parametrize("seed", range(6))
def test_words_are_a_subsequence_and_the_text_at_most_doubles(seed):
    words = (1, 3, 1)
    lengths = [len(words)]
    model = Scripted({}, even=0.17)
    engine = Engine({"target": model})
    job = engine.submit(Insert(NONE, words, rounds=4), (0,), Philox(seed), Same(), Stop(most=40))
    engine.run()
    lengths += [len(emit.canvas) - 1 for emit in job.emitted if not emit.tokens]
    tokens = job.result().tokens
    rest = iter(tokens)
    assert all(word in rest for word in words)
    assert NONE not in tokens
    assert all(after <= 2 * before + 1 for before, after in pairwise(lengths))
    assert lengths[1] == 2 * lengths[0] + 1  # the first round has nothing to say against an insertion


def test_nothing_comes_between_joined_words_and_no_more_than_there_is_room():
    model = Scripted(dict.fromkeys(range(40), (2, 0.9)))
    tokens = told(Insert(NONE, (1, 3, 4), rounds=1, joined={0}), model)[0]
    assert tokens == (2, 1, 3, 2, 4, 2)
    tokens = told(Insert(NONE, (1, 3, 4), rounds=5), model, stop=Stop(most=7))[0]
    assert len(tokens) == 7


def test_the_token_for_nothing_is_held_back_by_its_probability():
    even = Table(6, lambda text: [1, 1, 1, 1, 1, 5])
    law = law_of(Insert(NONE, rounds=2, decay=2), even)
    once = sum(mass for tokens, mass in law.items() if len(tokens) == 1)
    assert once == pytest.approx((2.5 / 7.5) ** 2)  # at the second round half as likely: 2.5 to 5, in two gaps


def test_the_token_for_nothing_has_to_be_told():
    with pytest.raises(BadRequest, match="has to know the tokens"):
        told(method("insert"), table())
    with pytest.raises(BadRequest, match="has no token <none>"):
        method("insert").fit(WORDS)
    with pytest.raises(BadRequest, match="leave it out"):
        Insert(2, (1, 2))


class Spelling(Letters):
    """Letters of which one says that nothing is inserted."""

    def token(self, text):
        return 5 if text == "<none>" and self.controls == 1 else None


WORDS = Spelling(("a", "b", " ", " a", "c"), controls=0)
NAMED = Spelling(("a", "b", " ", " a", "c"), controls=1)


def test_words_by_name_are_spelt_and_nothing_comes_inside_one():
    fitted = method("insert:words=ab+a+b").fit(NAMED)
    assert (fitted.none, fitted.words) == (5, (0, 1, 3, 2, 1))  # "ab", " a", " b"
    assert set(fitted.joined) == {0, 3}
    lists = method("insert:prevent=a,reduce=b,promote=c").fit(NAMED)
    assert (lists.prevent, lists.reduce, lists.promote) == ((0, 3), (1,), (4,))  # with a blank before it or without
    with pytest.raises(BadRequest, match="insert:prevent has 'ba'"):
        method("insert:prevent=ba").fit(NAMED)
    with pytest.raises(BadRequest, match="a token of insert is 99"):
        method("insert:none=99").fit(NAMED)


def test_lists_of_words_weigh_what_is_inserted():
    even = Table(6, lambda text: [1, 1, 1, 1, 1, 1])
    law = law_of(Insert(NONE, rounds=1, prevent=(0,), promote=(1,), boost=3.0), even)
    assert law == pytest.approx({(1,): 3 / 6, (2,): 1 / 6, (3,): 1 / 6, (4,): 1 / 6})  # none is held back at first
    law = law_of(Insert(NONE, rounds=1, reduce=(0, 1, 2, 3)), even)
    assert law == pytest.approx({(4,): 1.0})
    law = law_of(Insert(NONE, rounds=1, reduce=(0, 1, 2, 3), decay=0), even)
    assert law[(0,)] == pytest.approx(1 / 6)


class Echoing:
    """Into every gap goes 1 if nothing but words and holes is around, and nothing once a 1 has come in."""

    vocab = 6

    def __init__(self):
        self.looks = []

    def look(self, asked):
        self.looks.append(len(asked))
        return [Field({i: self._law(ask.look.canvas.tokens) for i in ask.look.places}, 1) for ask in asked]

    def _law(self, tokens):
        token = NONE if 1 in tokens else 1
        return Law.of([0.6 if x == token else 0.08 for x in range(6)])


def test_a_beam_fills_a_gap_given_those_before_it():
    """At once, every gap gets the same word; one after the other, only the first does."""
    together, _, _ = told(Insert(NONE, (3, 3), rounds=1, decay=0), Echoing())
    assert together == (1, 3, 1, 3, 1)
    model = Echoing()
    apart, looks, _ = told(Insert(NONE, (3, 3), rounds=1, decay=0, beam=3), model)
    assert apart == (1, 3, 3)
    assert (looks, model.looks) == (3, [1, 3, 3])  # a forward for each gap, with a copy for each beam
    full, _, _ = told(Insert(NONE, (3, 3), rounds=2, beam=2), Echoing(), stop=Stop(most=3))
    assert len(full) == 3
    with pytest.raises(BadRequest, match="insert:beam"):
        Insert(NONE, beam=0)


# ---- slots


def likeliest(model, size=3):
    law = law_of(Denoise(Confident(2.0), size), model)
    return sorted(law, key=lambda tokens: -law[tokens])


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_and_serial_beam_finds_the_likeliest(seed):
    model = table(2, seed)
    ranked = likeliest(model)
    assert told(Slots(3, beam=8, warm=3), model, (0,), warp=Same())[0] == ranked[0]
    assert told(Slots(3, beam=8, warm=0, together=1), model, (0,), warp=Same())[0] == ranked[0]
    second = Slots(3, beam=8, warm=3, valid=lambda tokens: tokens != ranked[0])
    assert told(second, model, (0,), warp=Same())[0] == ranked[1]


@pytest.mark.parametrize("seed", range(5))
def test_slots_bound_to_items_rank_them_by_the_models_own_law(seed):
    """With a beam as wide as the set, the n best are the n likeliest items; whatever the beam, all are items."""
    model = table(3, seed)
    items = [(0, 1, 2), (2, 1, 0), (1, 1, 1), (2, 2, 0), (0, 0, 2)]
    bound = Constrained(Static(ItemSet.of([*items, (0, 1)], 3)))
    ranked = [text for text in likeliest(model) if text in items]
    heard = []
    best = told(Slots(3, beam=8, warm=3, watch=heard.append), model, (0,), warp=bound | Temperature(0.0))[0]
    assert best == ranked[0]
    assert [one.tokens for one in heard[0]] == ranked
    for beam, warm, together in ((1, 1, 2), (2, 0, 3)):
        rule = Slots(3, beam=beam, warm=warm, together=together, watch=heard.append)
        assert told(rule, model, (0,), warp=bound)[0] in items
        assert {one.tokens for one in heard[-1]} <= set(items)
    with pytest.raises(BadRequest, match="which have 2, 3"):
        told(Slots(), model, (0,), warp=bound)
    alike = Constrained(Static(ItemSet.of(items, 3)))
    assert told(Slots(beam=8, warm=3), model, (0,), warp=alike)[0] == ranked[0]  # the size is that of the items


@pytest.mark.parametrize("seed", range(3))
def test_items_of_different_lengths_are_ranked_with_their_ends(seed):
    model, end = table(4, seed), 3
    items = [(0, 1, 2), (2, 1), (1,), (2, 2, 0), (0, 0)]
    bound, heard = Constrained(Static(ItemSet.of(items, 4, (end,)))), []
    told(Slots(beam=8, warm=3, watch=heard.append), model, (0,), warp=bound, stop=Stop(tokens=frozenset({end})))
    filled = {item: (*item, *(end,) * (3 - len(item))) for item in items}
    order = [text for text in likeliest(model) if text in filled.values()]
    shown = [one.tokens for one in heard[0]]
    assert shown == [next((*i, end)[:3] for i, whole in filled.items() if whole == text) for text in order]


def test_one_beam_and_one_slot_a_step_is_greedy_by_confidence():
    for seed in range(5):
        model = table(3, seed)
        mine = told(Slots(3, beam=1, warm=3), model, (0,), warp=Same())
        assert mine[:2] == told(Denoise(Confident(2.0), 3), model, (0,))[:2]


def test_a_temperature_of_zero_leaves_all_beams():
    for seed in range(3):
        texts = [told(Slots(3, beam=8, warm=3), table(2, seed), warp=warp)[0] for warp in (Same(), Temperature(0.0))]
        assert texts[0] == texts[1] == likeliest(table(2, seed))[0]


def test_looks_are_one_per_beam_and_step():
    model = table(2)
    assert told(Slots(4, beam=2, warm=1, together=3), model, warp=Same())[1] == 1 + 2
    assert told(Slots(4, beam=2, warm=4), model, warp=Same())[1] == 1 + 2 + 2 + 2


def test_slots_filled_together_are_scored_as_if_independent():
    pair = Joint(2, {(0, 0, 1): 0.4, (0, 1, 0): 0.35, (0, 1, 1): 0.25})
    assert told(Slots(2, beam=4, warm=2), pair, (0,), warp=Same())[0] == (0, 1)
    assert told(Slots(2, beam=4, warm=0, together=2), pair, (0,), warp=Same())[0] == (1, 1)  # 0.6 · 0.65


# ---- what none of them can do


class Undeclared(Same):
    """A warp with a guard that does not say so."""

    def guard(self, canvas, stop):
        raise AssertionError("not asked")


def test_a_guard_that_is_not_declared_is_refused_in_words():
    with pytest.raises(BadRequest, match="Undeclared has a guard that nobody asks"):
        unbound(Temperature(0.5) | Undeclared(), "slots")
    with pytest.raises(BadRequest, match="Undeclared has a guard that nobody asks"):
        ended(guarded(Undeclared(), Canvas.blank((0,), 2), Stop(most=2)))


class Bound(Same, Binding):
    """A constraint that binds the whole text."""

    def guard(self, canvas, stop):
        raise AssertionError("not asked")


@pytest.mark.parametrize(
    "loop",
    [AnyOrder(2, 2), Deliberate(GivenText((0,))), Fragments(GivenText((0,)), {0}), Insert(NONE), Slots(2)],
    ids=lambda loop: type(loop).__name__,
)
def test_a_constraint_is_refused_and_not_forgotten(loop):
    for warp in (Bound(), Temperature(0.5) | Bound()):
        with pytest.raises(BadRequest, match="cannot keep to a constraint"):
            told(loop, table(), warp=warp)


class NeverSatisfied:
    """A second thought that takes back whatever stands, and counts how often it could."""

    looks = 3

    def __init__(self):
        self.asked = 0

    def asks(self, canvas):
        return [i for i in range(*canvas.window) if canvas.status[i] == Status.DRAFT]

    def __call__(self, state, canvas):
        self.asked += 1
        return canvas.remask(i for i in range(*canvas.window) if canvas.status[i] == Status.DRAFT)


@pytest.mark.parametrize("block", [2, 4])
def test_a_window_of_n_places_is_thought_about_again_at_its_first_n_looks_and_those_allowed(block):
    second = NeverSatisfied()
    tokens, looks, _ = told(
        Denoise(Confident(2.0), 4, FixedBlocks(block), remask=second), table(), (0,), Philox(2), Same()
    )
    windows = 4 // block
    assert len(tokens) == 4
    assert second.asked == windows * (block + second.looks)
    assert looks == windows * (2 * block + second.looks)  # then a hole is filled at every look


@pytest.mark.parametrize(("first", "stop"), [((0, 3), Stop(frozenset({3}), most=4)), ((0, 3, 0), Stop(most=3))])
def test_an_end_that_is_rewritten_ends_nothing(first, stop):
    """The first thought may have ended with a stop token; where another stands in its place, length is what is left."""
    engine = Engine({"target": Scripted(dict.fromkeys((1, 2, 3), (0, 0.9)))})
    job = engine.submit(Deliberate(GivenText(first), Chunks(1)), (1,), Philox(0), Temperature(0.0), stop)
    engine.run()
    assert job.result() == Done((0,) * len(first), "length")


@pytest.mark.parametrize(("order", "accepted"), [(left, 2), (lambda holes, chance: holes[::-1], 3)])
def test_what_was_drafted_behind_the_end_of_a_text_was_not_accepted(order, accepted):
    """Every draft stands, and the third of four tokens ends the text; the first place in order is no draft."""
    model = Scripted({1: (1, 1.0), 2: (1, 1.0), 3: (2, 1.0), 4: (1, 1.0)})
    engine = Engine({"target": model})
    job = engine.submit(AnyOrder(4, 4, order=order), (0,), Philox(0), Same(), Stop(frozenset({2})))
    engine.run()
    assert job.result() == Done((1, 1, 2), "token")
    assert (job.trace.drafted, job.trace.accepted_tokens) == (3, accepted)


def test_accepted_drafts_are_never_more_than_the_tokens_of_a_text():
    engine = Engine({"target": table(3)})
    for seed in range(30):
        job = engine.submit(AnyOrder(4, 5), (0,), Philox(seed), Same(), Stop(frozenset({2})))
        engine.run()
        assert job.trace.accepted_tokens <= job.trace.tokens == len(job.result().tokens)
