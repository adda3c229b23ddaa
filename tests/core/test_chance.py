"""Chance: known answers of Philox, addresses, and enumeration against laws worked out by hand."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unspool.core.chance import At, Every, Philox, Role, Tape, TooManyBranches, philox, total_variation
from unspool.core.law import Law

quick = settings(max_examples=60, deadline=None)
ones = 0xFFFFFFFF
masses = st.lists(st.floats(0.01, 1), min_size=2, max_size=5)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_random123(counter, key, answer):
    assert philox(counter, key) == answer


def test_a_uniform_is_53_bits_of_the_first_two_words():
    assert Philox(0).uniform(At(0, Role.PICK)) == ((0x6627E8D5 << 32 | 0xE169C58D) >> 11) / 2**53


def test_what_is_certain_needs_no_number(monkeypatch):
    chance, at = Philox(3), At(5, Role.PICK)
    certain = Law.of([0.0, 1.0, 0.0])
    assert (chance.choose(certain, at), chance.race(certain, at)) == (1, 1)
    places = [At(i, Role.ACCEPT) for i in range(40)]
    assert [chance.coin(0.25, place) for place in places] == [chance.uniform(place) < 0.25 for place in places]
    monkeypatch.setattr("unspool.core.chance.philox", lambda *_: pytest.fail("a number was drawn"))
    point = Law.point(1)
    assert (chance.choose(point, at), chance.race(point, at)) == (1, 1)
    assert chance.coin(1.0, at) is True
    assert chance.coin(0.0, at) is False


ADDRESSES = [At(i, role, k, r) for i, role, k, r in itertools.product(range(5), Role, range(3), range(3))]


def test_an_address_has_its_number_in_whatever_order_it_is_asked():
    chance = Philox(7)
    forward = {at: chance.uniform(at) for at in ADDRESSES}
    shuffled = random.Random(1).sample(ADDRESSES, len(ADDRESSES))
    assert {at: Philox(7).uniform(at) for at in shuffled} == forward


def test_addresses_seeds_and_streams_all_have_numbers_of_their_own():
    sources = [Philox(seed, stream) for seed in (0, 1, 2**32, 2**64 - 1) for stream in (0, 1)]
    numbers = {source.uniform(at) for source in sources for at in ADDRESSES}
    assert len(numbers) == len(sources) * len(ADDRESSES)


def test_uniforms_are_uniform():
    numbers = [Philox(5).uniform(At(i, Role.DRAFT)) for i in range(4000)]
    assert all(0 <= u < 1 for u in numbers)
    bins = [sum(int(u * 10) == b for u in numbers) for b in range(10)]
    assert sum((n - 400) ** 2 / 400 for n in bins) < 27.9  # χ² with 9 degrees of freedom, 0.1 %


def test_draws_follow_the_law_and_coins_their_chance():
    law, chance, n = Law.of([1, 0, 2, 1]), Philox(11), 4000
    tokens = [chance.choose(law, At(i, Role.PICK)) for i in range(n)]
    heads = sum(chance.coin(0.3, At(i, Role.ACCEPT)) for i in range(n))
    assert [tokens.count(x) / n for x in range(4)] == pytest.approx([0.25, 0, 0.5, 0.25], abs=0.03)
    assert tokens.count(1) == 0
    assert heads / n == pytest.approx(0.3, abs=0.03)
    assert not chance.coin(0.0, At(0, Role.ACCEPT))
    assert chance.coin(1.0, At(0, Role.ACCEPT))


@quick
@given(masses, st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_a_tape_of_philox_s_numbers_is_philox(w, p, seed):
    law, source = Law.of(w), Philox(seed)
    tape = Tape({at: source.uniform(at) for at in ADDRESSES})
    for at in ADDRESSES[::7]:
        assert tape.choose(law, at) == source.choose(law, at)
        assert tape.coin(p, at) == source.coin(p, at)


def test_a_tape_has_no_number_that_was_not_taped():
    with pytest.raises(KeyError):
        Tape({}).coin(0.5, At(0, Role.PICK))


# ---- enumeration


def at(i, role=Role.PICK):
    return At(i, role)


def test_the_sum_of_two_dice():
    die = Law.of([0, 1, 1, 1, 1, 1, 1])
    every = Every()
    law = every.law(lambda chance: chance.choose(die, at(0)) + chance.choose(die, at(1)))
    assert law == pytest.approx({s: (6 - abs(s - 7)) / 36 for s in range(2, 13)}, abs=1e-15)
    assert every.branches == 36


def test_a_program_whose_choices_depend_on_choices():
    # roll again after a six, at most twice
    die = Law.of([0, 1, 1, 1, 1, 1, 1])

    def program(chance):
        rolls = [chance.choose(die, at(0))]
        while rolls[-1] == 6 and len(rolls) < 3:
            rolls.append(chance.choose(die, at(len(rolls))))
        return tuple(rolls)

    every = Every()
    law = every.law(program)
    assert law == pytest.approx(
        {
            **{(a,): 1 / 6 for a in range(1, 6)},
            **{(6, a): 1 / 36 for a in range(1, 6)},
            **{(6, 6, a): 1 / 216 for a in range(1, 7)},
        },
        abs=1e-15,
    )
    assert every.branches == 16


def test_a_program_without_chance_has_one_branch():
    every = Every()
    assert every.law(lambda chance: "always") == {"always": 1.0}
    assert every.branches == 1


@quick
@given(masses)
def test_the_same_address_twice_is_the_same_number(w):
    law = Law.of(w)
    found = Every().law(lambda chance: (chance.choose(law, at(0)), chance.choose(law, at(0))))
    assert found == pytest.approx({(x, x): law[x] for x in range(len(w))}, abs=1e-12)


@quick
@given(masses, masses)
def test_fresh_addresses_are_independent(v, w):
    a, b = Law.of(v), Law.of(w)
    for other in (At(1, Role.PICK), At(0, Role.DRAFT), At(0, Role.PICK, 1), At(0, Role.PICK, 0, 1)):
        found = Every().law(lambda chance, other=other: (chance.choose(a, at(0)), chance.choose(b, other)))
        expected = {(x, y): a[x] * b[y] for x in range(len(v)) for y in range(len(w))}
        assert found == pytest.approx(expected, abs=1e-12)


@quick
@given(masses, masses)
def test_two_laws_at_one_address_are_coupled_by_their_order(v, w):
    """P(X ≤ x, Y ≤ y) = min(F(x), G(y)): so E|X − Y| = Σ |F − G|, the least that any coupling can give."""
    size = min(len(v), len(w))
    a, b = Law.of(v[:size]), Law.of(w[:size])
    found = Every().law(lambda chance: (chance.choose(a, at(0)), chance.choose(b, at(0))))
    for x, y in itertools.product(range(size), repeat=2):
        below = sum(m for (i, j), m in found.items() if i <= x and j <= y)
        assert below == pytest.approx(min(float(a.cdf[x]), float(b.cdf[y])), abs=1e-12)
    distance = sum(m * abs(i - j) for (i, j), m in found.items())
    assert distance == pytest.approx(float((a.cdf - b.cdf).abs().sum()), abs=1e-12)


@quick
@given(st.floats(0, 1), st.floats(0, 1))
def test_two_coins_at_one_address_differ_by_the_difference_of_their_chances(p, q):
    found = Every().law(lambda chance: chance.coin(p, at(0)) != chance.coin(q, at(0)))
    assert found.get(True, 0.0) == pytest.approx(abs(p - q), abs=1e-12)


@quick
@given(masses, st.floats(0, 1))
def test_marginals_do_not_depend_on_what_else_shares_the_address(w, p):
    law = Law.of(w)

    def second(chance):
        chance.coin(p, at(0))
        return chance.choose(law, at(0))

    assert total_variation(Every().law(second), dict(enumerate(law.p.tolist()))) < 1e-12


@quick
@given(st.integers(0, 2**32))
def test_every_agrees_with_philox_on_what_can_happen_together(seed):
    a, b = Law.of([1, 2, 3]), Law.of([3, 0, 1])

    def program(chance):
        x = chance.choose(a, at(0))
        return x, chance.choose(b, at(0)), chance.coin(0.4, at(x, Role.ACCEPT)), chance.coin(0.7, at(0, Role.ACCEPT))

    assert program(Philox(seed)) in Every().law(program)


def test_single_precision_laws_lose_no_mass_and_no_branch():
    for seed in range(20):
        law = Law(torch.randn(50, generator=torch.Generator().manual_seed(seed)))
        found = Every().law(lambda chance, law=law: (chance.coin(1 - 2e-8, at(0)), chance.choose(law, at(0))))
        assert sum(found.values()) == pytest.approx(1, abs=1e-12)


def test_an_outcome_of_no_chance_is_not_visited():
    every = Every()
    law = Law.of([1, 0, 1])
    found = every.law(lambda chance: (chance.choose(law, at(0)), chance.coin(0.0, at(1)), chance.coin(1.0, at(2))))
    assert found == {(0, False, True): 0.5, (2, False, True): 0.5}
    assert every.branches == 2


def test_an_enumerator_can_be_used_again():
    every = Every()
    coin = Law.of([1, 1])
    once = every.law(lambda chance: chance.choose(coin, at(0)))
    assert every.law(lambda chance: chance.choose(coin, at(0))) == once == {0: 0.5, 1: 0.5}
    assert every.branches == 2


def test_too_many_branches_are_too_many():
    die = Law.of([1] * 6)

    def rolls(chance):
        return tuple(chance.choose(die, at(i)) for i in range(2))

    assert len(Every(most=36).law(rolls)) == 36
    with pytest.raises(TooManyBranches, match="35"):
        Every(most=35).law(rolls)


def test_total_variation():
    assert total_variation({"a": 1.0}, {"b": 1.0}) == 1.0
    assert total_variation({"a": 0.5, "b": 0.5}, {"a": 0.25, "b": 0.25, "c": 0.5}) == 0.5
    assert total_variation({"a": 0.3, "b": 0.7}, {"b": 0.7, "a": 0.3}) == 0.0
