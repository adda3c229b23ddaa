"""Methods that weigh a constraint instead of masking by it: proper weights and exact laws, enumerated."""

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import pytest
import torch
from listed import Listed
from toy import Toy
from truth import law_of_text

from unspool.core.asks import Done
from unspool.core.chance import At, Every, Philox, Role, total_variation
from unspool.core.claim import SEED
from unspool.core.errors import BadRequest, EmptyLaw
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp import (
    BadWords,
    Epsilon,
    Eta,
    Forbid,
    Frequency,
    LogitBias,
    MinP,
    MinTokens,
    NoRepeatNgram,
    Presence,
    Repetition,
    Same,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    Typical,
)
from unspool.proof import Case, prove
from unspool.proof.compare_laws import compared, shown
from unspool.proof.prove import truth_of
from unspool.proof.shaping import BRACKETS, DEAD_END
from unspool.recipes.methods import entries
from unspool.recipes.methods import method as named
from unspool.rules.constrain import (
    AdaptiveRejection,
    Asap,
    Awrs,
    Cars,
    Constrained,
    FullMask,
    Futures,
    Geometric,
    Potential,
    Recursive,
)
from unspool.rules.constrain.futures import _flat
from unspool.rules.constrain.parted import parted
from unspool.rules.decode import Speculate
from unspool.rules.search import Smc
from unspool.rules.search.smc import log_marginal, multinomial, residual, stratified, systematic
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

AT = At(5, Role.PICK)
PROMPT = (0,)


def listed(*texts, vocab):
    return Listed(frozenset(texts), vocab)


def table(vocab, salt=0):
    def weights(text):
        generator = torch.Generator().manual_seed(hash((salt, *text)) & 0x7FFFFFFF)
        return (torch.rand(vocab, generator=generator, dtype=torch.float64) + 0.05).tolist()

    return Table(vocab, weights)


def run(method, model, stop, chance, warp=None):
    engine = Engine({"target": model})
    job = engine.submit(method, PROMPT, chance, warp or Same(), stop)
    engine.run()
    return job.result()


# ---- one token

PROPOSALS = {
    "recursive": Recursive(),
    "recursive, 2 checks": Recursive(checks=2),
    "recursive, 1 check": Recursive(checks=1),
    "geometric, 2 accepts": Geometric(2, refusals=4),
    "geometric, 3 accepts": Geometric(3, refusals=3),
    "masked": FullMask(),
}
P = (0.35, 0.25, 0.2, 0.12, 0.08)


@pytest.mark.parametrize("allowed", [(1, 3), (4,), (0, 1, 2, 3, 4), ()], ids=str)
@pytest.mark.parametrize("name", PROPOSALS)
def test_a_token_is_properly_weighted(name, allowed):
    state = listed(*((x,) for x in allowed), vocab=5)
    got = Every().law(lambda chance: PROPOSALS[name](Law.of(P), state, chance, AT)[:2])
    mean = defaultdict(float)
    for (token, weight), mass in got.items():
        assert token is None or token in allowed
        mean[token] += mass * weight
    assert mean.pop(None, 0.0) == 0.0
    assert dict(mean) == pytest.approx({x: P[x] for x in allowed}, abs=1e-12)


def test_estimators_as_the_card_has_them():
    everything, one = listed(*((x,) for x in range(5)), vocab=5), listed((3,), vocab=5)
    assert set(Every().law(lambda c: Recursive()(Law.of(P), everything, c, AT)[1:])) == {(1.0, 2)}  # two checks each
    assert {token for token, _ in Every().law(lambda c: Recursive()(Law.of(P), one, c, AT)[:2])} == {3}
    some = listed((1,), (3,), vocab=5)

    def variance(propose, p=P):
        law = Every().law(lambda c: propose(Law.of(p), some, c, AT).weight)
        return sum(m * w * w for w, m in law.items()) - sum(m * w for w, m in law.items()) ** 2

    assert variance(Recursive()) == pytest.approx(0.061, abs=2e-3)
    assert variance(FullMask()) == pytest.approx(0, abs=1e-15)
    assert variance(Geometric(4, 6), (0.63, 0.37)) < variance(Geometric(2, 6), (0.63, 0.37))


