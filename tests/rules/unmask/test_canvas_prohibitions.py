"""What a request forbids or discourages, on canvases: by what stands on both sides, in whatever order it came there."""

from __future__ import annotations

from random import Random

import pytest
import torch
from canvases import Noise, Scripted, counted, law_of, told
from letters import Letters
from proposing import ended

from unspool.api.settings import Settings
from unspool.core.canvas import HOLE, Canvas, Field, Status
from unspool.core.chance import Philox, total_variation
from unspool.core.errors import BadRequest, EmptyLaw
from unspool.core.law import NEVER, Law
from unspool.core.warp import (
    BadWords,
    Frequency,
    LogitBias,
    MinTokens,
    NoRepeatNgram,
    Presence,
    Repetition,
    Same,
    Temperature,
)
from unspool.core.warp.warp import Warp
from unspool.loops.denoise_state import DenoiseState
from unspool.loops.guard import Careful
from unspool.recipes.methods import fitted, runnable
from unspool.rules.constrain import regex
from unspool.rules.decode import AnyOrder, Deliberate, Denoise, Fragments, Insert, Slots
from unspool.rules.decode.refill import GivenText
from unspool.rules.unmask import Confident, Edit
from unspool.runtime.cache.table_model import Joint
from unspool.runtime.engine.engine import Engine

WORDS = Letters(tuple("abcdefgh \n"), controls=0, ends=2)
END = 10
UNMASK = [entry.name for entry in runnable() if entry.family == "unmask" and entry.name != "filtered"]


def grams(text, n):
    return [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]


def written(name, settings, seed):
    engine = Engine({"target": Noise(WORDS.size, seed)})
    method = counted(fitted(name, WORDS), 300)
    job = engine.submit(method, (0, 1), Philox(seed), settings.warp(WORDS), settings.stop_rule(WORDS))
    engine.run()
    return job.result().tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", [*UNMASK, "confident:threshold=0.1", "edit:threshold=0.3,edit=0.1,passes=3"])
def test_nothing_forbidden_is_written_in_any_order(name, temperature):
    settings = Settings(
        bad_words=("h", "ab", "cd", "ef", "dc", "fg", "gg"),
        no_repeat_ngram_size=2,
        min_tokens=4,
        max_tokens=7,
        temperature=temperature,
    )
    for seed in range(2):
        tokens = written(name, settings, seed)
        text = (0, 1, *tokens)
        assert 7 not in tokens
        assert not {(0, 1), (2, 3), (4, 5), (3, 2), (5, 6), (6, 6)} & {*grams(text[1:], 2)}
        assert len(set(grams(text, 2))) == len(text) - 1
        assert not WORDS.eos & set(tokens[:3])


def test_an_end_is_forbidden_by_its_place_and_not_by_what_stands():
    """The last place is filled first, when nothing stands before it; the model wants an end there, and gets it."""
    model = Scripted({4: (END, 0.99), 1: (0, 0.5), 2: (1, 0.4), 3: (2, 0.3)}, vocab=WORDS.size)
    warp = MinTokens(3, {END}) | Temperature(0.0)
    assert told(Denoise(Confident(0.9), 4), model, warp=warp)[0] == (0, 1, 2, END)
    early = Scripted({1: (END, 0.99), 2: (1, 0.4), 3: (2, 0.3), 4: (3, 0.3)}, vocab=WORDS.size)
    assert END not in told(Denoise(Confident(0.9), 4), early, warp=warp)[0][:3]


# ---- by all texts


def canvases(count, vocab, size):
    random = Random(5)
    for _ in range(count):
        tokens = [random.choice((HOLE, *range(vocab))) for _ in range(size)]
        place = random.randrange(2, size)
        tokens[place] = HOLE
        yield tuple(max(0, x) if i < 2 else x for i, x in enumerate(tokens)), place


def put(tokens, place, token):
    return (*tokens[:place], token, *tokens[place + 1 :])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_token_is_banned_if_and_only_if_it_repeats_what_stands(n):
    for tokens, place in canvases(300, 3, 8):
        banned = NoRepeatNgram(n).beside(tokens, 2, place).tokens
        for token in range(3):
            row = put(tokens, place, token)
            known = [gram for gram in grams(row, n) if HOLE not in gram]
            new = [g for i, g in enumerate(grams(row, n)) if i <= place < i + n and HOLE not in g]
            assert (token in banned) == any(known.count(gram) > 1 for gram in new), (tokens, place, token)


def test_a_token_is_banned_if_and_only_if_it_completes_a_word():
    words = ((1, 2), (0, 0, 1), (2, 2), (2, 1, 0))
    for tokens, place in canvases(300, 3, 8):
        banned = BadWords(words).beside(tokens, 2, place).tokens
        for token in range(3):
            row = put(tokens, place, token)
            there = ((word, i) for word in words for i in range(len(row)) if i <= place < i + len(word))
            assert (token in banned) == any(row[i : i + len(word)] == word for word, i in there)


