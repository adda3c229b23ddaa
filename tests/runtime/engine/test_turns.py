"""Turns: whoever takes long in every step leaves the others three quarters of the time, and comes to its own end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selection import crossed
from test_engine import JOBS, alone, slotted
from ticking import EACH, START, Clock, Computing, Timed, gaps, written
from toy import Toy

from unspool.core.asks import Done, Emit, GiveWay, Keep, Score
from unspool.core.chance import Philox
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.rules.decode import plain
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.job import LONG, Account
from unspool.runtime.engine.turns import PAUSES, StepTimes, Turns


def engine_of(clock):
    model = Timed(Toy(vocab=4, room=4000))
    model.clock = clock
    return Engine({"target": model})


def jobs_of(clock, count):
    """So many requests, each of an account of its own."""
    engine = engine_of(clock)
    return [engine.submit(plain(), (1,), Philox(0), account=Account()) for _ in range(count)]


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


@pytest.mark.parametrize(
    ("step", "others"), crossed([(1.0, 0), (0.0, 700), (0.4, 300), (0.02, 0), (0.0, 2)], [1, 3], quick=2)
)
def test_others_wait_at_most_twice_as_long(clock, step, others):
    seconds, rows = step
    once = seconds + EACH * (rows + 1) + START  # what cannot be cut: one step of one of them
    tokens = 1500 if once > 0.1 else 500  # so many that each of the others has a few turns
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=tokens), account=Account())
    quiet = gaps(written(engine, job, clock, 20))
    turns = [[] for _ in range(others)]
    for own in turns:
        engine.submit(slow(clock, seconds, own, rows), (2,), Philox(0), stop=Stop(), account=Account())
    busy = gaps(written(engine, job, clock, tokens)[20:])
    assert sum(busy) <= 2 * len(busy) * max(quiet) + others * once
    assert max(busy) <= 2 * (1 + others) * max(quiet) + once
    assert all(len(own) >= 2 for own in turns)  # and nobody is left out
    assert min(map(len, turns)) >= 0.7 * max(map(len, turns)) - 1


def test_one_who_thinks_without_a_model_gives_way_after_each_long_thought(clock):
    """As a canvas does that is only shown: many short asks, between which others have their turn."""

    def showing(text, chance, warp, stop):
        for _ in range(40):
            clock.now += 0.3
            yield Emit((), [], [])
        return Done((), "length")

    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=200), account=Account())
    written(engine, job, clock, 20)
    shown = engine.submit(showing, (2,), Philox(0), stop=Stop(), account=Account())
    busy = gaps(written(engine, job, clock, 200)[19:])
    assert max(busy) <= 0.3 + 4 * (START + EACH)
    engine.run()
    assert shown.result().tokens == ()


@pytest.mark.parametrize(("seconds", "rows"), [(0.1, 0), (0.0, 100), (0.05, 50)])
def test_others_have_three_seconds_for_each_of_one_who_takes_long(clock, seconds, rows):
    """No less, or they are held up; and no more, or the one who takes long is starved."""
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=500), account=Account())
    written(engine, job, clock, 20)
    turns: list[float] = []
    engine.submit(slow(clock, seconds, turns, rows), (2,), Philox(0), stop=Stop(), account=Account())
    written(engine, job, clock, 500)
    own = (len(turns) - 1) * (seconds + EACH * (rows + 1))
    others = turns[-1] - turns[0] - own
    assert len(turns) >= 8
    assert others / own == pytest.approx(3, rel=0.15)


def test_a_prompt_counts_in_the_first_forward_alone(monkeypatch):
    """What a row takes is learnt from forwards; one that reads no prompt has only the rows that are asked for."""
    rows: list[int] = []
    monkeypatch.setattr(StepTimes, "add", lambda times, count, seconds: rows.append(count))
    engine = Engine({"target": CachedModel(Toy(vocab=4, room=400))})
    engine.submit(plain(), (1, 2, 3) * 10, Philox(0), stop=Stop(most=6), account=Account())
    engine.run()
    assert rows[0] >= 30
    assert rows[1:] == [1] * 5


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


def test_texts_of_one_who_is_alone_think_a_second_or_so_before_others_are_heard(clock):
    """All of them come so far before the model is asked, so that they still share its forwards."""
    engine, own = engine_of(clock), Account()
    turns = [[] for _ in range(8)]
    for each in turns:
        engine.submit(slow(clock, 1.5, each), (1,), Philox(0), stop=Stop(), account=own)
    for _ in range(40):
        before = clock.now
        engine.step()
        assert clock.now - before < 2.0
    assert min(map(len, turns)) >= 3
    assert max(map(len, turns)) - min(map(len, turns)) <= 2  # the first began before the others


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
    assert pace.each == 0.0
    pace.add(4, 0.2)
    assert pace.each == pytest.approx(0.05)  # nothing else is known yet
    for rows in (1, 30, 2, 64, 8):
        pace.add(rows, 0.03 + 0.002 * rows)
    for _ in range(400):
        pace.add(1, 0.032)
        pace.add(50, 0.13)
    assert pace.each == pytest.approx(0.002)
    for _ in range(1000):
        pace.add(1, 0.001)
        pace.add(50, 0.0001)
    assert pace.each == 0.0


def test_those_who_think_a_little_longer_than_the_least_do_not_all_take_part(clock):
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=900), account=Account())
    quiet = gaps(written(engine, job, clock, 20))
    turns = [[] for _ in range(6)]
    for own in turns:  # each of them an eighth of a forward: in nobody's way, if there were one of them
        engine.submit(slow(clock, START / 8, own), (2,), Philox(0), stop=Stop(), account=Account())
    busy = gaps(written(engine, job, clock, 900)[20:])
    assert sum(busy) <= 1.5 * len(busy) * max(quiet)
    assert min(map(len, turns)) >= 0.7 * max(map(len, turns)) - 1
    assert sum(map(len, turns)) >= 0.8 * len(busy)  # and their part of the time is not left idle


def held(texts):
    """A search that holds so many texts and goes on with one of them: one row in every round."""

    def method(text, chance, warp, stop):
        yield Keep(NOTHING, (ROOT,) * texts, tuple(range(texts)))
        yield Score()
        for number in range(10**6):
            yield Keep(NOTHING, tuple(~leaf for leaf in range(texts)), (number % texts, *[None] * (texts - 1)))
            yield Score()

    return method


def test_what_counts_are_the_rows_that_were_computed(clock):
    engine = Engine({"target": (model := Computing(Toy(vocab=8, room=4000)))})
    model.clock = clock
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=200), account=Account())
    other = engine.submit(held(8), (2,), Philox(0), stop=Stop(), account=Account())
    written(engine, job, clock, 200)
    assert other.trace.forwards["target"] >= 190


def test_who_makes_steps_longer_is_charged_for_it_whatever_was_seen_of_it(clock):
    turns, (light, heavy) = Turns(), jobs_of(clock, 2)
    parts, went = {light: 0.001, heavy: 0.002}, 0
    for _ in range(400):
        going = turns.begin([light, heavy], parts.__getitem__, [light, heavy])
        for job in going:
            turns.charge(job, parts[job])
        clock.now += START + 3 * START * (heavy in going)
        went += heavy in going
        turns.end()
    assert went >= 20
    assert clock.now <= 1.5 * 400 * START


def test_a_step_in_which_prompts_are_read_says_nothing_about_those_who_take_long(clock):
    turns, (light, heavy) = Turns(), jobs_of(clock, 2)
    parts, went = {light: 0.001, heavy: 0.002}, 0
    for number in range(400):
        going = turns.begin([light, heavy], parts.__getitem__, [light, heavy])
        for job in going:
            turns.charge(job, parts[job])
        clock.now += START
        if number % 2:
            clock.now += 20 * START
            turns.read(heavy.account, 20 * START)
        went += heavy in going
        turns.end()
    assert went >= 340  # all but those steps that show what is usual


def test_nobody_waits_for_somebody_who_does_nothing(clock):
    """Who takes long and is ahead goes on as soon as a step has passed in which nobody else did anything."""
    turns, (light, heavy) = Turns(), jobs_of(clock, 2)
    parts = {light: 0.001, heavy: 1.0}
    for wanting in ([light], [light], [light, heavy], [light, heavy]):
        for job in turns.begin(wanting, parts.__getitem__, [light, heavy]):
            clock.now += parts[job]
            turns.charge(job, parts[job])
        turns.end()
    idle = 0
    while not turns.begin([heavy], parts.__getitem__, [light, heavy]):  # the other lives, but wants nothing just now
        clock.now += 0.0001
        turns.end()
        idle += 1
        assert idle <= PAUSES + 2
    assert idle


@pytest.mark.parametrize("clients", ["a", "b"])
def test_who_takes_long_waits_for_one_whose_next_text_is_about_to_come(clock, clients):
    engine = engine_of(clock)
    turns, began = [[] for _ in range(3)], 0.0
    for own in turns:
        engine.submit(slow(clock, 0.3, own), (2,), Philox(0), stop=Stop(), account=Account(clients))
    for number in range(5):
        job = engine.submit(plain(), (1,), Philox(number), stop=Stop(most=200), account=Account("a"))
        came = written(engine, job, clock, 200)
        if number > 1:  # by then the others have had their turns
            assert came[0] - began <= 3 * START
        engine.step()  # in which it ends
        engine.step()
        began = clock.now
    before = sum(map(len, turns))
    for _ in range(PAUSES + 3):  # but not for ever
        engine.step()
    assert sum(map(len, turns)) > before
    assert min(map(len, turns)) >= 4


def test_a_round_that_takes_long_once_counts_little(clock):
    (job,) = jobs_of(clock, 1)
    for seconds in [0.001] * 20:
        job.begin_round()
        job.seconds += seconds
    assert job.host_seconds == pytest.approx(0.001)
    job.begin_round()
    job.seconds += 0.017
    assert job.host_seconds == pytest.approx(0.003)
    for _ in range(20):
        job.begin_round()
        job.seconds += 0.017
    assert 0.014 <= job.host_seconds <= 0.017
    job.begin_round()
    job.seconds += 0.001
    assert job.host_seconds == pytest.approx(0.001)


@pytest.mark.parametrize("texts", [1, 3])
def test_a_client_has_no_more_of_the_time_by_sending_more_requests(clock, texts):
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=300), account=Account("a"))
    quiet = gaps(written(engine, job, clock, 20))
    others = []
    for _ in range(12):
        account = Account("b")
        others += [
            engine.submit(plain(), (2,), Philox(0), stop=Stop(most=10**6), account=account) for _ in range(texts)
        ]
    busy = gaps(written(engine, job, clock, 300)[20:])
    assert sum(busy) <= 1.5 * len(busy) * max(quiet)
    wrote = [len(one.tokens) for one in others]
    assert min(wrote) >= 0.8 * max(wrote) - 1
    assert sum(wrote) >= 280


def test_of_several_clients_with_many_requests_each_has_its_turn(clock):
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=900), account=Account("a"))
    wrote = {}
    for client, count in (("b", 12), ("c", 3)):
        wrote[client] = [[] for _ in range(count)]
        for own in wrote[client]:
            engine.submit(slow(clock, 0.02, own), (2,), Philox(0), stop=Stop(), account=Account(client))
    written(engine, job, clock, 900)
    turns = {client: sum(map(len, own)) for client, own in wrote.items()}
    assert turns["c"] >= 0.8 * turns["b"]


def test_requests_of_one_client_take_turns_among_themselves(clock):
    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=600), account=Account("a"))
    quiet = gaps(written(engine, job, clock, 20))
    for _ in range(3):
        engine.submit(slow(clock, 0.05), (2,), Philox(0), stop=Stop(), account=Account("a"))
    busy = gaps(written(engine, job, clock, 600)[20:])
    assert sum(busy) <= 1.5 * len(busy) * max(quiet)


@pytest.mark.parametrize("piece", [0.0005, 0.002])
def test_who_gives_way_between_pieces_of_its_work_keeps_others_for_no_longer_than_a_step(clock, piece):
    """Half a second of thoughts between two asks, as a wide search has, in pieces of a millisecond."""

    def wide(text, chance, warp, stop):
        for _ in range(20):
            yield Score()
            for _ in range(int(0.5 / piece)):
                clock.now += piece
                yield GiveWay()
        return Done((), "length")

    engine = engine_of(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=600), account=Account())
    quiet = gaps(written(engine, job, clock, 20))
    searching = engine.submit(wide, (2,), Philox(0), stop=Stop(), account=Account())
    busy = gaps(written(engine, job, clock, 600)[20:])
    assert max(busy) <= 3 * max(quiet) + piece
    assert sum(busy) <= 1.5 * len(busy) * max(quiet)
    assert sum(busy) - len(busy) * max(quiet) >= 0.2 * sum(busy)  # and its part of the time is not left idle
    began, steps = clock.now, 0
    while searching.state != "ended":  # alone, it goes on for as long as anything that needs no model
        engine.step()
        steps += 1
    assert steps <= 2.5 * (clock.now - began) / LONG + 40