def test_the_adaptive_estimator_takes_the_one_that_checks_less():
    state = listed((0,), (2,), vocab=3)
    for p, taken in (((0.7, 0.2, 0.1), Geometric(2, 3)), ((0.6, 0.3, 0.1), Recursive())):
        law = Every().law(lambda c, p=p: AdaptiveRejection(geometric=Geometric(2, 3))(Law.of(p), state, c, AT))
        assert law == Every().law(lambda c, p=p, taken=taken: taken(Law.of(p), state, c, AT))
        for token in (0, 2):
            assert sum(m * w for (x, w, _), m in law.items() if x == token) == pytest.approx(p[token], abs=1e-12)


def test_a_planted_bug_in_the_weights_is_seen():
    @dataclass(frozen=True)
    class Careless:  # forgets that the refused mass is gone
        def __call__(self, law, state, chance, at):
            token, _, checks = Recursive()(law, state, chance, at)
            return token, 1.0, checks

    state = listed((1,), (3,), vocab=5)
    law = Every().law(lambda chance: Careless()(Law.of(P), state, chance, AT)[:2])
    assert sum(mass * weight for (_, weight), mass in law.items()) == pytest.approx(1.0)  # and not 0.37


def test_checks_are_bounded_and_few():
    calls = Counter()

    @dataclass(frozen=True)
    class Counted(Listed):
        def allows(self, token):
            calls[token] += 1
            return super().allows(token)

    state = Counted(frozenset({(0,)}), 50)
    law = Law.of([60.0, *[1.0] * 49])
    for seed in range(200):
        assert Recursive(checks=3)(law, state, Philox(seed), AT).checks <= 3
    assert sum(calls.values()) <= 600
    calls.clear()
    for seed in range(200):
        Geometric(2)(law, state, Philox(seed), AT)
    assert calls[0] == 200  # what is known to be allowed is not asked again


def test_awrs_has_the_law_of_local_masking():
    model, stop = table(3, salt=4), Stop(tokens=frozenset({2}), most=3)
    warp = Temperature(0.7) | Constrained(listed((0, 1, 2), (0, 2), (1, 1, 2), (1, 0, 2), vocab=3))
    got = Every().law(lambda chance: run(Awrs(), model, stop, chance, warp))
    assert total_variation(got, law_of_text(model, PROMPT, warp, stop)) < 1e-12


AFTER = {
    "temperature": Temperature(0.7),
    "greedy": Temperature(0),
    "greedy, whatever follows": Temperature(0) | TopK(2) | TopP(0.3),
    "top-k": Temperature(1.3) | TopK(2),
    "top-k of more than are allowed": TopK(5),
    "min-p": Temperature(1.3) | MinP(0.6),
    "top-k, then min-p": TopK(3) | MinP(0.3),
    "biases, penalties and prohibitions": LogitBias({0: 0.7, 3: -1.5})
    | Repetition(1.4)
    | Frequency(0.3)
    | Presence(0.2)
    | NoRepeatNgram(2)
    | BadWords([(1, 0)])
    | MinTokens(2, [3])
    | Temperature(0.8)
    | TopK(2),
}
SOME = listed((0, 1, 3), (0, 2, 3), (0, 3), (1, 1, 3), (1, 0, 3), (1, 2, 0), (2, 2, 3), (2, 3), vocab=4)


@pytest.mark.parametrize("salt", range(3))
@pytest.mark.parametrize("name", AFTER)
def test_under_a_constraint_awrs_has_the_law_of_plain_decoding_with_the_same_settings(name, salt):
    """In the order of `Settings`: the constraint first, so that truncations see what may really follow."""
    model, stop = table(4, salt=salt), Stop(tokens=frozenset({3}), most=3)
    warp = Constrained(SOME) | AFTER[name]
    got = Every().law(lambda chance: run(Awrs(), model, stop, chance, warp))
    assert total_variation(got, law_of_text(model, PROMPT, warp, stop)) < 1e-12


@pytest.mark.parametrize("between", [Same(), Temperature(0.7)], ids=str)
@pytest.mark.parametrize("after", [Same(), TopK(2)], ids=str)
def test_under_two_constraints_awrs_keeps_to_both(between, after):
    model, stop = table(4), Stop(tokens=frozenset({3}), most=3)
    other = listed((0, 0, 3), (0, 1, 3), (0, 3), (1, 0, 3), (2, 3), (3,), vocab=4)
    for warp in (Constrained(SOME) | between | Constrained(other), Constrained(other) | between | Constrained(SOME)):
        got = Every().law(lambda chance, warp=warp: run(Awrs(), model, stop, chance, warp | after))
        assert {text.tokens for text in got} <= SOME.texts & other.texts
        assert total_variation(got, law_of_text(model, PROMPT, warp | after, stop)) < 1e-12


