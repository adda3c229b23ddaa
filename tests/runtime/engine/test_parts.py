"""One step is cut: what is too large for others to wait for is computed in parts, and so are prompts read."""

from __future__ import annotations

import pytest
import torch
from ticking import EACH, START, Computing, gaps, written
from toy import Toy

from unspool.core.asks import Done, Keep, Look, Score
from unspool.core.canvas import Canvas, Field
from unspool.core.chance import Philox
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.rules.decode import plain
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.job import Account
from unspool.runtime.network.network import unpaused


def wide(rows, heard=None, rounds=10**6):
    """A method that asks for so many different rows in every round, and keeps none of them."""
    tree = Tree(tuple(chosen(x % 8) for x in range(rows)), tuple(~0 if x < 8 else x - 8 for x in range(rows)))

    def method(text, chance, warp, stop):
        for _ in range(rounds):
            scores = yield Score(tree)
            if heard is not None:
                heard.append([*scores.leaf, *scores.after])
            yield Keep(NOTHING)
        return Done((), "length")

    return method


def several_texts(count, heard, rounds):
    """A method that goes on with so many texts at once, a row for each."""

    def method(text, chance, warp, stop):
        yield Keep(NOTHING, (ROOT,) * count, tuple(x % 8 for x in range(count)))
        for number in range(rounds):
            scores = yield Score()
            heard.append(list(scores.leaf))
            yield Keep(NOTHING, tuple(~leaf for leaf in range(count)), tuple((x + number) % 8 for x in range(count)))
        return Done((), "length")

    return method


def computing(clock, room=40_000, chunk=128):
    model = Computing(Toy(vocab=8, room=room))
    model.clock, model.chunk = clock, chunk
    return Engine({"target": model}), model


@pytest.mark.parametrize("client", ["", "b"])
def test_nobody_waits_for_all_rows_of_a_large_ask(clock, client):
    engine, _ = computing(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=400), account=Account())
    quiet = gaps(written(engine, job, clock, 40))
    other = engine.submit(wide(320), (2,), Philox(0), stop=Stop(), account=Account(client))
    busy = gaps(written(engine, job, clock, 400)[40:])
    assert max(busy) <= 2.5 * max(quiet)  # an ask takes 30 times as long
    assert sum(busy) <= 1.5 * len(busy) * max(quiet)
    assert other.trace.forwards["target"] >= 3


@pytest.mark.parametrize("make", [lambda heard: wide(150, heard, 4), lambda heard: several_texts(60, heard, 4)])
def test_what_is_computed_in_parts_is_what_it_is_in_one(clock, make):
    alone, parts = [], []
    engine, model = computing(clock)
    whole = engine.submit(make(alone), (2, 3), Philox(0), stop=Stop())
    engine.run()
    engine, model = computing(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=10**6), account=Account())
    written(engine, job, clock, 40)
    cut = engine.submit(make(parts), (2, 3), Philox(0), stop=Stop(), account=Account())
    steps, most = 0, 0
    while cut.state != "ended":
        before = cut.trace.rows["target"]
        engine.step()
        steps, most = steps + 1, max(most, cut.trace.rows["target"] - before)
    assert cut.error is None
    assert most < 30
    assert [[law.scores.tolist() for law in laws] for laws in parts] == [
        [law.scores.tolist() for law in laws] for laws in alone
    ]
    assert cut.trace.rows == whole.trace.rows
    assert cut.trace.forwards == whole.trace.forwards
    engine.cancel(job)
    model.forget()
    assert model.slots.in_use == 0


def test_who_leaves_in_the_middle_of_a_large_ask_leaves_nothing_behind(clock):
    engine, model = computing(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=10**6), account=Account())
    written(engine, job, clock, 40)
    other = engine.submit(wide(320), (2,), Philox(0), stop=Stop(), account=Account())
    while not other.begun:
        engine.step()
    engine.cancel(other)
    assert model.holds(job.sessions["target"]) == model.slots.in_use


def test_an_ask_in_parts_counts_once_against_what_one_may_hold(clock):
    model = Computing(Toy(vocab=8, room=1000))
    model.clock = clock
    engine = Engine({"target": model}, share=0.5)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=10**6), account=Account())
    written(engine, job, clock, 40)
    other = engine.submit(wide(440), (2,), Philox(0), stop=Stop(), room=500, account=Account())
    while other.trace.forwards["target"] < 3:
        engine.step()
        assert other.error is None


def test_where_nobody_waits_a_step_is_only_cut_for_who_might_come(clock):
    engine, _ = computing(clock)
    job = engine.submit(wide(800), (2,), Philox(0), stop=Stop(), account=Account())
    spans = []
    for _ in range(40):
        began = clock.now
        engine.step()
        spans.append(clock.now - began)
    assert max(spans[8:]) <= 0.3  # all of it would take 0.8
    assert max(spans[8:]) >= 0.2
    assert job.trace.forwards["target"] >= 6


