"""Turns: whoever takes long in every step leaves the others three quarters of the time, and comes to its own end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import JOBS, alone, slotted
from toy import Toy

from unspool.core.asks import Done, Emit, Score
from unspool.core.chance import Philox
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree
from unspool.rules.decode import plain
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.job import Account
from unspool.runtime.engine.turns import StepTimes

START, EACH = 0.010, 0.001  # seconds of a forward, and of each of its rows


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(CachedModel):
    """A model whose forwards take their time by the clock of a test."""

    clock: Clock

    def score(self, asked):
        self.clock.now += START + EACH * sum(len(one.tree) + 1 for one in asked)
        return super().score(asked)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in ("engine", "turns", "job"):
        monkeypatch.setattr(f"unspool.runtime.engine.{module}.perf_counter", made)
    return made


def engine_of(clock):
    model = Timed(Toy(vocab=4, room=4000))
    model.clock = clock
    return Engine({"target": model})


def slow(clock, seconds, turns=None, rows=0, rounds=10**6):
    """A method that thinks for so long in every round, or asks for so many rows, and writes nothing."""
    wide = Tree(tuple(chosen(0) for _ in range(rows)), (ROOT,) * rows)

    def method(text, chance, warp, stop):
        for _ in range(rounds):
            clock.now += seconds
            if turns is not None:
                turns.append(clock.now)
            yield Score(wide)
        return Done((), "length")

    return method


def written(engine, job, clock, tokens):
    """When each token of a text came, until it has so many."""
    came = [clock.now] * len(job.tokens)
    while len(came) < tokens:
        engine.step()
        came += [clock.now] * (len(job.tokens) - len(came))
    return came


def gaps(times):
    return [b - a for a, b in itertools.pairwise(times)]


@pytest.mark.parametrize("others", [1, 3])
@pytest.mark.parametrize(("seconds", "rows"), [(1.0, 0), (0.0, 700), (0.4, 300), (0.02, 0), (0.0, 2)])
def test_others_wait_at_most_twice_as_long(clock, seconds, rows, others):
    tokens = 1500
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=tokens), account=Account())
    quiet = gaps(written(engine, job, clock, 20))
    turns = [[] for _ in range(others)]
    for own in turns:
        engine.submit(slow(clock, seconds, own, rows), (2,), Philox(0), stop=Stop(), account=Account())
    busy = gaps(written(engine, job, clock, tokens)[20:])
    once = seconds + EACH * (rows + 1) + START  # what cannot be cut: one step of one of them
    assert sum(busy) <= 2 * len(busy) * max(quiet) + others * once
    assert max(busy) <= 2 * (1 + others) * max(quiet) + once
    assert all(len(own) >= 2 for own in turns)  # and nobody is left out
    assert min(map(len, turns)) >= 0.7 * max(map(len, turns)) - 1


def test_many_who_take_middling_long_hold_others_up_no_more_than_one_who_takes_long(clock):
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=600), account=Account())
    quiet = gaps(written(engine, job, clock, 20))
    turns = [[] for _ in range(6)]
    for own in turns:  # each of them less than what a forward takes
        engine.submit(slow(clock, 0.8 * START, own), (2,), Philox(0), stop=Stop(), account=Account())
    busy = gaps(written(engine, job, clock, 600)[20:])
    assert sum(busy) <= 2 * len(busy) * max(quiet)
    assert min(map(len, turns)) >= 0.7 * max(map(len, turns)) - 1


def test_those_who_take_like_the_others_all_take_part(clock):
    engine = engine_of(clock)
    turns = [[] for _ in range(12)]
    for i, own in enumerate(turns):
        engine.submit(slow(clock, START * (0.8 + i / 30), own), (2,), Philox(0), stop=Stop(), account=Account())
    for _ in range(50):
        engine.step()
    assert min(map(len, turns)) >= 45


def test_texts_of_one_request_share_its_turn(clock):
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=300), account=Account())
    written(engine, job, clock, 5)
    many, turns = Account(), [[] for _ in range(13)]
    for own in turns:
        engine.submit(slow(clock, 0.1, own), (2,), Philox(0), stop=Stop(), account=many)
    came = written(engine, job, clock, 300)[5:]
    assert max(gaps(came)) <= 0.1 + 3 * START
    assert came[-1] - came[0] <= 2 * 300 * (START + EACH) + 0.2
    assert max(map(len, turns)) - min(map(len, turns)) <= 2


def test_a_request_that_turns_slow_stops_in_the_middle_of_a_step(clock):
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=60), account=Account())
    many = Account()

    def later(text, chance, warp, stop):
        yield Score()
        yield Score()
        clock.now += 1.0
        yield Score()
        return Done((), "length")

    for _ in range(13):
        engine.submit(later, (2,), Philox(0), stop=Stop(), account=many)
    assert max(gaps(written(engine, job, clock, 60))) <= 1.0 + 10 * START


def test_alone_or_without_accounts_everybody_takes_part_in_every_step(clock):
    for accounts in ([None, None, None], [one := Account(), one, one]):
        engine = engine_of(clock)
        turns: list[float] = []
        engine.submit(slow(clock, 5.0, turns), (2,), Philox(0), stop=Stop(), account=accounts[0])
        engine.submit(slow(clock, 0.1), (2,), Philox(0), stop=Stop(), account=accounts[1])
        job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=20), account=accounts[2])
        written(engine, job, clock, 20)
        assert len(turns) >= 20


def test_two_who_take_equally_long_do_not_wait_for_each_other(clock):
    engine = engine_of(clock)
    turns: list[list[float]] = [[], []]
    for own in turns:
        engine.submit(slow(clock, 1.0, own, rounds=30), (2,), Philox(0), stop=Stop(), account=Account())
    steps = 0
    while engine.step():
        steps += 1
    assert steps <= 36


def test_who_waits_for_a_turn_ends_when_its_time_is_over(clock):
    engine = engine_of(clock)
    other = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=900), account=Account())
    limit = Stop(seconds=3.0, clock=clock)
    turns: list[float] = []
    late = engine.submit(slow(clock, 2.9, turns), (2,), Philox(0), stop=limit, account=Account())
    while late.state != "ended":
        engine.step()
    assert late.result().reason == "time"
    assert len(turns) == 1
    assert clock.now < 3.1
    assert other.state == "live"


@settings(max_examples=15, deadline=None)
@given(
    seconds=st.lists(st.floats(0, 0.5), min_size=6, max_size=6),
    shared=st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_no_text_depends_on_turns(seconds, shared):
    apart = [alone(method, prompt, seed, slotted()) for seed, (method, prompt) in enumerate(JOBS)]
    now = Clock()

    def thinking(method, took):
        def decoding(*given):
            inner, reply = method(*given), None
            while True:
                now.now += took
                try:
                    reply = yield inner.send(reply)
                except StopIteration as end:
                    return end.value

        return decoding

    accounts = [Account() for _ in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        for module in ("engine", "turns", "job"):
            patch.setattr(f"unspool.runtime.engine.{module}.perf_counter", now)
        engine = Engine(slotted())
        jobs = [
            engine.submit(thinking(m, seconds[i]), p, Philox(i), stop=Stop(most=9), account=accounts[shared[i]])
            for i, (m, p) in enumerate(JOBS)
        ]
        engine.run()
    assert [job.result() for job in jobs] == apart
    assert all(isinstance(emit, Emit) for job in jobs for emit in job.emitted)


def test_a_pace_is_the_line_through_what_was_seen():
    pace = StepTimes()
    assert (pace.start, pace.each) == (0.0, 0.0)
    pace.add(4, 0.2)
    assert pace.each == pytest.approx(0.05)  # nothing else is known yet
    for rows in (1, 30, 2, 64, 8):
        pace.add(rows, 0.03 + 0.002 * rows)
    for _ in range(400):
        pace.add(1, 0.032)
        pace.add(50, 0.13)
    assert pace.each == pytest.approx(0.002)
    assert pace.start == pytest.approx(0.03)
    for _ in range(1000):
        pace.add(1, 0.001)
        pace.add(50, 0.0001)
    assert pace.each == 0.0