@pytest.mark.parametrize("name", [name for name in AFTER if name != "temperature"])
def test_where_ranks_decide_awrs_writes_plain_decodings_very_text(name):
    model, stop, warp = table(4), Stop(tokens=frozenset({3}), most=3), Constrained(SOME) | AFTER[name]
    for seed in range(20):
        assert run(Awrs(), model, stop, Philox(seed), warp) == run(Speculate(), model, stop, Philox(seed), warp)


@pytest.mark.parametrize("ties", [(1.0, 1.0, 1.0, 1.0), (2.0, 1.0, 1.0, 1.0), (1.0, 2.0, 2.0, 1.0)], ids=str)
@pytest.mark.parametrize("after", [Temperature(0), TopK(1), TopK(2), MinP(1.0), MinP(0.5)], ids=str)
def test_awrs_treats_ties_as_plain_decoding_does(after, ties):
    model, stop = Table(4, lambda text: ties), Stop(tokens=frozenset({3}), most=2)
    warp = Constrained(listed((1, 3), (2, 3), (3,), vocab=4)) | after
    got = Every().law(lambda chance: run(Awrs(), model, stop, chance, warp))
    assert total_variation(got, law_of_text(model, PROMPT, warp, stop)) < 1e-12


@pytest.mark.parametrize(
    "after", [TopP(0.9), Typical(0.5), Epsilon(0.01), Eta(0.01), TopNSigma(1.0), TopK(2) | Temperature(0.5)], ids=str
)
def test_awrs_refuses_a_truncation_that_would_have_to_know_the_whole_mask(after):
    model, stop = table(4), Stop(tokens=frozenset({3}), most=3)
    with pytest.raises(BadRequest, match="awrs cannot draw by"):
        run(Awrs(), model, stop, Philox(0), Constrained(SOME) | after)
    assert run(Awrs(), model, stop, Philox(0), after)  # and without a constraint all is well


@pytest.mark.parametrize("after", [Same(), TopK(2), Temperature(0)], ids=str)
def test_one_who_is_refused_too_often_is_told_the_mask(after, monkeypatch):
    monkeypatch.setattr("unspool.rules.constrain.allowed.PATIENCE", 1)
    model, stop, warp = table(4, salt=1), Stop(tokens=frozenset({3}), most=3), Constrained(SOME) | after
    got = Every().law(lambda chance: run(Awrs(), model, stop, chance, warp))
    assert total_variation(got, law_of_text(model, PROMPT, warp, stop)) < 1e-12


@pytest.mark.parametrize("after", [Same(), TopK(2), Temperature(0)], ids=str)
def test_awrs_says_when_nothing_is_allowed(after):
    model = Table(3, lambda text: (5, 1, 1))
    with pytest.raises(EmptyLaw, match="allows none of the tokens"):
        run(Awrs(), model, Stop(most=2), Philox(0), Constrained(listed((1, 2), vocab=3)) | Forbid([1]) | after)


@pytest.mark.parametrize(
    "method",
    [Cars(), Asap(), Smc(2), Smc(2, Recursive()), Smc(2, Geometric())],
    ids=["cars", "asap", "smc", "smc, recursive", "smc, geometric"],
)
def test_at_temperature_0_there_is_nothing_to_weigh_and_the_text_is_plain_decodings(method):
    """The best token of all may not be allowed; the best that is allowed is what plain decoding takes."""
    model, stop = Table(4, lambda text: (8, 3, 4, 2)), Stop(tokens=frozenset({3}), most=3)
    warp = Constrained(listed((1, 1, 3), (1, 2, 3), (2, 1, 3), vocab=4)) | Temperature(0)
    assert run(method, model, stop, Philox(0), warp).tokens == (2, 1, 3)
    assert run(Speculate(), model, stop, Philox(0), warp).tokens == (2, 1, 3)


# ---- resampling


