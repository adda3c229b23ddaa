"""Searches find what they say they find: by enumeration on tables, against transformers, and within their budgets."""

import itertools
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from letters import Letters
from listed import Listed
from toy import Toy, logits_of
from truth import law_of_text

from unspool.api.settings import Settings
from unspool.core.asks import Done, Emit, GiveWay
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.claim import ARGMAX, SEED
from unspool.core.errors import BadRequest, BadScores, EmptyLaw
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp import Repetition, Same, Temperature
from unspool.proof import prove
from unspool.recipes.methods import fitted, runnable
from unspool.recipes.methods import method as named
from unspool.rules.constrain import Constrained, FullMask, Potential, choices, keywords
from unspool.rules.decode import Judge
from unspool.rules.search import (
    AStar,
    Beam,
    Branch,
    Cautious,
    Chaotic,
    Diverse,
    Foresight,
    LookaheadTwist,
    Mcts,
    Neurologic,
    Several,
    Smc,
    Stochastic,
    choose,
)
from unspool.rules.search.beam_cache import BeamCache
from unspool.rules.search.candidates import leading
from unspool.rules.search.length_norm import Gnmt, Power, SearchOutlook, enough, likely, sure
from unspool.rules.search.mark import Graded, JudgeMark, Leaning, LikelihoodMark, RewardMark
from unspool.rules.search.reward import reward_of
from unspool.rules.search.rollout import Border
from unspool.rules.search.search_text import Text, without_greedy
from unspool.rules.search.several import divergence_of_best
from unspool.rules.search.stochastic import weights
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

PROMPT = (0,)


def rows_of(text, vocab, salt=0):
    """Weights that look random and are the same every time."""
    generator = torch.Generator().manual_seed(hash((salt, *text)) & 0x7FFFFFFF)
    return (torch.rand(vocab, generator=generator, dtype=torch.float64) + 0.05).tolist()


def table(vocab=3, salt=0):
    return Table(vocab, lambda text: rows_of(text, vocab, salt))


def run(method, model, stop, warp=None, prompt=PROMPT, chance=None):
    engine = Engine({"target": model})
    job = engine.submit(method, prompt, chance or Philox(0), warp or Same(), stop)
    engine.run()
    return job


def done(method, model, stop, **more):
    return run(method, model, stop, **more).result()


def texts_of(model, stop, prompt=PROMPT):
    """Every whole text with its log-probability."""
    found = {}

    def visit(tokens, tail, logp):
        for token, p in enumerate(model.law(prompt + tokens).p.tolist()):
            _, reason, after, _ = stop.cut(tail, (token,))
            if reason:
                found[(*tokens, token)] = logp + math.log(p)
            else:
                visit((*tokens, token), after, logp + math.log(p))

    visit((), stop.start(), 0.0)
    return found


# ---- beam search


@pytest.mark.parametrize("salt", range(4))
@pytest.mark.parametrize("length", [Power(0.0), Power(1.0), Gnmt(0.7)])
def test_a_beam_for_every_text_finds_the_best_of_all(salt, length):
    model, stop = table(salt=salt), Stop(tokens=frozenset({2}), most=4)
    every = {text: logp / length(len(text)) for text, logp in texts_of(model, stop).items()}
    seen = []
    got = done(Beam(3**4, length, sure, watch=seen.extend), model, stop)
    assert got.tokens == max(every, key=every.get)
    # and all others, in order
    assert [text.tokens for text in seen] == sorted(every, key=lambda text: -every[text])


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 1.0])
def test_who_wants_to_be_sure_asks_for_the_best_score_that_is_still_possible(alpha):
    """Below 0 a text loses with every token, so the best that an unfinished one can come to is where it is now."""
    length = Power(alpha)
    best = max(-1.0 / length(2), -1.0 / length(10))  # of a text with log p −1 after 2 of at most 10 tokens
    assert sure(SearchOutlook(-1.0, 2, 10, best - 0.1, length))
    assert not sure(SearchOutlook(-1.0, 2, 10, best + 0.1, length))


