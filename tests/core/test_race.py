"""Races: enumeration against closed forms, Philox against enumeration, and one text per seed with any drafter."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unspool.core.chance import At, Every, Philox, Role, Tape, philox, total_variation, waits
from unspool.core.claim import LAW, SEED
from unspool.core.errors import EmptyLaw
from unspool.core.law import Law
from unspool.core.race import Racing, Region
from unspool.core.stop import Stop
from unspool.proof import prove
from unspool.rules.decode import Speculate
from unspool.rules.draft import Chain, Coupled, Jacobi, Lookup, Nothing, Raced
from unspool.rules.verify import race, sample_match
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

HERE, THERE = At(3, Role.PICK), At(4, Role.PICK)
quick = settings(max_examples=40, deadline=None)
weights = st.lists(st.integers(0, 6), min_size=4, max_size=4).filter(any)


def both(p, q):
    """Pr(both races choose x) by the formula of the paper, for each x."""
    return {
        x: 1 / sum(max(p[y] / p[x], q[y] / q[x]) for y in range(p.size)) for x in range(p.size) if p[x] > 0 and q[x] > 0
    }


def tv(p, q):
    return total_variation(dict(enumerate(p.p.tolist())), dict(enumerate(q.p.tolist())))


# ---- enumeration


@quick
@given(weights, weights)
def test_two_races_with_the_same_waiting_times_agree_as_often_as_the_formula_says(one, other):
    p, q = Law.of(one), Law.of(other)
    joint = Every().law(lambda chance: (chance.race(p, HERE), chance.race(q, HERE)))
    assert sum(joint.values()) == pytest.approx(1, abs=1e-12)
    for law, side in ((p, 0), (q, 1)):
        marginal = [sum(mass for pair, mass in joint.items() if pair[side] == x) for x in range(4)]
        assert marginal == pytest.approx(law.p.tolist(), abs=1e-12)
    agreed = {x: joint.get((x, x), 0.0) for x in both(p, q)}
    assert agreed == pytest.approx(both(p, q), abs=1e-12)
    assert sum(agreed.values()) >= (1 - tv(p, q)) / (1 + tv(p, q)) - 1e-12


def test_a_pair_that_disagrees_by_hand():
    # E0/E1 below 1/3 or above 3 decides both alike; E0/E1 = r has the density 1/(1 + r)²
    p, q = Law.of([3, 1]), Law.of([1, 3])
    joint = Every().law(lambda chance: (chance.race(p, HERE), chance.race(q, HERE)))
    assert joint == pytest.approx({(0, 0): 1 / 4, (0, 1): 1 / 2, (1, 1): 1 / 4}, abs=1e-14)


@quick
@given(weights, weights, weights)
def test_the_order_of_races_does_not_matter(a, b, c):
    laws = [Law.of(w) for w in (a, b, c)]
    joints = []
    for order in itertools.permutations(range(3)):
        found = Every().law(lambda chance, order=order: tuple((i, chance.race(laws[i], HERE)) for i in order))
        joints.append({tuple(x for _, x in sorted(pairs)): mass for pairs, mass in found.items()})
    for joint in joints[1:]:
        assert total_variation(joint, joints[0]) < 1e-12


def test_the_same_race_twice_has_one_winner_and_other_addresses_and_choices_are_independent():
    p = Law.of([1, 2, 3])
    same = Every().law(lambda chance: (chance.race(p, HERE), chance.race(p, HERE)))
    assert all(one == other for one, other in same)
    for program in (
        lambda chance: (chance.race(p, HERE), chance.race(p, THERE)),
        lambda chance: (chance.race(p, HERE), chance.choose(p, HERE)),
    ):
        product = {(x, y): p[x] * p[y] for x in range(3) for y in range(3)}
        assert total_variation(Every().law(program), product) < 1e-12


def test_a_token_that_joins_later_has_not_waited():
    region = Region().of((0, 1)).won({0: 1.0, 1: 1.0}, 0)
    assert region.mass == pytest.approx(1 / 2)
    assert region.of((2,)).mass == pytest.approx(1 / 2)
    # given E0 < E1, the third of three equals is first with probability 1/3, as ever
    assert region.of((2,)).won({0: 1.0, 1: 1.0, 2: 1.0}, 2).mass == pytest.approx(1 / 6)


# ---- drawing


def test_philox_on_tensors_is_philox():
    key, tokens = (0xDEADBEEF, 0xFFFFFFFF), torch.tensor([0, 1, 77, 49151, 2**31 + 5])
    zero = torch.zeros_like(tokens)
    words = [w.tolist() for w in philox((tokens, zero, zero, zero), key)]
    assert list(zip(*words, strict=True)) == [philox((int(x), 0, 0, 0), key) for x in tokens]


def test_philox_s_races_agree_as_often_as_enumeration_says():
    p, q, n = Law.of([1, 2, 0, 3]), Law.of([2, 2, 1, 1]), 2000
    joint = Every().law(lambda chance: (chance.race(p, HERE), chance.race(q, HERE)))
    found = [(Philox(seed).race(p, HERE), Philox(seed).race(q, HERE)) for seed in range(n)]
    for pair in itertools.product(range(4), repeat=2):
        assert found.count(pair) / n == pytest.approx(joint.get(pair, 0.0), abs=0.04)


def test_a_race_does_not_depend_on_what_cannot_win_or_on_the_size_of_the_vocabulary():
    short, long = Law.of([1, 2, 3]), Law.of([1, 2, 3, 0, 0])
    assert [Philox(s).race(short, HERE) for s in range(50)] == [Philox(s).race(long, HERE) for s in range(50)]
    assert Philox(1).race(Law.point(4), HERE) == 4
    with pytest.raises(EmptyLaw):
        Philox(1).race(Law.of([1, 1]).without(0, 1), HERE)


def test_a_tape_replays_waiting_times():
    tape = Tape({}, {HERE: torch.tensor([3.0, 1.0, 1.0])})
    assert tape.race(Law.of([1, 1, 1]), HERE) == 1
    assert tape.race(Law.of([6, 1, 1]), HERE) == 0
    assert Racing(tape).choose(Law.of([1, 0, 1]), HERE) == 2
    assert bool((waits(50000, (1, 2)) > 0).all())
    assert float(waits(50000, (1, 2)).mean()) == pytest.approx(1, abs=0.02)


# ---- decoding


def always(*w):
    return Table(len(w), lambda text: w)


def accepted(draft, verify, target, drafter):
    """How many tokens of one round's draft are expected to stand."""

    def program(chance):
        engine = Engine({"target": target, "draft": drafter})
        job = engine.submit(Speculate(draft, verify), (0,), chance, stop=Stop(most=9))
        while not job.emitted:
            engine.step()
        engine.cancel(job)
        return job.emitted[0].accepted

    return sum(n * mass for n, mass in Every().law(program).items())