@pytest.mark.parametrize("resample", [multinomial, stratified, systematic, residual])
@pytest.mark.parametrize("weights", [(0.5, 0.3, 0.2), (0.0, 1.0, 0.0), (1.0, 1.0, 1.0), (7.0, 0.0, 2.0)])
def test_resampling_keeps_everybody_in_proportion(resample, weights):
    law = Every().law(lambda chance: tuple(resample(weights, chance, 3)))
    for i, weight in enumerate(weights):
        copies = sum(mass * picks.count(i) for picks, mass in law.items())
        assert copies == pytest.approx(3 * weight / sum(weights), abs=1e-12)
    assert all(len(picks) == 3 for picks in law)


def test_the_four_ways_of_resampling_differ_in_noise():
    weights = (0.5, 0.3, 0.2)

    def noise(resample):
        law = Every().law(lambda chance: tuple(resample(weights, chance, 3)))
        return sum(m * (picks.count(0) - 1.5) ** 2 for picks, m in law.items())

    assert noise(systematic) <= noise(stratified) < noise(multinomial)
    assert noise(residual) < noise(multinomial)


# ---- particles


def wanted(model, stop, constraint, worth):
    """p(text)·potential(text) of every text that meets the constraint."""
    law = law_of_text(model, PROMPT, Same(), stop)
    return {d.tokens: p * math.exp(worth(d.tokens)) for d, p in law.items() if d.tokens in constraint.texts}


def clouds(method, model, stop, warp):
    """The law of all particles with their weights."""

    def program(chance):
        seen = []
        try:
            run(replace(method, watch=seen.extend), model, stop, chance, warp)
        except EmptyLaw:
            seen = [text.ranked(-math.inf) for text in seen]
        return tuple((text.tokens, text.score) for text in seen)

    return Every().law(program)


def means(law):
    """E[Σ w·1{text}] / n."""
    mean = defaultdict(float)
    for cloud, mass in law.items():
        for tokens, weight in cloud:
            mean[tokens] += mass * math.exp(weight) / len(cloud)
    return {tokens: value for tokens, value in mean.items() if value > 0}


LANGUAGE = listed((0, 0), (1, 0), (1, 1), vocab=2)
WORTH = {(0, 0): 0.4, (1, 0): -1.0, (1, 1): 1.3}


@pytest.mark.parametrize(
    ("propose", "resample"),
    [
        (FullMask(), multinomial),
        (FullMask(), stratified),
        (FullMask(), systematic),
        (FullMask(), residual),
        (Recursive(), multinomial),
        (Recursive(checks=1), systematic),
        (Geometric(2, 2), stratified),
    ],
)
def test_particles_are_properly_weighted(propose, resample):
    model, stop = table(2, salt=3), Stop(most=2)
    guess = {(0,): 0.7, (1,): -0.4}
    potential = Potential(lambda t: WORTH.get(t, 0.0), lambda t: guess[t])
    smc = Smc(2, propose, potential, resample, threshold=1.5)  # resamples after every token
    law = clouds(smc, model, stop, Constrained(LANGUAGE))
    truth = wanted(model, stop, LANGUAGE, lambda t: WORTH[t])
    assert means(law) == pytest.approx(truth, abs=1e-12)
    total = sum(mass * math.exp(log_mean([w for _, w in cloud])) for cloud, mass in law.items())
    assert total == pytest.approx(sum(truth.values()), abs=1e-12)  # the marginal likelihood is unbiased


def log_mean(weights):
    total = sum(map(math.exp, weights)) / len(weights)
    return math.log(total) if total else -math.inf


LEANING = Potential(prefix=lambda tokens: 0.7 if tokens[-1] == 0 else -0.4)


@pytest.mark.parametrize("block", [1, 2])
def test_moves_leave_the_weights_proper(block):
    model, stop = table(2, salt=3), Stop(most=block + 1)
    if block == 1:
        language = listed((0, 0), (1, 0), (1, 1), vocab=2)
    else:
        language = listed((0, 0, 0), (0, 0, 1), (1, 0, 0), vocab=2)
    smc = Smc(2, potential=LEANING, resample=systematic, threshold=1.5, block=block, moves=1)
    law = clouds(smc, model, stop, Constrained(language))
    assert means(law) == pytest.approx(wanted(model, stop, language, lambda t: 0.0), abs=1e-12)