def test_as_many_beams_go_on_however_many_tokens_end_a_text():
    """Three ends are the likeliest tokens, and the best text begins with the fifth."""
    first, sure_end, vague = [16, 14, 20, 20, 20, 10], [1, 1, 994, 1, 1, 2], [20, 20, 20, 15, 15, 10]
    model = Table(6, lambda text: first if text == PROMPT else sure_end if text[-1] == 1 else vague)
    stop = Stop(tokens=frozenset({2, 3, 4}), most=3)
    assert done(Beam(2, Power(1.0), sure), model, stop).tokens == (1, 2)


def test_laws_are_those_of_the_texts_however_far_these_have_come_since():
    """A search may go on with texts that are several tokens longer than anything that is kept, and hold others."""
    model = table()
    steps = [
        ([()], []),
        ([(0,), (1, 2)], []),
        ([(1, 2, 0, 1), (0, 2, 2), (0,)], [(1, 2)]),
        ([(1, 2, 2, 2, 0), (0, 2, 2)], [(0,)]),
        ([(0, 1, 1)], []),
    ]

    def writing(text, chance, warp, stop):
        grove, begin = BeamCache(), Text.begin(text, warp, stop)

        def having(tokens):
            found = begin
            for token in tokens:
                law = model.law(found.prefix.text)
                found = found.then(token, law, law, stop)
            return found

        for live, held in steps:
            laws = yield from grove.score([having(tokens) for tokens in live], [having(tokens) for tokens in held])
            for tokens, law in zip(live, laws, strict=True):
                assert torch.equal(law.p, model.law(text + tokens).p)
        return Done((0,), "length")

    assert done(writing, model, Stop(most=8)).tokens == (0,)


def test_a_second_beam_sees_past_a_garden_path():
    weights = {(0,): (6, 4), (0, 0): (5, 5), (0, 1): (0, 1)}  # the likelier first token leads to less likely texts
    model, stop = Table(2, lambda text: weights[text]), Stop(most=2)
    assert done(Beam(1), model, stop).tokens == (0, 0)
    assert done(Beam(2), model, stop).tokens == (1, 1)


def test_beams_fork_inside_a_real_cache_and_laws_come_with_the_text():
    toy, stop = Toy(vocab=5, room=200), Stop(tokens=frozenset({1}), most=6)
    seen = []
    job = run(Beam(3, watch=seen.extend), CachedModel(toy), stop)
    (emit,) = [emit for emit in job.emitted if isinstance(emit, Emit)]
    logp = sum(law.logprob(x) for x, law in zip(emit.tokens, emit.after, strict=True))
    assert logp == pytest.approx(seen[0].logp, abs=1e-9)
    alone = Table(5, lambda text: logits_of(text, 5).exp().tolist())
    assert done(Beam(3), alone, stop) == job.result()
    assert toy.slots.in_use == 0


def test_the_budget_in_rows_bounds_what_the_model_reads():
    stop = Stop(most=8)
    for rows in (1, 2, 7, 12):
        toy = Toy(vocab=5, room=300)
        job = run(Beam(3, rows=rows), CachedModel(toy), stop, prompt=(0, 1, 2))
        assert toy.computed <= rows + 2  # the prompt but its last token comes on top
        assert job.result().reason == "rows"
        assert 1 <= len(job.result().tokens) < 8


def test_what_was_found_is_told_even_if_the_search_is_cancelled():
    seen = []
    engine = Engine({"target": table()})
    job = engine.submit(Beam(2, watch=seen.extend), PROMPT, Philox(0), Same(), Stop(most=50))
    for _ in range(5):
        engine.step()
    engine.cancel(job)
    assert len(seen) == 2
    assert len(seen[0].tokens) == 4


def test_a_temperature_of_zero_does_not_freeze_a_search():
    model, stop = table(salt=5), Stop(most=4)
    assert done(Beam(81), model, stop, warp=Temperature(0)) == done(Beam(81), model, stop)
    warp = Repetition(1.5) | Temperature(0)
    assert without_greedy(warp) == Repetition(1.5)
    assert without_greedy(Temperature(0) | Temperature(0)) == Same()
    after = Temperature(0) | Repetition(1.5)  # what follows was made for frozen laws
    assert without_greedy(after) is after


