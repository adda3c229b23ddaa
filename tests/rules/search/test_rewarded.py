"""Reward-guided particles: proper weights for every variant, by enumeration, and what a planted slip does to them."""

import math
import re
from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
import torch
from listed import Listed
from repository import ROOT
from toy import Toy, logits_of
from truth import law_of_text

from unspool.core.chance import Every, Philox
from unspool.core.errors import BadRequest, EmptyLaw
from unspool.core.law import NEVER
from unspool.core.stop import Stop
from unspool.core.warp import Same, TopK
from unspool.recipes.methods import method as named
from unspool.rules.constrain import Constrained, FullMask, Recursive
from unspool.rules.search import LookaheadTwist, Rewarded, Smc
from unspool.rules.search.particle import log_mean
from unspool.rules.search.smc import PrefixTwist, multinomial, residual, stratified, systematic
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

PROMPT = (0,)


def table(vocab, salt=0):
    def weights(text):
        generator = torch.Generator().manual_seed(hash((salt, *text)) & 0x7FFFFFFF)
        return (torch.rand(vocab, generator=generator, dtype=torch.float64) + 0.05).tolist()

    return Table(vocab, weights)


def letters(**more):
    return Stop(piece=lambda token: bytes([97 + token]), **more)


def run(method, model, stop, chance, warp=None):
    engine = Engine({"target": model, "draft": table(model.vocab, salt=77)})
    job = engine.submit(method, PROMPT, chance, warp or Same(), stop)
    engine.run()
    return job.result()


def means(method, model, stop, warp=None):
    """E[Σ w·1{text}]/n for every text, and E[exp(log marginal)]."""

    def program(chance):
        seen = []
        try:
            run(replace(method, watch=seen.extend), model, stop, chance, warp)
        except EmptyLaw:
            seen = [text.ranked(NEVER) for text in seen]
        return tuple((text.tokens, text.score) for text in seen)

    mean, total = defaultdict(float), 0.0
    for cloud, mass in Every().law(program).items():
        total += mass * math.exp(log_mean([weight for _, weight in cloud]))
        for tokens, weight in cloud:
            mean[tokens] += mass * math.exp(weight) / len(cloud)
    return {tokens: value for tokens, value in mean.items() if value > 0}, total


def spelt(tokens):
    return bytes(97 + x for x in tokens).decode()


def reward(text):
    """Likes b's, above all a last one."""
    return text.count("b") - 0.5 * text.startswith("b") + text.endswith("b")


def hard(text):
    """Texts with a single b, and nothing else."""
    return 0.0 if text.count("b") == 1 else -math.inf


def partial(text):
    return 0.8 * text.count("a") - 0.3


def wanted(model, stop, function, beta=1.0, power=1.0):
    law = law_of_text(model, PROMPT, Same(), stop)
    worth = {d.tokens: p**power * math.exp(beta * function(spelt(d.tokens))) for d, p in law.items()}
    return {tokens: value for tokens, value in worth.items() if value > 0}


def proper(method, model, stop, truth, warp=None):
    mean, total = means(method, model, stop, warp)
    assert mean == pytest.approx(truth, abs=1e-12)
    assert total == pytest.approx(sum(truth.values()), abs=1e-12)


@pytest.mark.parametrize("resample", [multinomial, stratified, systematic, residual])
@pytest.mark.parametrize("twist", [PrefixTwist(), LookaheadTwist(1)], ids=["prefix", "lookahead"])
def test_both_variants_are_properly_weighted_with_every_way_of_resampling(twist, resample):
    model, stop = table(2, salt=3), letters(most=2)
    smc = Smc(2, potential=Rewarded(reward, 0.7, partial), resample=resample, threshold=1.5, twist=twist)
    proper(smc, model, stop, wanted(model, stop, reward, 0.7))