def test_a_move_that_is_always_taken_is_seen():
    # The same without weighing new against old would leave the law of the proposal instead of the wanted one.
    @dataclass(frozen=True)
    class Sure:
        chance: object

        def choose(self, law, at):
            return self.chance.choose(law, at)

        def coin(self, p, at):
            return p > 0

    model, stop = table(2, salt=3), Stop(most=2)
    smc = Smc(2, potential=LEANING, resample=systematic, threshold=1.5, moves=1)

    def program(chance):
        seen = []
        run(replace(smc, watch=seen.extend), model, stop, Sure(chance), Constrained(LANGUAGE))
        return tuple((text.tokens, text.score) for text in seen)

    assert means(Every().law(program)) != pytest.approx(wanted(model, stop, LANGUAGE, lambda t: 0.0), abs=1e-3)


def test_two_particles_with_an_end_token_and_a_length_limit():
    # Texts that would be cut off do not count: the end is forced at the last place, and weighed.
    model, stop = table(3, salt=6), Stop(tokens=frozenset({2}), most=3)
    language = listed((2,), (0, 2), (0, 1, 2), (0, 1, 1, 2), (1, 0, 0, 2), vocab=3)
    law = clouds(Smc(2, threshold=0.8, resample=multinomial), model, stop, Constrained(language))
    short = listed((2,), (0, 2), (0, 1, 2), vocab=3)
    assert means(law) == pytest.approx(wanted(model, stop, short, lambda t: 0.0), abs=1e-12)


def test_a_power_of_whole_texts():
    model, stop = table(2, salt=1), Stop(most=2)
    law = clouds(Smc(2, FullMask(3.0), resample=multinomial, threshold=1.5), model, stop, Same())
    truth = {d.tokens: p**3 for d, p in law_of_text(model, PROMPT, Same(), stop).items()}
    assert means(law) == pytest.approx(truth, abs=1e-12)


def test_where_nothing_is_weighed_the_law_is_plain_decodings():
    model, stop = table(2, salt=2), Stop(tokens=frozenset({1}), most=3)
    smc = Smc(2, resample=multinomial, threshold=1.5)
    got = Every().law(lambda chance: run(smc, model, stop, chance))
    assert total_variation(got, law_of_text(model, PROMPT, Same(), stop)) < 1e-12
    assert prove(Smc(1), SEED, quick=True, shaped=False).ok


def test_one_particle_is_local_masking_and_more_come_closer_to_the_truth():
    model, stop = table(2, salt=3), Stop(most=2)
    warp = Constrained(LANGUAGE)
    truth = wanted(model, stop, LANGUAGE, lambda t: 0.0)
    truth = {Done(t, "length"): p / sum(truth.values()) for t, p in truth.items()}

    def law(n):
        return Every().law(lambda chance: run(Smc(n, resample=multinomial), model, stop, chance, warp))

    masked = law_of_text(model, PROMPT, warp, stop)
    assert total_variation(law(1), masked) < 1e-12
    gaps = [total_variation(law(n), truth) for n in (1, 2, 3)]
    assert gaps[0] > gaps[1] > gaps[2] > 0


def test_dead_particles_are_an_error_with_a_way_out_and_never_nan():
    model, stop = table(2), Stop(most=3)
    impossible = Potential(complete=lambda tokens: -math.inf)
    with pytest.raises(EmptyLaw, match=r"all 3 particles have weight 0.*more particles"):
        run(Smc(3, potential=impossible), model, stop, Philox(0))
    # some of them dead is fine
    half = Potential(prefix=lambda tokens: -math.inf if tokens[0] == 0 else 0.0)
    even = Table(2, lambda text: (1, 1))
    for seed in range(8):
        assert run(Smc(12, potential=half), even, stop, Philox(seed)).tokens[0] == 1
    with pytest.raises(BadRequest, match="complete gave nan"):
        run(Smc(2, potential=Potential(lambda tokens: math.nan)), model, stop, Philox(0))


def test_particles_within_a_budget():
    model = table(2)
    seen = []
    smc = Smc(4, rows=9, watch=seen.extend)
    assert run(smc, model, Stop(most=50), Philox(1)).reason == "rows"
    assert len(seen) == 4
    assert {len(text.tokens) for text in seen} == {len(seen[0].tokens)}
    assert 3 <= len(seen[0].tokens) < 50  # 1 + 4 + 4 rows, or fewer where particles stand on the same text
    assert log_marginal(seen) == pytest.approx(0.0)