def test_of_equals_the_earlier_text_and_the_lower_token_lead():
    worth = torch.tensor([[1.0, 3.0, 3.0, -math.inf], [3.0, 0.0, -math.inf, 3.0]])
    assert [(c.row, c.token) for c in leading(worth, 3)] == [(0, 1), (0, 2), (1, 0)]
    assert len(leading(worth, 50)) == 6  # what is impossible never leads


def test_patience_is_what_transformers_calls_early_stopping():
    now = SearchOutlook(best=-4.0, tokens=4, most=8, worst=-0.8, length=Power(1.0))
    assert not enough(now)
    assert not likely(now)  # -1.0 if it ended now
    assert sure(now)  # -0.5 if it got longer for nothing
    assert not sure(now._replace(length=Power(0.0), worst=-4.0))


def test_a_constrained_beam_writes_only_what_is_allowed():
    model, stop = table(vocab=3, salt=2), Stop(tokens=frozenset({2}), most=6)
    allowed = frozenset({(0, 0, 2), (1, 0, 1, 2), (1, 2)})
    logp = texts_of(model, stop)
    seen = []
    got = done(Beam(8, Power(0.0), sure, watch=seen.extend), model, stop, warp=Constrained(Listed(allowed, 3)))
    assert {text.tokens for text in seen} == allowed
    assert got.tokens in allowed
    # Under local masking a forced token costs nothing, so the best text is by masked laws
    masked = {text.tokens: text.logp for text in seen}
    assert all(masked[text] >= logp[text] for text in allowed)


@pytest.mark.parametrize("search", [Beam(3), Diverse(3, 1, 0.0), Diverse(1, 3)])
def test_as_many_different_texts_are_found_as_there_are_beams(search):
    """Although two tokens end a text, and the likeliest three continuations are all of them ends of two texts."""
    weights = {(0,): (5, 3, 2, 0, 0), (0, 0): (0, 0, 0, 5, 4), (0, 1): (0, 0, 0, 5, 4), (0, 2): (0, 0, 0, 5, 4)}
    model, stop, seen = Table(5, lambda text: weights[text]), Stop(tokens=frozenset({3, 4}), most=4), []
    done(replace(search, length=Power(0.0), watch=seen.extend), model, stop)
    wanted = 1 if getattr(search, "groups", 1) > 1 else 3  # groups that nothing keeps apart write one text
    assert [text.tokens for text in seen] == [(0, 3), (1, 3), (2, 3)][:wanted]


def test_a_search_without_any_text_left_says_so():
    nothing = Constrained(Listed(frozenset(), 3))
    with pytest.raises(EmptyLaw, match="no text left"):
        done(Beam(2), table(), Stop(most=3), warp=nothing)


# ---- diverse beam search


def test_one_group_or_no_fine_is_beam_search():
    model, stop = table(vocab=4, salt=3), Stop(tokens=frozenset({3}), most=5)
    assert done(Diverse(1, 3, 5.0), model, stop) == done(Beam(3), model, stop)
    seen = []
    run(Diverse(3, 2, 0.0, watch=seen.extend), model, stop)
    assert len({text.tokens for text in seen}) == 2  # the same search three times


def test_with_a_heavy_fine_groups_write_different_tokens_at_every_step():
    model, stop = table(vocab=4, salt=3), Stop(most=5)
    seen = []
    run(Diverse(4, 1, 1e6, watch=seen.extend), model, stop)
    assert len(seen) == 4
    assert all(len(set(column)) == 4 for column in zip(*(text.tokens for text in seen), strict=True))
    assert done(Beam(1), model, stop).tokens in {text.tokens for text in seen}  # the first group is not fined
    assert [text.logp for text in seen] == sorted((text.logp for text in seen), reverse=True)  # ranked without fines


# ---- stochastic beam search


def without_replacement(masses, count):
    """The law of the first `count` of draws without replacement."""
    law = {}
    for order in itertools.permutations(masses, min(count, len(masses))):
        p, left = 1.0, 1.0
        for text in order:
            p *= masses[text] / left
            left -= masses[text]
        law[order] = p
    return law