@pytest.mark.parametrize("propose", [FullMask(), Recursive()], ids=lambda propose: type(propose).__name__)
@pytest.mark.parametrize(
    ("particles", "vocab", "warp"),
    [
        (2, 2, Same()),
        (1, 3, TopK(2)),
        (1, 3, Constrained(Listed(frozenset({(0, 1), (1, 1), (2, 0)}), 3))),
    ],
    ids=["two", "warped", "constrained"],
)
def test_a_model_that_proposes_leaves_the_weights_proper(propose, particles, vocab, warp):
    """Whatever it proposes, and although warps forbid tokens that it would write."""
    model, stop = table(vocab, salt=3), letters(most=2)
    smc = Smc(particles, propose, resample=multinomial, threshold=1.5)
    (own, total), (guided, other) = (means(replace(smc, draft=share), model, stop, warp) for share in (0.0, 0.6))
    assert guided == pytest.approx(own, abs=1e-12)
    assert other == pytest.approx(total, abs=1e-12)


def test_what_is_proposed_is_what_the_other_model_would_write():
    model, stop = Table(2, lambda text: (9, 1)), letters(most=1)
    other = Table(2, lambda text: (1, 9))

    def drawn(draft):
        engine = Engine({"target": model, "draft": other})
        jobs = [engine.submit(Smc(1, draft=draft), PROMPT, Philox(seed), Same(), stop) for seed in range(40)]
        engine.run()
        return sum(job.result().tokens[0] for job in jobs)

    assert drawn(0.0) < 10 < 25 < drawn(0.9)  # of 40; one particle has nobody to be resampled for


@pytest.mark.parametrize(
    ("smc", "most", "salt"),
    [
        (Smc(2, resample=systematic, threshold=1.5, block=2, twist=LookaheadTwist(1)), 3, 3),
        (Smc(1, threshold=1.5, twist=LookaheadTwist(2)), 2, 5),
        (Smc(1, threshold=1.5, twist=LookaheadTwist(2, steps=1)), 3, 5),
        (Smc(1, threshold=1.5, moves=1, twist=LookaheadTwist(1)), 2, 4),
        (Smc(1, threshold=1.5, moves=2), 2, 4),
        (Smc(1, threshold=1.5, moves=1, back=2), 3, 4),
        (Smc(1, threshold=0.5, moves=1, back=2), 5, 4),
        (Smc(2, resample=systematic, threshold=1.5, moves=1, back=2), 2, 1),
        (Smc(2, resample=systematic, threshold=0.98, moves=1), 2, 1),
    ],
    ids=["blocks", "two rollouts", "short rollouts", "ahead, moves", "two moves", "cuts", "ends", "two", "sometimes"],
)
def test_blocks_rollouts_and_moves_leave_the_weights_proper(smc, most, salt):
    ends = {"most": 3, "tokens": frozenset({1})} if most == 5 else {"most": most}
    model, stop = table(2, salt=salt), letters(**ends)
    for function in (reward, hard):
        proper(
            replace(smc, potential=Rewarded(function, 0.6, partial)), model, stop, wanted(model, stop, function, 0.6)
        )


def test_a_power_a_constraint_and_a_reward_together():
    model, stop = table(2, salt=6), letters(most=2)
    language = Listed(frozenset({(0, 0), (0, 1), (1, 1)}), 2)
    truth = {t: v for t, v in wanted(model, stop, reward, 0.7, power=2.0).items() if t in language.texts}
    smc = Smc(2, FullMask(2.0), Rewarded(reward, 0.7), systematic, 1.5, twist=LookaheadTwist(1))
    proper(smc, model, stop, truth, Constrained(language))
    truth = {t: v for t, v in wanted(model, stop, reward, 0.7).items() if t in language.texts}
    smc = Smc(1, Recursive(), Rewarded(reward, 0.7), systematic, 1.5, twist=LookaheadTwist(1))
    proper(smc, model, stop, truth, Constrained(language))


def test_an_end_token_keeps_its_weight():
    model, stop = table(2, salt=2), letters(tokens=frozenset({1}), most=3)
    smc = Smc(2, potential=Rewarded(reward, 0.9, partial), resample=systematic, threshold=1.5)
    proper(smc, model, stop, wanted(model, stop, reward, 0.9))