def test_the_constraint_is_taken_out_of_the_warps():
    one, other = listed((0,), vocab=2), listed((1,), vocab=2)
    rest, constraint = parted(Temperature(0.5) | Constrained(one) | Temperature(0.7))
    assert rest == Temperature(0.5) | Temperature(0.7)
    assert constraint is one
    _, both = parted(Constrained(one) | Constrained(other))
    assert not both.start().allows(0)
    assert parted(Temperature(0.5)) == (Temperature(0.5), None)


def test_particles_by_name():
    smc = named("smc:particles=16,power=4,resample=systematic,block=8,rows=1000")
    assert (smc.particles, smc.propose, smc.block) == (16, FullMask(4.0), 8)
    with pytest.raises(BadRequest, match="one of masked, recursive, geometric, adaptive"):
        named("smc:propose=rejection")
    with pytest.raises(BadRequest, match="knows powers"):
        named("smc:propose=recursive,power=2")


# ---- samplers that learn

TREE = listed((0, 0, 0), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1), vocab=2)
THREE = Stop(most=3)


def world(salt=0):
    """A table over two tokens with the law of texts given that they are 000 or begin with 1."""
    model = table(2, salt)
    truth = wanted(model, THREE, TREE, lambda t: 0.0)
    return model, {Done(t, "length"): p / sum(truth.values()) for t, p in truth.items()}


def divergence(law, truth):
    return sum(p * math.log(p / truth[text]) for text, p in law.items() if p > 0)


def next_law(sampler, model, stop=THREE, constraint=TREE):
    """The exact law of the next text, given what was learnt so far."""

    def one(chance):
        fresh = replace(sampler, futures=Futures(dict(sampler.futures.roots)))
        return run(fresh, model, stop, chance, Constrained(constraint))

    return Every().law(one)


@dataclass(frozen=True)
class Later:
    """Chance for the i-th of several texts in one branch: other numbers than those before."""

    chance: object
    number: int

    def choose(self, law, at):
        return self.chance.choose(law, at._replace(round=at.round + 1000 * self.number))


def test_asap_begins_with_local_masking_and_learns_its_way_to_the_truth():
    model, truth = world(salt=2)
    masked = law_of_text(model, PROMPT, Constrained(TREE), THREE)
    asap, bias = Asap(), divergence(masked, truth)
    assert bias > 0.02
    assert total_variation(next_law(asap, model), masked) < 1e-12
    gaps, thetas = [bias], []
    for seed in range(60):
        run(asap, model, THREE, Philox(seed), Constrained(TREE))
        thetas.append(asap.futures.roots[PROMPT].theta)
        if seed in (3, 59):
            gaps.append(divergence(next_law(asap, model), truth))
    assert gaps[0] > gaps[1] >= gaps[2]
    assert gaps[2] < 1e-12  # every text was seen: there is nothing left to learn
    assert thetas == sorted(thetas, reverse=True)
    share = sum(wanted(model, THREE, TREE, lambda t: 0.0).values())
    assert thetas[-1] == pytest.approx(share, abs=1e-12)


def test_asap_comes_closer_with_every_text_on_the_average():
    model, truth = world(salt=2)

    def after(count):
        def program(chance):
            asap = Asap()
            for number in range(count):
                run(asap, model, THREE, Later(chance, number), Constrained(TREE))
            return round(divergence(next_law(asap, model), truth), 14)

        return sum(gap * mass for gap, mass in Every().law(program).items())

    gaps = [after(count) for count in range(3)]
    assert gaps[0] > gaps[1] > gaps[2]


def accepted(sampler, model, texts=1, stop=THREE, constraint=TREE):
    """The law of the last of so many texts, given that all were accepted; and how likely that is."""

    def program(chance):
        one = sampler()
        try:
            for number in range(texts):
                last = run(one, model, stop, Later(chance, number), Constrained(constraint))
        except EmptyLaw:
            return None
        return last

    law = Every().law(program)
    share = 1 - law.pop(None, 0.0)
    return {text: mass / share for text, mass in law.items()}, share


def test_cars_is_exact_from_the_first_text_on():
    model, truth = world(salt=2)
    for tries in (1, 3):
        law, share = accepted(lambda tries=tries: Cars(tries=tries), model)
        assert total_variation(law, truth) < 1e-12
        assert share < 1 or tries == 3  # three tries know all mistakes
    law, _ = accepted(lambda: Cars(tries=2), model, texts=2)  # and after it has learnt from one
    assert total_variation(law, truth) < 1e-12
    # the same with a mask where nothing is known is not: that is ASAp
    assert total_variation(accepted(lambda: Asap(tries=3), model)[0], truth) > 0.02