@pytest.mark.parametrize("width", [1, 2, 3])
def test_stochastic_beams_are_draws_without_replacement(width):
    model, stop = table(vocab=2, salt=1), Stop(tokens=frozenset({1}), most=3)

    def order(chance):
        seen = []
        run(Stochastic(width, watch=seen.extend), model, stop, chance=chance)
        return tuple(text.tokens for text in seen)

    got = Every().law(order)
    masses = {text: math.exp(logp) for text, logp in texts_of(model, stop).items()}
    truth = without_replacement(masses, width)
    assert set(got) == set(truth)
    assert max(abs(got[o] - truth[o]) for o in truth) < 1e-12


def test_estimates_from_stochastic_beams_are_unbiased():
    model, stop = table(vocab=2, salt=4), Stop(most=2)
    value = {text: i + 1.5 for i, text in enumerate(texts_of(model, stop))}

    def estimate(chance):
        seen = []
        run(Stochastic(3, watch=seen.extend), model, stop, chance=chance)
        return sum(w * value[text.tokens] for w, text in zip(weights(seen), seen, strict=True))

    mean = sum(mass * x for x, mass in Every().law(estimate).items())
    truth = sum(math.exp(logp) * value[text] for text, logp in texts_of(model, stop).items())
    assert mean == pytest.approx(truth, abs=1e-12)


def test_more_stochastic_beams_than_texts_give_every_text_once():
    model, stop = table(vocab=2), Stop(most=2)
    seen = []
    run(Stochastic(9, watch=seen.extend), model, stop)
    assert sorted(text.tokens for text in seen) == [(0, 0), (0, 1), (1, 0), (1, 1)]


# ---- transformers


@pytest.fixture(scope="module")
def theirs():
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(3)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.LlamaConfig(vocab_size=12, initializer_range=0.6, **ends, **shape)
    return transformers.LlamaForCausalLM(config).double().eval()