def test_one_whose_next_text_is_about_to_come_is_not_kept_waiting_by_a_large_step(clock):
    engine, _ = computing(clock)
    engine.submit(wide(320), (2,), Philox(0), stop=Stop(), account=Account("b"))
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=60), account=Account("a"))
    written(engine, job, clock, 60)
    gone, spans = clock.now, []
    while clock.now - gone < 0.5:
        began = clock.now
        clock.now += 0.001  # a pause, if it is one
        engine.step()
        spans.append(clock.now - began)
    assert max(spans) <= 4 * (START + EACH)


# ---- canvases, which are looked at as a whole


class Pausing:
    """A model whose looks take twenty stages, each as long as a step."""

    vocab = 8

    def __init__(self, clock):
        self.clock, self.open_looks = clock, 0

    def look(self, asked):
        return [unpaused(self.looking(ask)) for ask in asked]

    def looking(self, ask):
        self.open_looks += 1
        try:
            for _ in range(20):
                self.clock.now += START
                yield
        finally:
            self.open_looks -= 1
        return Field.of(ask.look.places, torch.zeros(len(ask.look.places), 8), rows=len(ask.look.places))


def looks(heard):
    def method(text, chance, warp, stop):
        while True:
            heard.append((yield Look(Canvas.blank(text, 400), by="filler")))

    return method


@pytest.mark.parametrize("leaves", [False, True])
def test_a_look_at_a_large_canvas_pauses_for_others(clock, leaves):
    target = Computing(Toy(vocab=8, room=40_000))
    target.clock = clock
    engine = Engine({"target": target, "filler": (filler := Pausing(clock))})
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=10**6), account=Account("a"))
    quiet = gaps(written(engine, job, clock, 40))
    heard = []
    other = engine.submit(looks(heard), (2,), Philox(0), stop=Stop(), account=Account("b"))
    written(engine, job, clock, 200)  # in which one look shows what such looks take
    while leaves and other.looking is None:
        engine.step()
    if leaves:
        held = other.looking  # so that nobody but the engine ends it
        assert filler.open_looks == 1
        engine.cancel(other)
        assert filler.open_looks == 0
        assert held is not None
        return
    count, since = len(heard), len(job.tokens)
    busy = gaps(written(engine, job, clock, 1000)[since:])
    assert max(busy) <= 3.5 * max(quiet)  # a look takes 20 times as long
    assert sum(busy) <= 1.6 * len(busy) * max(quiet)
    assert len(heard) >= count + 5
    assert all(list(field) == list(range(1, 401)) for field in heard)


# ---- prompts


def prompt(size, first=0):
    return tuple((first + 3 * x + x // 7) % 8 for x in range(size))


class Reading(Computing):
    """The same, where reading takes its time too."""

    def read(self, chunks):
        super().read(chunks)
        self.clock.now += START + EACH * sum(count for _, count in chunks)


def reading(clock):
    model = Reading(Toy(vocab=8, room=40_000))
    model.clock = clock
    return Engine({"target": model})


def test_a_client_who_sends_long_prompts_does_not_hold_others_up(clock):
    engine = reading(clock)
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=600), account=Account("a"))
    quiet = gaps(written(engine, job, clock, 40))
    for number in range(6):
        engine.submit(plain(), prompt(150, number), Philox(0), stop=Stop(most=1), account=Account("b"))
    busy = gaps(written(engine, job, clock, 600)[40:])
    assert sum(busy) <= 1.8 * len(busy) * max(quiet)
    assert max(busy) <= 6 * max(quiet)  # 128 tokens of a prompt take 12 times as long
    assert not engine.waiting
    assert len(engine.live) <= 1  # and the prompts are read in time


def test_a_short_prompt_is_not_behind_long_ones_of_another_client(clock):
    engine = reading(clock)
    for number in range(6):
        engine.submit(plain(), prompt(900, number), Philox(0), stop=Stop(most=1), account=Account("b"))
    for _ in range(3):
        engine.step()
    began = clock.now
    job = engine.submit(plain(), prompt(20), Philox(0), stop=Stop(most=2), account=Account("a"))
    assert written(engine, job, clock, 1)[0] - began <= 0.3  # one of the others takes 0.9
    engine.run()


def test_where_nobody_else_is_there_a_long_prompt_is_read_at_about_full_pace(clock):
    engine = reading(clock)
    engine.submit(plain(), prompt(3000), Philox(0), stop=Stop(most=1), account=Account("b"))
    spans = []
    while engine.live or engine.waiting:
        began = clock.now
        engine.step()
        spans.append(clock.now - began)
    assert max(spans) <= 1.2
    assert sum(spans) <= 1.1 * 3000 * EACH