def test_cars_with_ends_and_dead_ends():
    # After 1 0 nothing can end in time, which shows only at the last place.
    model, stop = table(3, salt=6), Stop(tokens=frozenset({2}), most=3)
    language = listed((2,), (0, 2), (0, 1, 2), (1, 0, 0, 2), vocab=3)
    truth = {Done(t, "token"): p for t, p in wanted(model, stop, language, lambda t: 0.0).items()}
    truth = {text: p / sum(truth.values()) for text, p in truth.items()}
    law, _ = accepted(lambda: Cars(tries=3), model, stop=stop, constraint=language)
    assert total_variation(law, truth) < 1e-12


CUT_OFF = [
    Case(2, ((3, 1), (1, 2), (2, 5)), ((1, 1),), (0,), BRACKETS, None, "bb", 4),
    Case(3, ((3, 1, 2),), ((1, 1, 1),), (0,), DEAD_END, 2, "b", 2),
]


@pytest.mark.parametrize("case", CUT_OFF, ids=lambda case: f"{case.warp}, {case.until}")
def test_a_text_that_a_stop_string_cuts_off_meets_nothing(case):
    """What is handed out ends before the string, be the tokens up to it as they must be."""
    entry = entries()["cars"]
    (trial,) = entry.trials(entry.rule)
    found = compared(trial, entry.claim, case, 4000, truth_of(entry))
    assert found.tv < 1e-12, shown(found)
    assert all(done.reason != "string" for done in found.got)


@pytest.mark.parametrize("resample", [multinomial, stratified])
def test_particles_that_a_stop_string_cuts_off_have_no_weight(resample):
    stop = Stop(frozenset({2}), ("b",), 3, piece=lambda token: b"ab"[token : token + 1])
    seen = []
    smc = Smc(2, resample=resample, watch=seen.extend)
    for seed in range(20):
        engine = Engine({"target": table(3, salt=6)})
        engine.submit(smc, PROMPT, Philox(seed), Constrained(listed((0, 2), (0, 1), vocab=3)), stop)
        engine.run()
    assert {text.reason for text in seen} >= {"token", "string"}
    assert all((text.score == -math.inf) == (text.reason == "string") for text in seen if text.reason)


@dataclass(frozen=True)
class Starred:
    """a*: any number of 0, and an end (1) after any of them."""

    over: bool = False

    def start(self):
        return self

    def step(self, token):
        return Starred(self.over or token == 1)

    def allows(self, token):
        return not self.over

    def mask(self):
        return torch.tensor([not self.over, not self.over])

    def forced(self):
        return ()

    def complete(self):
        return True


@pytest.mark.parametrize(
    "sampler", [lambda: Cars(tries=4), lambda: Asap(tries=4), lambda: Smc(2), lambda: Smc(2, Recursive())]
)
def test_a_text_that_might_have_ended_but_was_cut_off_is_not_taken(sampler):
    """0 0 0 may end after every token, and three are allowed: a text that goes on at the third has not ended."""
    model, stop = table(2, salt=6), Stop(tokens=frozenset({1}), most=3)
    law, _ = accepted(sampler, model, stop=stop, constraint=Starred())
    assert set(law) == {Done(text, "token") for text in ((1,), (0, 1), (0, 0, 1))}


def test_cars_has_the_law_of_texts_that_end_in_time():
    model, stop = table(2, salt=6), Stop(tokens=frozenset({1}), most=3)
    every = law_of_text(model, PROMPT, Same(), stop)
    truth = {text: p for text, p in every.items() if text.reason == "token"}
    truth = {text: p / sum(truth.values()) for text, p in truth.items()}
    law, _ = accepted(lambda: Cars(tries=2), model, texts=2, stop=stop, constraint=Starred())
    assert total_variation(law, truth) < 1e-12


@pytest.mark.parametrize("sampler", [lambda: Cars(tries=4), lambda: Asap(tries=4)])
def test_a_text_that_the_length_cuts_in_the_middle_is_not_taken(sampler):
    """No token ends a text here, so nothing but the constraint knows that 1 1 1 lacks a token."""
    law, share = accepted(sampler, table(2, salt=6), constraint=listed((0, 0, 0), (1, 1, 1, 1), vocab=2))
    assert set(law) == {Done((0, 0, 0), "length")}
    assert share > 0