@pytest.fixture(scope="module")
def theirs_as_table(theirs):
    with torch.no_grad():
        yield Table(12, lambda text: theirs(torch.tensor([text])).logits[0, -1].softmax(0).tolist())


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize(("early", "patience"), [(True, enough), (False, likely), ("never", sure)])
def test_beams_are_those_of_transformers(theirs, theirs_as_table, alpha, early, patience):
    prompt, width = (1, 7, 3), 3
    out = theirs.generate(
        torch.tensor([prompt]),
        num_beams=width,
        num_return_sequences=width,
        length_penalty=alpha,
        early_stopping=early,
        max_new_tokens=7,
        do_sample=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    seen = []
    beam = Beam(width, Power(alpha), patience, watch=seen.extend)
    run(beam, theirs_as_table, Stop(tokens=frozenset({2}), most=7), prompt=prompt)
    for ours, tokens, score in zip(seen, out.sequences, out.sequences_scores, strict=True):
        written = tuple(tokens.tolist()[len(prompt) :])  # padded to the longest
        assert ours.tokens == written[: len(ours.tokens)]
        assert set(written[len(ours.tokens) :]) <= {0, 2}
        assert ours.score == pytest.approx(float(score), abs=1e-5)


def test_searches_by_name_with_options():
    assert named("beam:width=7,alpha=0.5,length=gnmt,patience=sure,rows=90") == Beam(7, Gnmt(0.5), sure, 90)
    assert named("diverse:groups=2,width=2").texts == 4
    with pytest.raises(BadRequest, match="patience is 'forever'; expected one of enough, likely, sure"):
        named("beam:patience=forever")
    with pytest.raises(BadRequest, match="beam:width is 0"):
        named("beam:width=0")
    with pytest.raises(BadRequest, match="rows is -1"):
        named("stochastic:rows=-1")


# ---- branching, looking ahead, and choosing


def letters(**more):
    """A stop over tokens that are spelt a, b, c …"""
    return Stop(piece=lambda token: bytes([97 + token]), **more)


def law_of(method, model, stop, warp=None):
    return Every().law(lambda chance: done(method, model, stop, warp=warp, chance=chance))


PAUSE = Border(("b",), 3)


def test_one_trial_or_no_doubt_is_plain_decoding_seed_for_seed():
    assert prove(Branch(Cautious(1), border=PAUSE), SEED, quick=True).ok
    sure_of_itself = Cautious(5, low=50.0, high=60.0)
    assert prove(Branch(sure_of_itself, border=PAUSE), SEED, quick=True).ok
    assert prove(Branch(Several(1), border=Border((), 99)), SEED, quick=True).ok


def test_the_number_of_trials_grows_with_entropy():
    cautious = Cautious(9, low=0.0, high=math.log(4))
    ways = [cautious.ways(Law.of(p), Philox(0), 3) for p in ((1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 1))]
    assert [len(tokens) for tokens in ways] == [1, 5, 9]


def test_the_most_likely_trial_is_kept_up_to_the_pause():
    model, stop, seen = table(vocab=3, salt=8), letters(most=6), []

    @dataclass(frozen=True)
    class Seen:
        def __call__(self, grove, rollouts):
            marks = yield from LikelihoodMark()(grove, rollouts)
            seen.append((rollouts, marks))
            return marks

    for seed in range(6):
        got = done(Branch(Cautious(4, 0.0, 0.2), Seen(), PAUSE), model, stop, chance=Philox(seed))
        for rollouts, marks in seen:
            assert len(rollouts) > 1
            for rollout in rollouts:
                assert 1 in rollout.tokens[-1:] or len(rollout.tokens) == 3 or rollout.text.reason
                assert 1 not in rollout.tokens[:-1]
            perplexity = [math.exp(-rollout.mean) for rollout in rollouts]
            assert marks.index(max(marks)) == perplexity.index(min(perplexity))
        assert got.tokens[: len(seen[0][0][0].tokens)] in {rollout.tokens for rollout in seen[0][0]} or len(seen) > 1
        seen.clear()


def test_without_chaos_or_with_one_way_it_is_greedy():
    never = Branch(Chaotic(math.inf, 1.0, 3), Leaning(LikelihoodMark()), Border((), 2), 1)
    one = Branch(Chaotic(0.0, 0.0, 1), Leaning(LikelihoodMark()), Border((), 2), 1)
    assert prove(never, ARGMAX, quick=True).ok
    assert prove(one, ARGMAX, quick=True).ok


def test_an_evaluator_can_talk_a_chaotic_point_round():
    model = Table(3, lambda text: (5, 4, 1) if len(text) == 1 else (1, 1, 8))
    stop = letters(most=3)

    def likes(token):
        return Leaning(RewardMark(lambda tokens: float(tokens[0] == token)), weight=1.0)

    def first(mark, ratio=0.5):
        return done(Branch(Chaotic(9.0, ratio, 2), mark, Border((), 2), 1), model, stop).tokens[0]

    assert first(likes(0)) == 0
    assert first(likes(1)) == 1
    assert first(likes(1), ratio=0.9) == 0  # not chaotic enough to ask
    assert first(likes(2)) == 0  # not among the two best


@pytest.fixture
def graded(tmp_path):
    """Rewards in a file: of texts with an a, of short ones, and of all alike."""
    file = tmp_path / "grade.py"
    rewards = {"has_a": "float('a' in text)", "short": "-len(text) / 9", "alike": "0"}
    file.write_text("\n".join(f"def {name}(text):\n    return {worth}\n" for name, worth in rewards.items()))
    return file


@pytest.mark.parametrize(
    "name", ["several:count=8", "astar:kids=8", "foresight:rollouts=8,tau=0", "chaotic:ratio=0,weight=9"]
)
def test_a_reward_by_name_is_what_a_search_goes_by(graded, name):
    """The model would rather write c; one reward wants an a in the text, the other finds all texts alike."""
    words = Letters(("a", "b", "c"))
    model, stop = Table(words.size, lambda text: (4, 1, 6, *(1,) * (words.size - 3))), letters(most=3)
    alike, wanted = (
        [words.decode(done(made.fit(words), model, stop, chance=Philox(seed)).tokens) for seed in range(6)]
        for made in (named(f"{name},reward={graded}:{reward}") for reward in ("alike", "has_a"))
    )
    assert sum("a" in text for text in wanted) == 6 > sum("a" in text for text in alike)


def test_rewards_of_several_potentials_add_up(graded):
    one, other = (reward_of(f"{graded}:{which}") for which in ("has_a", "short"))
    both = reward_of(f"{graded}:has_a*{graded}:short")
    assert [both(text) for text in ("", "a", "cab")] == [one(text) + other(text) for text in ("", "a", "cab")]
    with pytest.raises(BadRequest, match="has no 'rhymes'"):
        reward_of(f"{graded}:has_a*{graded}:rhymes")


def test_a_reward_that_cannot_read_says_so():
    with pytest.raises(BadRequest, match="a reward reads text"):
        done(AStar(2, Graded(len), Border((), 2)), table(), letters(most=3))


def test_a_judge_is_asked_behind_every_branch_inside_one_forward():
    toy, stop = Toy(vocab=5, room=300), Stop(most=5)
    judge = JudgeMark(Judge(ask=(3, 4), marks=(0, 1, 2)))
    model = CachedModel(toy)
    branch = Branch(Chaotic(0.0, 0.0, 3), Leaning(judge, 4.0), Border((), 2), 2)
    got = done(branch, model, stop)
    alone = Table(5, lambda text: logits_of(text, 5).exp().tolist())
    assert got == done(branch, alone, stop)
    assert toy.slots.in_use == 0
    with pytest.raises(BadRequest, match="a judge has to know the tokens"):
        done(Branch(Chaotic(0.0), Leaning(JudgeMark()), Border((), 2)), alone, stop)


def test_one_rollout_of_one_step_and_one_kid_are_ancestral_sampling():
    model, stop = table(vocab=2, salt=9), letters(tokens=frozenset({1}), most=3)
    plain = law_of_text(model, PROMPT, Same(), stop)
    for method in (Foresight(1, 1, 0.05, border=Border((), 2)), AStar(1, border=Border((), 2), rows=99)):
        assert total_variation(law_of(method, model, stop), plain) < 1e-12


def test_a_huge_tau_takes_steps_as_often_as_they_are_drawn_and_zero_takes_the_best():
    model, stop = table(vocab=3, salt=9), letters(most=1)
    plain = law_of_text(model, PROMPT, Same(), stop)
    assert total_variation(law_of(Foresight(2, 1, 1e9, border=Border((), 1)), model, stop), plain) < 1e-8
    p = model.law(PROMPT).p.tolist()
    got = law_of(Foresight(2, 1, 0.0, border=Border((), 1)), model, stop)
    best = max(range(3), key=p.__getitem__)
    assert got[Done((best,), "length")] == pytest.approx(1 - (1 - p[best]) ** 2, abs=1e-12)


def test_foresight_remembers_rollouts_that_still_fit():
    rounds = []

    @dataclass(frozen=True)
    class First:
        """Likes the first text that it ever sees, and nothing else."""

        def __call__(self, grove, rollouts):
            yield from ()
            rounds.append([rollout.text.tokens for rollout in rollouts])
            return [float(len(rounds) == 1 and i == 0) for i in range(len(rollouts))]

    for seed in range(4):
        rounds.clear()
        model, stop = Table(2, lambda text: (1, 1)), letters(most=4)
        got = done(Foresight(2, 4, 0.0, First(), Border((), 1)), model, stop, chance=Philox(seed))
        assert got.tokens == rounds[0][0]  # followed to its end, whatever later rounds drew
        assert len(rounds) == 4


def test_a_star_goes_where_the_mark_is_and_breadth_first_where_there_is_none():
    model, stop = Table(2, lambda text: (1, 1)), letters(most=4)
    mark = RewardMark(lambda tokens: sum(tokens) / len(tokens))  # likes 1
    found = [done(AStar(8, mark, Border((), 1), rows=0), model, stop, chance=Philox(seed)).tokens for seed in range(4)]
    assert found == [(1, 1, 1, 1)] * 4
    depths = []

    @dataclass(frozen=True)
    class Even:
        def __call__(self, grove, rollouts):
            yield from ()
            depths.append(len(rollouts[0].start.tokens))
            return [0.5] * len(rollouts)

    done(AStar(3, Even(), Border((), 1), rows=0), model, stop)
    assert depths == sorted(depths)
    assert len(depths) > 4


def test_a_star_pays_for_what_gets_worse_alone():
    """g + h by hand: from h = 1 down to 0.4, up to 0.7, down to 0.1."""
    seen, marks = [], {1: 0.6, 2: 0.3, 3: 0.9}
    mark = RewardMark(lambda tokens: marks[len(tokens)])
    done(AStar(1, mark, Border((), 1), rows=0, watch=seen.extend), Table(2, lambda text: (1, 1)), letters(most=3))
    assert [text.score for text in seen] == pytest.approx([-(0.3 + 0.1)])


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: Branch(Cautious(4, 0.0, 0.1), border=Border((), 4), rows=rows),
        lambda rows: Branch(Several(3), border=Border((), 99), rows=rows),
        lambda rows: Branch(Chaotic(0.0, 0.0, 3), Leaning(JudgeMark(Judge((1, 2), (0, 1)))), Border((), 3), 1, rows),
        lambda rows: Foresight(3, 2, 0.1, border=Border((), 2), rows=rows),
        lambda rows: AStar(3, border=Border((), 2), rows=rows),
        lambda rows: Stochastic(3, rows),
        lambda rows: Smc(3, FullMask(2.0), threshold=1.5, block=2, moves=1, rows=rows),
        lambda rows: Smc(2, threshold=1.5, block=2, moves=1, back=2, rows=rows, twist=LookaheadTwist(2, 3)),
        lambda rows: Diverse(3, 1, 1.0, rows=rows),
        lambda rows: Beam(3, rows=rows),
        lambda rows: Mcts(width=2, rows=rows),
        lambda rows: Mcts(rollouts=20, rows=rows),
        lambda rows: Neurologic(3, rows=rows),
    ],
)
def test_every_search_keeps_to_its_budget_and_gives_what_it_has(make):
    for rows in (1, 5, 17, 40):
        toy = Toy(vocab=5, room=900)
        job = run(make(rows), CachedModel(toy), Stop(most=12), prompt=(0, 1, 2), chance=Philox(rows))
        assert toy.computed <= rows + 2  # and the prompt but its last token
        assert job.result().tokens
        assert job.result().reason in ("rows", "length")
        assert tuple(x for emit in job.emitted for x in emit.tokens) == job.result().tokens
        assert toy.slots.in_use == 0