def test_planted_slips_are_seen():
    model, stop = table(2, salt=4), letters(most=2)
    truth = wanted(model, stop, hard)

    @dataclass(frozen=True)
    class Final(LookaheadTwist):
        """A lookahead without a floor: who sees nothing of worth dies of it."""

        def __call__(self, pen, cloud, held):
            looked = yield from super().__call__(pen, cloud, held)
            least = math.log(self.floor) + 1e-9
            return [one.heavier(NEVER) if one.live and one.guess <= least else one for one in looked]

    mean, _ = means(Smc(1, potential=Rewarded(hard), twist=Final(1)), model, stop)
    assert mean != pytest.approx(truth, abs=1e-3)

    @dataclass(frozen=True)
    class Kept(LookaheadTwist):
        """A lookahead whose guess stays in the weight."""

        def __call__(self, pen, cloud, held):
            looked = yield from super().__call__(pen, cloud, held)
            return [replace(one, guess=0.0) for one in looked]

    mean, _ = means(Smc(1, potential=Rewarded(reward), twist=Kept(1)), model, stop)
    assert mean != pytest.approx(wanted(model, stop, reward), abs=1e-3)

    @dataclass(frozen=True)
    class Sure:
        """A Metropolis step that is always taken."""

        chance: object

        def choose(self, law, at):
            return self.chance.choose(law, at)

        def coin(self, p, at):
            return p > 0

    seen = defaultdict(float)

    def program(chance):
        found = []
        smc = Smc(1, potential=Rewarded(reward, 1.0, reward), threshold=1.5, moves=1, watch=found.extend)
        run(smc, model, stop, Sure(chance))
        return tuple((text.tokens, text.score) for text in found)

    for cloud, mass in Every().law(program).items():
        for tokens, weight in cloud:
            seen[tokens] += mass * math.exp(weight)
    assert dict(seen) != pytest.approx(wanted(model, stop, reward), abs=1e-3)


def test_moves_that_choose_their_moment_are_seen():
    """Steps that leave the wanted law as it is do so only if they are taken whatever the particles say."""
    uneven = []

    @dataclass(frozen=True)
    class Waiting(Smc):
        """Moves only what was just resampled."""

        def _is_uneven(self, cloud):
            uneven[:] = [super()._is_uneven(cloud)]
            return uneven[0]

        def _rejuvenated(self, pen, cloud, past):
            return (yield from super()._rejuvenated(pen, cloud, past)) if uneven[0] else (cloud, past)

    @dataclass(frozen=True)
    class Hasty(Smc):
        """Is done as soon as every text has ended."""

        def _goes_on(self, pen, cloud, past):
            return pen.grove.affords([one.text for one in cloud if one.live])

    @dataclass(frozen=True)
    class Idle(Smc):
        """Moves nothing that has ended."""

        def _rejuvenated(self, pen, cloud, past):
            alive = any(one.live for one in cloud)
            return (yield from super()._rejuvenated(pen, cloud, past)) if alive else (cloud, past)

    ends = letters(most=3, tokens=frozenset({1}))
    for kind, n, stop, threshold in [(Waiting, 2, letters(most=2), 0.98), (Hasty, 1, ends, 0.5), (Idle, 1, ends, 0.5)]:
        model = table(2, salt=4)
        slip = kind(n, potential=Rewarded(reward, 0.6, partial), resample=systematic, threshold=threshold, moves=1)
        slip = replace(slip, back=2 if kind is Hasty else 1)
        mean, _ = means(slip, model, stop)
        gap = max(abs(mean[text] - value) for text, value in wanted(model, stop, reward, 0.6).items())
        assert gap > 1e-4, kind


def test_the_rewards_of_the_docs_run():
    page = (ROOT / "docs/search.md").read_text()
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def passed" in block)
    scope = {}
    exec(code, scope)
    assert scope["passed"]("def add(a, b):\n    return a + b") == 1.0
    assert scope["passed"]("def add(a, b):\n    return 0") == 0.5
    assert scope["passed"]("nonsense(") == 0.0
    assert run(scope["sampled"], table(3), letters(most=4), Philox(0)).tokens
    assert run(scope["planned"], table(3), letters(most=2), Philox(0)).tokens