def test_cars_needs_fewer_tries_with_every_text():
    model, _ = world(salt=2)
    cars = Cars()
    thetas = []
    for seed in range(40):
        run(cars, model, THREE, Philox(seed), Constrained(TREE))
        thetas.append(cars.futures.roots[PROMPT].theta)
    assert thetas == sorted(thetas, reverse=True)
    law, share = accepted(lambda: Cars(futures=Futures(dict(cars.futures.roots)), tries=1), model)
    assert share == pytest.approx(1.0)  # no try fails any more
    assert len(law) == 5


def test_the_model_reads_a_beginning_once_however_often_it_is_tried():
    toy = Toy(vocab=4, room=200)
    cars = Cars()
    language = listed(*((a, b, 3) for a in (0, 1) for b in (1, 2)), vocab=4)
    rows = 0
    for seed in range(5):
        before = len(_flat(cars.futures.roots[PROMPT])) if cars.futures.roots else 0
        toy.computed = 0
        run(cars, CachedModel(toy), Stop(tokens=frozenset({3}), most=4), Philox(seed), Constrained(language))
        new = len(_flat(cars.futures.roots[PROMPT])) - before
        assert new <= toy.computed <= before + new  # a row for each beginning that this request came to
        rows += toy.computed
    assert rows < 40


def test_texts_drawn_side_by_side_do_not_disturb_each_other():
    # A try sees what was known when it began, though another text teaches the same trie meanwhile.
    model, truth = world(salt=2)

    def program(chance):
        cars, engine = Cars(tries=2), Engine({"target": model})
        engine.submit(cars, PROMPT, Later(chance, 0), Constrained(TREE), THREE)
        engine.step()
        second = engine.submit(cars, PROMPT, Later(chance, 1), Constrained(TREE), THREE)
        engine.run()
        return second.result() if second.error is None else None

    law = Every().law(program)
    share = 1 - law.pop(None)
    assert total_variation({text: mass / share for text, mass in law.items()}, truth) < 1e-12


def test_what_was_learnt_is_saved_and_loaded(tmp_path):
    model, _ = world(salt=2)
    asap, file = Asap(), tmp_path / "futures.json"
    for seed in range(20):
        run(asap, model, THREE, Philox(seed), Constrained(TREE))
    asap.futures.save(file)
    loaded = Futures.load(file)
    assert loaded == asap.futures
    assert loaded.roots[PROMPT].theta == asap.futures.roots[PROMPT].theta
    assert next_law(Asap(loaded), model) == next_law(asap, model)
    file.write_text(json.dumps({"futures": [{"prompt": [1]}]}))
    with pytest.raises(BadRequest, match="holds no futures"):
        Futures.load(file)
    with pytest.raises(BadRequest, match="holds no futures"):
        Futures.load(tmp_path / "nowhere.json")


def test_a_long_text_is_no_deeper_than_python_can_go(tmp_path):
    @dataclass(frozen=True)
    class Ones(Listed):
        def step(self, token):
            return replace(self, written=self.written + 1)

        def allows(self, token):
            return token == 1

        def complete(self):
            return self.written == 1050

    futures = Futures()
    run(
        Asap(futures), Table(2, lambda text: (1, 999)), Stop(most=1050), Philox(0), Constrained(Ones(frozenset(), 2, 0))
    )
    futures.save(tmp_path / "long.json")
    loaded = Futures.load(tmp_path / "long.json")
    assert loaded.roots[PROMPT].theta == pytest.approx(0.999**1050)


def test_samplers_say_when_no_text_can_be_found():
    model = table(2)
    for sampler in (Asap(), Cars(tries=500)):
        with pytest.raises(EmptyLaw, match="every way was tried"):
            run(sampler, model, Stop(tokens=frozenset({1}), most=2), Philox(0), Constrained(listed((0, 0, 1), vocab=2)))
    rare = Table(2, lambda text: (999, 1))
    with pytest.raises(EmptyLaw, match="none of 2 tries"):
        run(Cars(tries=2), rare, THREE, Philox(0), Constrained(listed((1, 1, 1), vocab=2)))
    with pytest.raises(EmptyLaw, match="within 1 rows"):
        run(Cars(rows=1), rare, THREE, Philox(0), Constrained(listed((0, 1, 1), vocab=2)))
