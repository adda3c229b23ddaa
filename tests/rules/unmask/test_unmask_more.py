"""The second half of the rules for canvases: what they are without their trick, and what the trick does."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from canvases import Scripted, law_of, same, table, told

from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Canvas, Field, Status
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp import Same
from unspool.rules.decode import Denoise
from unspool.rules.unmask import (
    Adaptive,
    Ancestral,
    Confident,
    Cycle,
    DenoiseState,
    Doubtful,
    Early,
    Edit,
    FixedBlocks,
    Foreseen,
    Near,
    Quota,
    Renoise,
    Resample,
    Reverse,
    Settled,
    Sliding,
    Softened,
    Unchanged,
)
from unspool.rules.unmask.certainty import entropy
from unspool.rules.unmask.renoise import Capped, Even, Looped, Rescaled
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import LookRequest
from unspool.runtime.engine.engine import Engine

# ---- adaptive blocks


@pytest.mark.parametrize("seed", range(4))
def test_without_a_sure_delimiter_blocks_are_fixed(seed):
    rule = Confident(0.7)
    same(Denoise(rule, 5, Adaptive(2, math.inf)), Denoise(rule, 5, FixedBlocks(2)), seed)


def test_a_block_ends_with_the_surest_delimiter_within_reach():
    p = {1: (3, 0.5), 2: (0, 0.4), 3: (0, 0.8), 4: (3, 0.6), 6: (0, 0.99), 7: (4, 0.95)}
    model = Scripted(p)
    tokens, _, canvases = told(Denoise(Confident(0.45), 8, Adaptive(2, 0.3, ends={0}, reach=0.5)), model, (1,))
    # of the first four places the third holds the surest delimiter; the more certain one at 6 is out of reach
    assert [i for i in range(1, 9) if canvases[0].tokens[i] >= 0] == [1, 3]  # 4 is sure enough, but not in the block
    assert [i for i in range(1, 9) if canvases[1].tokens[i] >= 0] == [1, 2, 3]
    assert [i for i in range(1, 9) if canvases[2].tokens[i] >= 0] == [1, 2, 3, 4, 6]  # the next block ends at 6
    assert len(tokens) == 8


def test_blocks_take_all_of_the_answer_and_end_with_their_delimiters():
    blocks = Adaptive(3, 0.35, ends={1}, reach=0.5).begin()
    canvas, ends = Canvas.blank((0,), 7), []
    model = table(seed=1)
    while canvas.settled < len(canvas):
        sheet = blocks(canvas)
        field = model.look([LookRequest(None, Look(sheet))])[0]
        near = blocks.saw(DenoiseState(sheet, field, Same(), Philox(0)))
        low, high = near.canvas.window
        assert low == canvas.settled
        found = [i for i in sheet.holes if field.peaks[i].token == 1 and field.peaks[i].p >= 0.35]
        if any(i < low + 4 for i in found):
            assert field.peaks[high - 1].token == 1
        else:
            assert high == min(low + 3, len(canvas))
        ends.append(high)
        canvas = canvas.fill({i: field.peaks[i].token for i in range(low, high)})
    assert ends[-1] == len(canvas)
    assert ends == sorted(set(ends))


class Spelt:
    """A vocabulary of six tokens."""

    size = 6
    words = (b"a", b".\n", b"\n", b"b", b"", b"\nb")

    def piece(self, token: int) -> bytes:
        return self.words[token]


def test_delimiters_come_from_the_vocabulary():
    method = Denoise(Confident(0.9), 4, Adaptive())
    assert method.fit(Spelt()).blocks.ends == {1, 2}
    assert Denoise(Confident(0.9), 4, Adaptive(ends=(3,))).fit(Spelt()).blocks.ends == (3,)
    with pytest.raises(BadRequest, match="ends="):
        told(method, table())


# ---- early


@pytest.mark.parametrize("seed", range(3))
def test_infinite_gaps_never_end_early(seed):
    rule = Confident(0.8)
    same(Denoise(Early(rule, FixedBlocks(2), (math.inf,) * 3), 4), Denoise(rule, 4, FixedBlocks(2)), seed)


def test_no_gap_at_all_is_one_look():
    assert told(Denoise(Early(gaps=(0.0,) * 3), 6), table())[1] == 1


def test_the_gap_that_is_asked_for_shrinks_with_the_looks():
    lead = 4.0  # of logits, at every place and every look
    p = math.exp(lead) / (math.exp(lead) + 5)
    model = Scripted(dict.fromkeys(range(1, 10), (2, p)))
    looks = {
        gaps: told(Denoise(Early(gaps=gaps), 9), model)[1] for gaps in ((5, 5, 3), (5, 3, 3), (3, 9, 9), (5, 5, 5))
    }
    assert looks == {(5, 5, 3): 7, (5, 3, 3): 4, (3, 9, 9): 1, (5, 5, 5): 9}


def test_only_the_watched_holes_count():
    sure_at_the_end = Scripted({8: (1, 0.999), 9: (1, 0.999)})
    assert told(Denoise(Early(gaps=(5.0,) * 3, watched=2), 9), sure_at_the_end)[1] == 1
    assert told(Denoise(Early(gaps=(5.0,) * 3), 9), sure_at_the_end)[1] > 1


# ---- slow and fast


@pytest.mark.parametrize("block", [0, 2])
def test_without_slow_looks_it_is_the_rule_in_its_blocks(block):
    rule, blocks = Confident(0.7), FixedBlocks(block or 5)
    same(Denoise(rule, 5, Cycle(looks=0, block=block)), Denoise(rule, 5, blocks))


def test_the_fast_phase_sees_nothing_beyond_the_horizon():
    far = {1: (0, 0.4), 2: (1, 0.5), 3: (2, 0.6), 4: (3, 0.35)}
    model = Scripted(far)
    tokens, _, _ = told(Denoise(Confident(0.9), 8, Cycle(looks=6, least=0.3)), model, (0,))
    assert len(tokens) == 8
    # two looks with the same horizon (place 4, so e = 5), then only the canvas up to there until it is filled
    sizes = [len(look.canvas) for look in model.asked]
    assert sizes[:5] == [9, 9, 5, 5, 9]
    assert all(max(look.places) < len(look.canvas) for look in model.asked)


def test_a_horizon_that_wanders_is_given_up():
    looks = [{1: (0, 0.5), end: (1, 0.4)} for end in (8, 3, 7, 5)]
    model = Scripted(*looks)
    told(Denoise(Confident(0.9), 8, Cycle(looks=4, least=0.3)), model, (0,))
    assert [len(look.canvas) for look in model.asked][:5] == [9, 9, 9, 9, 6]


def test_if_no_place_is_sure_each_cycle_is_one_place():
    model = Scripted({}, even=0.2)
    told(Denoise(Confident(0.9), 4, Cycle(looks=1, least=1.1)), model, (0,))
    assert [len(look.canvas) for look in model.asked] == [5, 5, 5, 5]


# ---- a sliding window


def test_a_window_of_one_is_left_to_right_and_exact():
    model = table()
    mine = Denoise(Near(), 3, Sliding(1))
    assert total_variation(law_of(mine, model), law_of(Denoise(Confident(2.0), 3, FixedBlocks(1)), model)) < 1e-12
    _, looks, canvases = told(mine, model)
    assert looks == 3
    assert [c.settled for c in canvases][:3] == [2, 3, 4]


def test_the_window_slides_over_what_is_filled_and_hides_the_rest():
    sure = {1: (0, 0.3), 2: (1, 0.97), 3: (2, 0.2), 4: (4, 0.2), 5: (3, 0.99), 6: (0, 0.2)}
    model = Scripted(sure)
    told(Denoise(Near(0.4, 0.0), 6, Sliding(3)), model, (0,))
    windows = [(look.canvas.window, len(look.canvas)) for look in model.asked]
    assert windows[0] == ((1, 4), 4)  # place 2 is filled first, and the window cannot move
    assert windows[1] == ((1, 4), 4)
    assert windows[2] == ((3, 6), 6)  # 1 and 2 are filled, so two more come in
    assert model.asked[2].canvas.tokens[1:3] == (0, 1)


def test_distance_holds_back_what_is_equally_sure():
    model = Scripted(dict.fromkeys(range(1, 7), (0, 0.95)))
    entropy = model.look([LookRequest(None, Look(Canvas.blank((0,), 1)))])[0].peaks[1].entropy
    model.asked.clear()
    near = Denoise(Near(entropy + 0.25, 0.1), 6, Sliding(6))
    assert told(near, model, (0,))[1] == 2  # three at distances 0, 0.1 and 0.2, then the others
    assert told(Denoise(Near(entropy + 0.25, 0.0), 6, Sliding(6)), model, (0,))[1] == 1


# ---- masked again


NOISES = (Capped(4, 0.2), Rescaled(4, 0.7), Looped(10, 0.1, on=0.6, off=0.2, level=0.7), Capped(3, 0.0))


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_masking_again_leaves_the_share_of_filled_places_as_it_was(noise):
    model, engine = Table(2, lambda text: [1, 2]), None
    method = Denoise(Reverse(noise), 1, remask=Renoise(noise))

    def filled(chance):
        nonlocal engine
        engine = Engine({"target": model})
        job = engine.submit(method, (0,), chance, Same(), Stop())
        engine.run()
        shown = [emit.canvas.tokens[1] != HOLE for emit in job.emitted if emit.canvas]
        return tuple(shown[: noise.steps] + [True] * (noise.steps - len(shown)))

    law = Every().law(filled)
    for step in range(noise.steps):
        share = sum(mass for shown, mass in law.items() if shown[step])
        assert share == pytest.approx(noise(step).after, abs=1e-12)
    again = sum(mass for shown, mass in law.items() if list(shown) != sorted(shown))
    assert (again > 0.01) == any(noise(n).mask for n in range(noise.steps))


def test_the_loop_stays_on_its_level():
    noise = Looped(40)
    moments = [noise(n) for n in range(40)]
    loop = [m for m in moments if m.mask]
    assert len(loop) > 15
    assert all(m.before * m.mask == pytest.approx((1 - m.before) * m.fill) for m in loop)  # out as many as in
    assert moments[0].before == 0
    assert moments[-1].after == pytest.approx(1)
    assert all(a.after == pytest.approx(b.before) for a, b in pairwise(moments))


def test_without_masking_again_it_is_ancestral_sampling():
    model = table(2)
    mine = Denoise(Reverse(Capped(3, 0.0)), 2, view=Unchanged(), remask=Renoise(Capped(3, 0.0)))
    base = Denoise(Ancestral(3, last=0.0), 2)
    assert total_variation(law_of(mine, model), law_of(base, model)) < 1e-12
    busy = Denoise(Reverse(Rescaled(3, 0.9)), 2, remask=Renoise(Rescaled(3, 0.9)))
    assert total_variation(law_of(busy, model), law_of(base, model)) > 1e-3


def test_an_unchanged_canvas_is_not_looked_at_again():
    noise = Capped(60, 0.02)
    texts = [
        told(Denoise(Reverse(noise), 3, view=view, remask=Renoise(noise)), table(), (0,), Philox(4), Same())
        for view in (Unchanged(), Denoise.view)
    ]
    (tokens, looks, shown), (every_tokens, every_look, every_shown) = texts
    assert (tokens, [c.tokens for c in shown]) == (every_tokens, [c.tokens for c in every_shown])
    changes = 1 + sum(a.tokens != b.tokens for a, b in pairwise(shown))
    assert looks <= changes + 1 < every_look


def test_the_doubtful_are_masked_sooner():
    canvas = Canvas.blank((0,), 3)
    rule = Doubtful(Even(4)).begin()
    laws = {1: Law.of([0.9, 0.1]), 2: Law.of([0.5, 0.5]), 3: Law.of([0.7, 0.3])}
    first = DenoiseState(canvas, Field(laws), Same(), Philox(0), True)
    filled = rule(first, canvas.fill({1: 0, 2: 0}, Status.DRAFT))
    assert filled.tokens == (0, 0, 0, HOLE)
    second = filled.fill({3: 1}, Status.DRAFT)

    def masked(chance):
        state = DenoiseState(filled, Field(laws), Same(), chance, True)
        after = rule(state, second)
        return after.tokens[1] == HOLE, after.tokens[2] == HOLE, after.tokens[3] == HOLE

    law = Every().law(masked)
    total = math.exp(-0.9) + math.exp(-0.5)  # what this very step has filled is not masked
    most = min(1.0, (1 - 2 / 4) / (1 / 4))
    for place, sure in ((0, 0.9), (1, 0.5)):
        chance = sum(mass for gone, mass in law.items() if gone[place])
        assert chance == pytest.approx(math.exp(-sure) / total * most)
    assert not any(gone[2] for gone in law)


# ---- edits


def test_a_threshold_that_nothing_passes_edits_nothing():
    model = table()
    mine, base = Denoise(Confident(0.5), 2, remask=Edit(1.1)), Denoise(Confident(0.5), 2)
    assert total_variation(law_of(mine, model), law_of(base, model)) < 1e-12
    assert told(mine, model)[:2] == told(base, model)[:2]


def test_a_token_is_replaced_when_the_model_prefers_another():
    model = Scripted({1: (0, 0.99), 2: (1, 0.99)}, {1: (2, 0.95), 2: (3, 0.8)})
    tokens, looks, _ = told(Denoise(Confident(0.9), 2, remask=Edit(0.9)), model)
    assert tokens == (2, 1)
    assert looks == 3  # fill, edit, and one that changes nothing
    assert told(Denoise(Confident(0.9), 2, remask=Edit(0.7)), Scripted(*model.looks))[0] == (2, 3)


def test_edits_end_and_never_touch_the_prompt():
    flips = [dict.fromkeys(range(5), (n % 2, 0.99)) for n in range(40)]
    model = Scripted(*flips)
    _, looks, _ = told(Denoise(Confident(0.9), 3, remask=Edit(0.9, passes=5)), model, (1, 1))
    assert looks == 6
    assert all(min(look.places) >= 2 for look in model.asked)
    _, looks, _ = told(Denoise(Confident(0.9), 4, FixedBlocks(2), remask=Edit(0.9, passes=5)), Scripted(*flips), (1,))
    assert looks == 12  # the passes of each block are its own
    assert told(Denoise(Confident(0.9), 3, remask=Edit(0.9, passes=0)), Scripted(*flips), (1, 1))[1] == 1


def test_holes_behind_the_end_of_the_text_do_not_keep_edits_going():
    model = Scripted({1: (0, 0.99), 2: (4, 0.99)})
    tokens, looks, _ = told(Denoise(Confident(0.9), 6, remask=Edit(0.9)), model, stop=Stop(frozenset({4})))
    assert tokens == (0, 4)
    assert looks == 2


# ---- resampling


def test_resampling_ends_at_a_fixed_point():
    still = Scripted({1: (0, 0.9), 2: (1, 0.9), 3: (2, 0.9)})
    assert told(Denoise(Confident(0.0), 3, remask=Resample(10)), still)[:2] == ((0, 1, 2), 2)
    flips = [dict.fromkeys(range(1, 4), (n % 2, 0.9)) for n in range(40)]
    assert told(Denoise(Confident(0.0), 3, remask=Resample(3)), Scripted(*flips))[:2] == ((1, 1, 1), 4)
    assert told(Denoise(Confident(0.0), 3, remask=Resample(0)), Scripted(*flips))[:2] == ((0, 0, 0), 1)


def test_each_round_of_resampling_has_noise_of_its_own():
    coin = Table(2, lambda text: [1, 1])
    law = law_of(Denoise(Confident(0.0), 1, remask=Resample(2)), coin)
    assert law == pytest.approx({(0,): 0.5, (1,): 0.5})
    # were the draws of two rounds the same, the second look would always be a fixed point
    method = Denoise(Confident(0.0), 1, remask=Resample(2))
    assert {told(method, coin, (0,), Philox(n), Same())[1] for n in range(20)} == {2, 3}


# ---- soft holes


@pytest.mark.parametrize("seed", range(3))
def test_without_weight_it_is_the_calmest_hole_per_look(seed):
    same(Denoise(Settled(0.0), 4, view=Softened(0.0)), Denoise(Quota(4, entropy), 4), seed)


def test_a_model_without_mixtures_is_refined_by_one_look_more():
    model = table()  # what a table says does not depend on how holes look
    plain = told(Denoise(Settled(0.0), 3), model)
    soft = told(Denoise(Settled(0.0), 3, view=Softened(0.2)), model)
    assert soft[0] == plain[0]
    assert soft[1] == plain[1] + 1
    feedback = told(Denoise(Settled(0.0), 3, view=Softened(0.2, looks=0)), model)
    assert feedback[:2] == plain[:2]


def test_holes_look_like_what_was_said_of_them():
    sure = {1: (2, 0.9), 2: (3, 0.5), 3: (1, 0.3)}
    model = Scripted(sure)
    told(Denoise(Settled(0.0), 3, view=Softened(0.2, nucleus=0.8)), model)
    first, second, third, fourth = model.asked
    assert not first.soft
    assert [len(look.canvas.holes) for look in model.asked] == [3, 3, 2, 1]  # nothing is filled while it refines
    assert set(second.soft) == {1, 2, 3}
    assert set(third.soft) == {2, 3}  # 1 is filled now
    assert set(fourth.soft) == {3}
    peaks = model._law(2, 0.9), model._law(3, 0.5)
    for place, law in zip((1, 2), peaks, strict=True):
        h = -sum(p * math.log(p) for p in law.p.tolist())
        assert second.soft[place].weight == pytest.approx(0.2 * (1 - h / math.log(6)))
    assert second.soft[1].law.p.tolist() == [0, 0, 1, 0, 0, 0]  # the nucleus of 0.8


def test_refining_goes_on_while_laws_move_and_no_further_than_told():
    moving = [dict.fromkeys(range(1, 4), (n % 5, 0.9)) for n in range(40)]
    model = Scripted(*moving)
    told(Denoise(Settled(0.0), 3, view=Softened(0.2, looks=7)), model)
    assert [len(look.canvas.holes) for look in model.asked] == [3] * 8 + [2, 1]
    model = Scripted(*moving[:4])  # the fifth look says what the fourth did
    told(Denoise(Settled(0.0), 3, view=Softened(0.2, looks=7)), model)
    assert [len(look.canvas.holes) for look in model.asked] == [3] * 5 + [2, 1]


def test_laws_at_rest_are_all_filled():
    still = Scripted({i: (i, 0.6) for i in range(1, 5)})
    tokens, looks, _ = told(Denoise(Settled(0.1), 4), still)
    assert (tokens, looks) == ((1, 2, 3, 4), 2)
    moving = Scripted(*[dict.fromkeys(range(1, 5), (n % 5, 0.9)) for n in range(40)])
    assert told(Denoise(Settled(0.1), 4), moving)[1] == 4
    assert (
        told(Denoise(Settled(0.1), 4, FixedBlocks(2)), still)[1] == 4
    )  # each block has a look of its own to begin with


# ---- an end foreseen


def test_a_floor_that_nothing_reaches_cuts_nothing():
    same(Denoise(Confident(0.6), 4, Foreseen(2, 1.1, 1.1, ends={0, 1, 2})), Denoise(Confident(0.6), 4, FixedBlocks(2)))


def test_the_canvas_shrinks_to_the_surest_end_but_never_into_the_text():
    end = 4
    first = {1: (0, 0.95), 2: (1, 0.3), 5: (end, 0.6), 7: (end, 0.7), 8: (end, 0.4), 3: (end, 0.3)}
    model = Scripted(first, {1: (0, 0.95), 2: (1, 0.95), 3: (end, 0.55)}, dict.fromkeys(range(3, 9), (end, 0.99)))
    tokens, _, _ = told(
        Denoise(Confident(0.9), 8, Foreseen(2, 0.9, 0.5, ends={end})), model, stop=Stop(frozenset({end}))
    )
    assert [len(look.canvas) for look in model.asked] == [9, 8, 4]  # 7 is the surest of all, then 3 of what is left
    assert tokens == (0, 1, end)


def test_within_the_block_the_first_sure_end_counts():
    end = 4
    model = Scripted({1: (0, 0.3), 2: (end, 0.92), 3: (end, 0.99), 6: (end, 0.995)}, {1: (0, 0.9)})
    told(Denoise(Confident(0.95), 6, Foreseen(3, 0.9, 0.5, ends={end})), model, stop=Stop(frozenset({end})))
    assert len(model.asked[1].canvas) == 3


def test_what_was_cut_comes_back_if_the_text_does_not_end():
    end = 4
    model = Scripted({1: (0, 0.9), 2: (end, 0.6)}, {2: (1, 0.9)}, {3: (1, 0.9), 4: (1, 0.9)})
    tokens, _, _ = told(
        Denoise(Confident(0.8), 4, Foreseen(2, 0.9, 0.5, ends={end})), model, stop=Stop(frozenset({end}))
    )
    assert [len(look.canvas) for look in model.asked] == [5, 3, 5]
    assert len(tokens) == 4


def test_ends_come_from_the_vocabulary():
    class Ending(Spelt):
        eos = frozenset({3})

    assert Denoise(Confident(0.9), 4, Foreseen()).fit(Ending()).blocks.ends == {3}
    with pytest.raises(BadRequest, match="ends="):
        told(Denoise(Confident(0.9), 4, Foreseen()), table())