def test_every_search_that_runs_by_name_takes_a_budget_in_rows():
    searches = [entry for entry in runnable() if entry.family == "search"]
    assert {"beam", "astar", "mcts", "neurologic", "rewarded", "smc"} <= {entry.name for entry in searches}
    for entry in searches:
        for rows in (3, 20):
            toy, stop = Toy(vocab=5, room=9000), letters(most=30)
            search = named(f"{entry.name}:rows={rows}")
            if isinstance(search, Branch):  # without the question for chat models, which a toy cannot read
                search = replace(search, mark=LikelihoodMark())
            job = run(search, CachedModel(toy), stop, prompt=(0, 1, 2), chance=Philox(1))
            assert toy.computed <= rows + 2, entry.name
            assert job.result().tokens
            assert job.result().reason == "rows"
            assert toy.slots.in_use == 0


def test_choosing_among_finished_texts():
    texts = ["the answer is 7", "it is 8", "so 7", "maybe"]

    def answer(text):
        return text[-1] if text[-1].isdigit() else None

    assert choose.best(texts, len) == "the answer is 7"
    assert choose.best(["a", "b"], len) == "a"  # ties are stable
    assert choose.vote(texts, answer) == "the answer is 7"
    assert choose.vote(texts, answer, weight=lambda text: 5.0 if "8" in text else 1.0) == "it is 8"
    assert choose.vote(["x", "y"], lambda text: None) == "x"
    drawn = ["b", "a", "c", "a"]
    assert choose.agree(drawn, lambda one, other: float(one == other)) == "a"  # exact match: the mode
    assert choose.agree(drawn, lambda one, other: float(one == other)) == choose.vote(drawn, lambda text: text)
    close = ["a cat sat", "a cat sat down", "dogs"]
    assert choose.agree(close, choose.overlap) in close[:2]
    assert choose.overlap("same", "same") == pytest.approx(1.0)
    assert choose.overlap("abc", "xyz") == 0.0
    with pytest.raises(BadRequest, match="nothing to choose from"):
        choose.best([], len)