@pytest.mark.parametrize("warp", [Repetition(2.0), Frequency(1.0), Presence(1.0)], ids=lambda w: type(w).__name__)
def test_a_penalty_counts_what_stands_on_both_sides(warp):
    canvas = Canvas.blank((0,), 3).fill({1: 1, 3: 2})
    even = Law(torch.ones(4, dtype=torch.float64))
    law = DenoiseState(canvas, Field({2: even}), warp, Philox(0)).law(2)
    assert law[3] > law[1] == pytest.approx(law[2])
    assert (law[0] < law[3]) == isinstance(warp, Repetition)  # the prompt counts for it alone


# ---- what was filled together, and second thoughts


def test_two_tokens_of_one_look_are_not_a_forbidden_pair():
    model = Scripted({1: (1, 0.8), 2: (2, 0.9)}, {1: (3, 0.8)})
    tokens, looks, _ = told(Denoise(Confident(0.5), 2), model, warp=BadWords(((1, 2),)) | Temperature(0.0))
    assert looks == 1
    assert tokens[1] == 2
    assert tokens[0] != 1


def test_an_edit_does_not_make_a_forbidden_pair():
    canvas = Canvas.blank((0,), 2).fill({1: 3, 2: 2}, Status.DRAFT)
    state = DenoiseState(canvas, Field({i: Law.of([1, 1, 1, 1]) for i in (1, 2)}), BadWords(((1, 2),)), Philox(0), True)
    assert ended(Careful().mend(state, canvas, canvas.fill({1: 1}, Status.DRAFT))).tokens == (0, 3, 2)
    assert ended(Careful().mend(state, canvas, canvas.fill({1: 0}, Status.DRAFT))).tokens == (0, 0, 2)


def test_an_edit_never_puts_what_the_request_forbids_everywhere():
    flips = [{1: (1, 0.95)}, {1: (2, 0.95)}, {1: (2, 0.95)}]
    method = Denoise(Confident(0.9), 1, remask=Edit(0.9))
    assert told(method, Scripted(*flips))[0] == (2,)
    assert told(method, Scripted(*flips), warp=LogitBias({2: NEVER}) | Temperature(0.0))[0] == (1,)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_place_that_nothing_may_stand_at_is_an_error_that_says_so(temperature):
    """Both neighbours stand before it is seen that no token may stand between them."""
    model = Scripted({1: (0, 0.9), 3: (0, 0.9)}, vocab=3)
    warp = BadWords(((0, 0), (0, 1), (2, 0))) | Temperature(temperature)
    with pytest.raises(EmptyLaw, match="every token is forbidden here"):
        told(Denoise(Confident(0.8), 3), model, prompt=(1,), warp=warp)


# ---- what is refused


@pytest.mark.parametrize(
    "warp", [BadWords(((1, 2),)), NoRepeatNgram(2), MinTokens(1, {END})], ids=lambda warp: type(warp).__name__
)
@pytest.mark.parametrize(
    "loop",
    [AnyOrder(2, 2), Deliberate(GivenText((0,))), Fragments(GivenText((0,)), {0}), Insert(3), Slots(2)],
    ids=lambda loop: type(loop).__name__,
)
def test_a_loop_without_a_guard_refuses_what_it_cannot_keep_to(loop, warp):
    with pytest.raises(BadRequest, match="cannot keep to bad_words, no_repeat_ngram_size or min_tokens"):
        told(loop, Scripted({}), warp=warp | Temperature(0.5))


@pytest.mark.parametrize(
    "given",
    [{"bad_words": ("ab",)}, {"no_repeat_ngram_size": 2}, {"min_tokens": 2}, {"logit_bias": {0: NEVER}}],
    ids=str,
)
def test_a_constraint_and_a_prohibition_beside_it_are_refused(given):
    pytest.importorskip("llguidance")
    with pytest.raises(BadRequest, match="cannot both be kept on a canvas"):
        written("confident", Settings(constraint=regex("[a-h]*"), max_tokens=4, **given), 0)


def test_a_memory_of_what_was_read_before_is_refused():
    class Reading(Same):
        """A stranger with a memory."""

        def step(self, state, token):
            return token

    assert Reading.step is not Warp.step
    for method in (Denoise(Confident(0.9), 2), Slots(2)):
        with pytest.raises(BadRequest, match="Reading depends on all the text before a token"):
            told(method, Scripted({}), warp=Temperature(0.5) | Reading())


def test_what_may_not_stand_is_drawn_again_with_a_number_of_its_own():
    """Two holes at one look: the surer one stands, and the other is drawn again if it may not stand beside it."""
    first, second = (0.6, 0.3, 0.1), (0.5, 0.3, 0.2)
    model = Joint(3, {(2, a, b): first[a] * second[b] for a in range(3) for b in range(3)})
    expected = {(a, b): first[a] * second[b] for a in range(3) for b in range(3)}
    refused = expected.pop((0, 0))  # which is never written
    for b in (1, 2):
        expected[0, b] += refused * second[b] / (second[1] + second[2])
    law = law_of(Denoise(Confident(0.0), 2), model, (2,), warp=BadWords(((0, 0),)))
    assert total_variation(law, expected) < 1e-12