def test_the_race_accepts_what_the_formula_says_and_more_than_shared_uniforms_where_those_shift():
    for p, q in (((1, 0, 1, 1), (0, 1, 1, 1)), ((3, 1), (1, 1)), ((1, 2, 3), (3, 2, 1))):
        laws = Law.of(p), Law.of(q)
        assert accepted(Raced(1), race, always(*p), always(*q)) == pytest.approx(sum(both(*laws).values()))
    p, q = (1, 3, 3, 3), (3, 3, 3, 1)  # the intervals of all four tokens are shifted
    assert accepted(Raced(1), race, always(*p), always(*q)) == pytest.approx(0.7)
    assert accepted(Coupled(1), sample_match, always(*p), always(*q)) == pytest.approx(0.4)
    assert accepted(Raced(2), race, always(1, 2), always(1, 2)) == pytest.approx(2)


def texts(table, draft, stop, chance):
    engine = Engine({"target": table, "draft": Table(3, lambda text: (1 + len(text) % 2, 2, 1))})
    job = engine.submit(Speculate(draft, race), (0, 1), chance, stop=stop)
    engine.run()
    return job.result().tokens


def cycling(text):
    return (3, 1, 2) if len(text) % 2 else (1, 1, 5)


@pytest.mark.parametrize(
    "draft", [Raced(2), Chain(1), Lookup(1, 1, 2), Jacobi()], ids=lambda draft: type(draft).__name__
)
def test_one_seed_has_one_text_whatever_is_drafted(draft):
    """In every branch of the enumeration, and then for long texts with Philox."""
    table = Table(3, cycling)
    short, long = Stop(most=2), Stop(most=30)
    pairs = Every().law(lambda c: (texts(table, draft, short, c), texts(table, Nothing(), short, c)))
    assert all(drafted == plain for drafted, plain in pairs)
    for seed in range(4):
        assert texts(table, draft, long, Philox(seed)) == texts(table, Nothing(), long, Philox(seed))


def test_the_race_is_exact_in_law_but_writes_another_text_than_plain_decoding():
    assert prove(Speculate(Nothing(), race), LAW, quick=True).ok
    assert not prove(Speculate(Nothing(), race), SEED, quick=True).ok