def test_the_text_that_agrees_most_with_the_others_is_kept():
    """The likeliest text is like no other here, so that a choice by likelihood would take it."""
    said = {(0, 1): "a cat sat", (0, 2): "a cat sits", (1, 1): "dogs"}
    rollouts = [SimpleNamespace(text=SimpleNamespace(tokens=tokens), mean=-len(text)) for tokens, text in said.items()]
    words = SimpleNamespace(decode=said.__getitem__)

    def marked(search):
        marking, found = fitted(search, words).mark(None, rollouts), []

        def asked():
            found.append((yield from marking))

        assert all(ask == GiveWay() for ask in asked())
        return found[0]

    (cat, cats, dogs), likely = marked("several:choose=agreement"), marked("several")
    assert cat == pytest.approx(
        (1 + choose.overlap("a cat sat", "a cat sits") + choose.overlap("a cat sat", "dogs")) / 3
    )
    assert min(cat, cats) > dogs
    assert max(likely) == likely[2]
    with pytest.raises(BadRequest, match="agreement is between texts"):
        next(named("several:choose=agreement").mark(None, rollouts))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: named("several:choose=agreement,reward=x.py:y"),
            "several:choose is 'agreement'; expected likely beside",
        ),
        (lambda: choose.vote([], len), "nothing to choose from"),
        (lambda: choose.agree([], choose.overlap), "nothing to choose from"),
        (lambda: choose.best(["a", "b"], lambda text: math.nan), "the score of 'a' is nan"),
        (lambda: choose.vote(["a", "b"], len, lambda text: math.nan), "the weight of 'a' is nan"),
        (lambda: choose.agree(["a", "b"], lambda one, other: math.nan), "the utility of 'a' is nan"),
        (lambda: Settings(n=0), "n is 0"),
        (lambda: named("several:count=0"), "several:count is 0"),
        (lambda: named("smc:particles=0"), "smc:particles is 0"),
        (lambda: named("stochastic:width=0"), "stochastic:width is 0"),
        (lambda: named("diverse:groups=0"), "diverse:groups is 0"),
        (lambda: named("astar:kids=0"), "astar:kids is 0"),
        (lambda: named("foresight:rollouts=0"), "foresight:rollouts is 0"),
        (lambda: named("neurologic:width=0"), "neurologic:width is 0"),
        (lambda: choices(), "choices"),
        (lambda: keywords(), "at least one clause"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(BadRequest, match=message):
        call()


@pytest.mark.parametrize(
    "make",
    [
        lambda worth: AStar(2, RewardMark(worth), Border((), 1)),
        lambda worth: Foresight(2, 1, 0.1, RewardMark(worth), Border((), 1)),
        lambda worth: Branch(Several(2), RewardMark(worth), Border((), 9)),
        lambda worth: Smc(2, potential=Potential(worth)),
        lambda worth: Smc(2, potential=Potential(prefix=worth)),
    ],
)
def test_functions_of_the_user_that_cannot_be_used(make):
    model, stop = table(), letters(most=3)
    for worth, message in [
        (lambda tokens: math.nan, r"gave nan for the tokens \("),
        (lambda tokens: None, "gave None"),
        (lambda tokens: tokens[99], r"raised IndexError: .*, on the tokens \("),
    ]:
        with pytest.raises(BadRequest, match=message):
            done(make(worth), model, stop)


def test_best_of_n_stays_within_its_bound():
    model, stop = table(vocab=2, salt=9), Stop(most=2)
    got = law_of(Branch(Several(2), border=Border((), 9)), model, stop)
    plain = law_of_text(model, PROMPT, Same(), stop)
    gap = sum(p * math.log(p / plain[text]) for text, p in got.items())
    assert 0 < gap <= divergence_of_best(2)


def test_a_search_that_fails_at_once_tells_why():
    """What ends it before its first token is the error, and not the want of a text to rank."""
    engine = Engine({"target": Table(3, lambda text: [math.nan] * 3)})
    job = engine.submit(Beam(width=2), (0,), Philox(0), stop=Stop(most=3))
    engine.run()
    with pytest.raises(BadScores):
        job.result()
