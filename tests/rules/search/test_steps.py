"""Speculation by steps: the limits of its threshold, one question per step, and the ready-made judge."""

import random

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.verifier import sample_match
from unspool.core.warp import Same, Temperature, TopK
from unspool.models.vocabulary import Vocabulary
from unspool.recipes.methods import method as named
from unspool.rules.decode import Judge, Speculate, Steps, plain
from unspool.rules.draft import Chain, Lookup
from unspool.rules.verify import rejection
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

JUDGE = Judge(ask=(2, 2), marks=(0, 1))  # a mark is P(1) of P(0) + P(1)
PIECE = {0: b"a", 1: b"b", 2: b"c"}.__getitem__


def table(seed: int, vocab: int = 3, order: int = 2) -> Table:
    def weights(text):
        rng = random.Random(repr((seed, text[-order:])))
        return [rng.random() ** 3 for _ in range(vocab)]

    return Table(vocab, weights)


MODELS = {"target": table(1), "draft": table(2)}


def decode(method, models=MODELS, warp=None, seed=0, **stop):
    engine = Engine(models)
    job = engine.submit(method, (0, 1), Philox(seed), warp or Same(), Stop(piece=PIECE, **{"most": 24, **stop}))
    engine.run()
    return job.result(), job.trace


def law(method, models, warp):
    def program(chance):
        engine = Engine(models)
        job = engine.submit(method, (0, 1), chance, warp, Stop(most=3, piece=PIECE, tokens=frozenset({2})))
        engine.run()
        return job.result()

    return Every().law(program)


@pytest.mark.parametrize("stop", [{}, {"tokens": frozenset({2})}, {"strings": ("ab",)}], ids=str)
def test_above_the_highest_mark_every_step_is_the_base_models(stop):
    for seed in range(4):
        done, trace = decode(Steps(JUDGE, 1.01, longest=4, end="b"), seed=seed, **stop)
        assert done == decode(plain(), seed=seed, **stop)[0]
        assert not any(trace.accepted)


def test_at_0_the_text_has_the_law_of_the_small_model():
    small, warp = {"target": MODELS["draft"]}, TopK(2)
    found = law(Steps(JUDGE, 0, longest=2, end="b"), MODELS, warp)
    assert total_variation(found, law(plain(), small, warp)) < 1e-12
    greedy, _ = decode(Steps(JUDGE, 0, longest=5, end="b"), warp=Temperature(0.0))
    assert greedy == decode(plain(), small, Temperature(0.0))[0]


def test_a_step_costs_the_base_model_one_forward_and_is_not_read_twice():
    done, trace = decode(Steps(JUDGE, 0, longest=6, end="never"))
    assert trace.forwards["target"] == 24 / 6
    assert trace.accepted == {6: 4}
    assert len(done.tokens) == 24


@pytest.mark.parametrize("seed", range(6))
def test_steps_end_at_their_border_and_are_kept_or_written_anew_as_a_whole(seed):
    asked = []

    class Marked(Judge):
        def mark(self, law: Law) -> float:
            asked.append(super().mark(law))
            return asked[-1]

    models = {"target": table(1, order=6), "draft": table(2)}
    done, trace = decode(Steps(Marked((2, 2), (0, 1)), 0.5, longest=5, end="b"), models, seed=seed, most=40)
    assert len(done.tokens) == 40
    kept = sum(mark >= 0.5 for mark in asked)
    assert sum(rounds for accepted, rounds in trace.accepted.items() if accepted) == kept
    assert 0 < kept < len(asked)
    assert trace.accepted_tokens < trace.drafted


def test_the_first_steps_can_be_the_base_models():
    own, _ = decode(plain())
    done, trace = decode(Steps(JUDGE, 0, longest=6, first=2, end="never"))
    assert done.tokens[:12] == own.tokens[:12]
    assert trace.drafted == 12


def test_where_the_question_has_no_room_the_base_model_writes():
    done, trace = decode(Steps(JUDGE, 0, longest=9, end="never"), spare=1, most=9)
    assert trace.drafted == 9
    assert not any(trace.accepted)
    assert done == decode(plain(), most=9)[0]


def test_a_draft_model_with_nothing_to_say_leaves_the_step_to_the_base_model():
    silent = {**MODELS, "draft": Table(3, lambda text: [0, 0, 0])}
    assert decode(Steps(JUDGE, 0, longest=3), silent)[0] == decode(plain())[0]


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"


def chatting(words: str, template: str | None = TEMPLATE) -> Vocabulary:
    tokens = sorted({*words, *"<>/"})
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, []))
    return Vocabulary(tokenizer, [t.encode() for t in tokens], special=[], eos=[], chat_template=template)


def test_the_ready_made_judge_closes_the_turn_and_asks_for_a_digit():
    words = chatting("".join(map(chr, range(32, 127))))
    judge = Judge.of(words, "Good?")
    assert words.decode(judge.ask) == "</><user>Good?</><assistant>"
    assert words.decode(judge.marks) == "0123456789"
    assert judge.mark(Law.point(judge.marks[7])) == 7
    half = Law.of([0.5 * (x in (judge.marks[2], judge.marks[5])) for x in range(words.size)])
    assert judge.mark(half) == pytest.approx(3.5)
    assert judge.mark(Law.point(0)) == 0  # no digit at all


def test_what_the_judge_lacks_is_said():
    with pytest.raises(BadRequest, match="no token for each digit"):
        Judge.of(chatting("abc"))
    with pytest.raises(BadRequest, match="no chat template"):
        Judge.of(chatting("abc", None))
    with pytest.raises(BadRequest, match="needs judge="):
        decode(Steps())
    for spec in ("steps:threshold=-1", "steps:longest=0", "steps:first=-1"):
        with pytest.raises(BadRequest, match="expected"):
            named(spec)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_default_model_reasons_by_name(smollm2):
    both = LM("twice", smollm2.model, smollm2.vocabulary, smollm2)
    chat, short = [{"role": "user", "content": "What is 17 times 23? Show your work."}], Settings(max_tokens=12)
    own = smollm2.generate(chat, short).tokens
    output = both.generate(chat, short, "steps:threshold=0,longest=8")
    assert output.tokens == own
    assert output.trace.forwards["target"] == output.trace.rounds  # one per step, whose end may be a blank line
    assert output.trace.rounds <= 4
    assert both.generate(chat, short, "steps:threshold=9.5,longest=8").tokens == own


@pytest.mark.parametrize(
    "inside", [Speculate(Lookup(1, 1, 3)), Speculate(Chain(3), rejection)], ids=["lookup", "chain"]
)
def test_the_base_model_may_speculate_in_its_own_steps(inside):
    """Above the highest mark every step is its own: seed for seed with a SEED rule, and in law with any exact one."""
    steps = Steps(JUDGE, 1.01, longest=4, end="b", inside=inside)
    slower, faster = decode(Steps(JUDGE, 1.01, longest=4, end="b"), most=40), decode(steps, most=40)
    assert faster[1].forwards["target"] < slower[1].forwards["target"]
    if inside.verify is sample_match:
        for seed in range(4):
            for stop in ({}, {"tokens": frozenset({2})}, {"strings": ("ab",)}):
                assert decode(steps, seed=seed, **stop)[0] == decode(plain(), seed=seed, **stop)[0]
    assert total_variation(law(steps, MODELS, Same()), law(plain(), MODELS, Same())) < 1e-12


def test_what_drafts_inside_is_named():
    assert named("steps:inside=chain").inside == named("chain")
    assert named("specreason").inside == Speculate()
    with pytest.raises(BadRequest, match="steps:inside"):
        named("steps:inside=beam")