def test_a_perfect_outlook_makes_all_weights_equal():
    """With exact V the weight of every text is Z, whatever it says; with ψ = 1 nothing is ever resampled."""
    model, stop = table(2, salt=5), letters(most=2)
    truth = wanted(model, stop, reward)

    @dataclass(frozen=True)
    class Exact:
        texts: int = 0

        def __call__(self, pen, cloud, held):
            yield from ()
            return [one.heavier(0.0, math.log(ahead(one.text.tokens))) if one.live else one for one in cloud]

    def ahead(tokens):
        p = math.exp(sum(model.law(PROMPT + tokens[:i]).logprob(x) for i, x in enumerate(tokens)))
        return sum(value for text, value in truth.items() if text[: len(tokens)] == tokens) / p

    def spread(smc):
        found = []
        for seed in range(20):
            run(replace(smc, watch=found.extend), model, stop, Philox(seed))
        return found

    def never(weights, chance, position):
        raise AssertionError("resampled")

    even = spread(Smc(4, potential=Rewarded(lambda text: 0.0), resample=never, twist=LookaheadTwist(2, floor=1e-12)))
    assert {round(text.score, 9) for text in even} == {0.0}
    exact = Smc(2, potential=Rewarded(reward), resample=systematic, threshold=1.5, twist=Exact())
    proper(exact, model, stop, truth)


def test_looking_ahead_finds_what_a_beginning_does_not_show():
    """Only bbbb is worth anything, and nothing before its end says so."""
    even, stop = Table(2, lambda text: (1, 1)), letters(most=4)
    only = Rewarded(lambda text: 0.0 if text == "bbbb" else -9.0)

    def found(twist):
        smc = Smc(4, potential=only, resample=systematic, threshold=0.9, twist=twist)
        return sum(run(smc, even, stop, Philox(seed)).tokens == (1, 1, 1, 1) for seed in range(30))

    assert found(LookaheadTwist(8)) > 1.5 * found(PrefixTwist())


def test_particles_that_look_ahead_inside_a_real_cache():
    stop = letters(most=5)
    alone = Table(4, lambda text: logits_of(text, 4).exp().tolist())
    smc = Smc(3, potential=Rewarded(reward, 1.0), threshold=1.5, block=2, moves=2, back=2, twist=LookaheadTwist(2, 3))
    for seed in range(5):
        toy = Toy(vocab=4, room=2000)
        assert run(smc, CachedModel(toy), stop, Philox(seed)) == run(smc, alone, stop, Philox(seed))
        assert toy.slots.in_use == 0


def test_by_name_and_what_is_refused(tmp_path):
    file = tmp_path / "grade.py"
    file.write_text(
        "def likes(text):\n    return 4.0 * text.count('b')\n\ndef fails(text):\n    raise KeyError(text)\n"
    )
    smc = named(f"rewarded:reward={file}:likes,beta=2,ahead=3,particles=6,block=1,moves=1,back=2")
    assert smc.texts == 6 * 5
    even = Table(2, lambda text: (1, 1))
    assert all(sum(run(smc, even, letters(most=3), Philox(seed)).tokens) >= 2 for seed in range(5))
    seen = []
    ending = Rewarded(lambda text: seen.append(text) or 0.0)
    run(Smc(2, potential=ending), table(3), letters(strings=("b",), most=6), Philox(1))
    assert seen
    assert not any("b" in text for text in seen)  # a stop string is no part of the text
    with pytest.raises(BadRequest, match="the reward fails raised KeyError"):
        run(named(f"rewarded:reward={file}:fails"), table(2), letters(most=2), Philox(0))
    with pytest.raises(BadRequest, match="gave nan"):
        run(Smc(2, potential=Rewarded(lambda text: math.nan)), table(2), letters(most=2), Philox(0))
    with pytest.raises(EmptyLaw, match="all 2 particles have weight 0"):
        run(Smc(2, potential=Rewarded(lambda text: -math.inf)), table(2), letters(most=2), Philox(0))
    for make, message in [
        (lambda: Rewarded(len, 0.0), r"beta is 0\.0"),
        (lambda: Rewarded("b"), "reward is 'b'; expected a function"),
        (lambda: LookaheadTwist(0), "lookahead:rollouts is 0"),
        (lambda: LookaheadTwist(floor=0.0), "lookahead:floor is 0"),
        (lambda: Smc(back=0), "smc:back is 0"),
        (lambda: named("rewarded:resample=fair"), "rewarded:resample is 'fair'; expected one of multinomial"),
    ]:
        with pytest.raises(BadRequest, match=message):
            make()
