"""Rules give way between the rows they work on, so that nobody's token waits for all of a wide search's thoughts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from canvases import Noise
from hypothesis import given, settings
from hypothesis import strategies as st
from letters import Letters
from toy import Toy

from unspool.core.asks import Check, Done, GiveWay, Score, Scores
from unspool.core.canvas import Binding
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.law import NEVER, Law
from unspool.core.stop import Stop
from unspool.core.warp import Same
from unspool.loops.guard import Free
from unspool.recipes.methods import fitted
from unspool.rules.constrain import Constrained, keywords, regex
from unspool.rules.constrain.closing import Closing
from unspool.rules.decode import Denoise, plain
from unspool.rules.search.candidates import continuations
from unspool.rules.unmask import Confident, Resample
from unspool.rules.unmask.outlook import Outlook
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.job import Account

WORDS = Letters(tuple("abcdef "), controls=0, ends=1)
STOP = Stop(most=6, piece=WORDS.piece)


def heard(method, told):
    """The same method; `told` gets every ask that is no pause, with the number of pauses after its answer."""

    def decoding(*given):
        inner, reply = method(*given), None
        while True:
            try:
                ask = inner.send(reply)
            except StopIteration as end:
                return end.value
            if isinstance(ask, GiveWay):
                told[-1][1] += 1
            elif isinstance(ask, (Score, Check)):
                told.append([0, 0])
            reply = yield ask
            if isinstance(ask, (Score, Check)):
                scores = reply if isinstance(reply, Scores) else reply.scores
                told[-1][0] = len(scores.after) + len(scores.leaf)

    return decoding


WIDE = (
    "beam:width=6",
    "diverse:groups=3,width=2",
    "stochastic:width=6",
    "smc:particles=6",
    "several:count=6",
    "mcts:rollouts=6,width=6",
    "neurologic:width=6",
    "capped_jacobi:size=6",
    "jacobi:window=5",
    "blocks:size=6",
)


@pytest.mark.parametrize("spec", WIDE)
def test_a_wide_rule_gives_way_between_its_rows(spec):
    told = [[0, 0]]
    warp = Constrained(keywords("ab", "cd").fit(WORDS)) if spec.startswith("neurologic") else None
    engine = Engine({"target": CachedModel(Toy(vocab=8, room=4000))})
    job = engine.submit(heard(fitted(spec, WORDS), told), (1, 2), Philox(1), warp, STOP)
    engine.run()
    job.result()
    rows, pauses = zip(*told[1:-1], strict=True)  # behind the last answer the text may end at once
    assert max(rows) >= 5
    drafts = spec.startswith(("jacobi", "blocks"))  # of which those that were accepted are not guessed again
    assert sum(pauses) >= sum(rows) * (0.3 if drafts else 0.8)
    assert max(pauses) >= 4


def test_many_texts_are_compared_with_one_another_in_pieces():
    told = [[0, 0]]
    engine = Engine({"target": CachedModel(Toy(vocab=8, room=4000))})
    method = heard(fitted("several:count=6,choose=agreement", WORDS), told)
    engine.submit(method, (1, 2), Philox(1), stop=STOP)
    engine.run()
    assert told[-1][1] >= 6 * 6


# ---- what keeps a canvas to its constraint

FORM = regex("[abc]{3,20}d[a-f]{2}|e(ab){2,8}f")


@pytest.mark.parametrize("spec", ["resample:size=24", "confident:size=24", "edit:size=24", "renoise:size=24"])
def test_a_guard_gives_way_between_the_steps_of_its_searches(spec, monkeypatch):
    """No more masks are asked for at a time than there are ways that a search follows."""
    taken, most = [0], [0, 0]
    for home, name in ((Outlook, "best"), (Closing, "_ways")):
        monkeypatch.setattr(home, name, counted(getattr(home, name), taken))

    def watched(*given):
        inner, reply = fitted(spec, WORDS)(*given), None
        while True:
            try:
                ask = inner.send(reply)
            except StopIteration as end:
                return end.value
            most[0], most[1], taken[0] = max(most[0], taken[0]), most[1] + taken[0], 0
            reply = yield ask

    engine = Engine({"target": Noise(8, 3)})
    stop = Stop(WORDS.eos, most=24, piece=WORDS.piece)
    job = engine.submit(watched, (1, 2), Philox(1), Constrained(FORM.fit(WORDS)), stop)
    engine.run()
    assert job.result().reason
    assert most[0] <= 12
    assert most[1] >= 24  # it has searched


def counted(act, taken):
    def counting(*given):
        taken[0] += 1
        return act(*given)

    return counting


@pytest.mark.parametrize("spec", ["resample:size=24", "edit:size=24"])
def test_a_time_limit_holds_within_a_search(spec, monkeypatch):
    """However long one search would be; what stands by then without a gap has been written, or comes with the end."""
    monkeypatch.setattr("unspool.runtime.engine.turns.LONG", 0.0)  # every pause is one of the engine's steps
    model, now = Noise(8, 3), itertools.count()
    engine = Engine({"target": model})
    stop = Stop(WORDS.eos, most=24, piece=WORDS.piece, seconds=40, clock=lambda: next(now))
    job = engine.submit(fitted(spec, WORDS), (1, 2), Philox(1), Constrained(FORM.fit(WORDS)), stop)
    for _ in range(100):
        if not engine.step():
            break
    assert job.result().reason == "time"
    begun = FORM.fit(WORDS).start()
    assert begun.follows(job.result().tokens) == len(job.result().tokens)


class Hesitant(Free):
    """A guard whose second thoughts never end."""

    def mend(self, state, before, after):
        while True:
            yield GiveWay()


class Bound(Same, Binding):
    """A constraint that has it."""

    def guard(self, canvas, stop):
        yield from ()
        return Hesitant()


def test_what_stands_when_the_time_is_over_is_handed_out(monkeypatch):
    monkeypatch.setattr("unspool.runtime.engine.turns.LONG", 0.0)
    now = itertools.count()
    engine = Engine({"target": Noise(8, 3)})
    stop = Stop(most=6, piece=WORDS.piece, seconds=20, clock=lambda: next(now))
    job = engine.submit(Denoise(Confident(0.0), 4, remask=Resample()), (1, 2), Philox(1), Bound(), stop)
    for _ in range(100):
        if not engine.step():
            break
    assert job.result().reason == "time"
    assert len(job.result().tokens) == len(job.tokens) == 4


def ended(asking):
    """What comes of it, and how often it gave way."""
    found = []

    def asked():
        found.append((yield from asking))

    pauses = [*asked()]
    assert all(ask == GiveWay() for ask in pauses)
    return found[0], len(pauses)


def all_at_once(laws, bases, count, fines):
    """The best of base + log p over all texts, by one look at all of them."""
    rows = [
        law.scores.double() if law.is_empty() else law.scores.double() + (b - law.log_z)
        for law, b in zip(laws, bases, strict=True)
    ]
    worth = torch.stack(rows)
    if fines:
        worth[:, list(fines)] -= torch.tensor(list(fines.values()), dtype=torch.float64)
    found = [(-worth[r, x].item(), r, x) for r in range(len(laws)) for x in range(laws[r].size) if worth[r, x] > NEVER]
    return [(row, token, -value) for value, row, token in sorted(found)[:count]]


SCORE = st.sampled_from([NEVER, -3.5, -1.0, 0.0, 0.25, 1e-20, 2e-20, 2.0])


@given(
    rows=st.lists(st.lists(SCORE, min_size=5, max_size=5), min_size=1, max_size=6),
    bases=st.lists(st.sampled_from([0.0, -0.75, -40.0]), min_size=6, max_size=6),
    count=st.integers(1, 12),
    fines=st.dictionaries(st.integers(0, 4), st.sampled_from([0.5, 3.0]), max_size=3),
)
@settings(deadline=None, max_examples=200)
def test_the_best_continuations_are_those_of_all_texts_at_once(rows, bases, count, fines):
    """To the last bit, whichever text they come from; of equals the earlier text and the lower token lead."""
    laws = [Law(torch.tensor(row)) for row in rows]
    bases = bases[: len(rows)]
    found, pauses = ended(continuations(laws, bases, count, fines))
    assert [tuple(one) for one in found] == all_at_once(laws, bases, count, fines)
    assert pauses == len(rows)


# ---- what the engine makes of it


def giving(times, rounds=10**6):
    """A method that asks for a row and then gives way so often, again and again."""

    def method(text, chance, warp, stop):
        for _ in range(rounds):
            yield Score()
            for _ in range(times):
                yield GiveWay()
        return Done((), "length")

    return method


def test_who_gives_way_for_ever_fails_alone(monkeypatch):
    monkeypatch.setattr("unspool.runtime.engine.job.GIVEN", 5000)
    monkeypatch.setattr("unspool.runtime.engine.engine.LONG", 0.0)  # of other asks: giving way has bounds of its own
    monkeypatch.setattr("unspool.runtime.engine.turns.LONG", 0.0)
    model = CachedModel(Toy(vocab=4, room=200))
    engine = Engine({"target": model})
    endless = engine.submit(giving(20_000, rounds=1), (1,), Philox(0), stop=Stop(most=30))
    other = engine.submit(plain(), (2,), Philox(0), stop=Stop(most=30))
    engine.run()
    with pytest.raises(BadRequest, match="5000 asks in a row without a look at the model"):
        endless.result()
    assert len(other.result().tokens) == 30
    assert model.network.slots.in_use == 0


def test_a_wide_answer_is_no_endless_one():
    """As many rows as no beam has, and one who gives way for each."""
    engine = Engine({"target": CachedModel(Toy(vocab=4))})
    job = engine.submit(giving(20_000, rounds=2), (1,), Philox(0))
    engine.run()
    assert job.result().tokens == ()


def test_who_gives_way_is_told_when_its_time_is_over(monkeypatch):
    monkeypatch.setattr("unspool.runtime.engine.turns.LONG", 0.0)
    now = itertools.count()
    engine = Engine({"target": CachedModel(Toy(vocab=4))})
    stop = replace(STOP, seconds=5, clock=lambda: next(now))
    job = engine.submit(giving(10**9), (1,), Philox(0), stop=stop)
    for _ in range(20):
        if not engine.step():
            break
    assert job.result().reason == "time"


def test_who_gives_way_can_be_cancelled():
    model = CachedModel(Toy(vocab=4, room=200))
    engine = Engine({"target": model})
    job = engine.submit(giving(10**9), (1,), Philox(0), stop=STOP, account=Account())
    engine.step()
    engine.step()
    engine.cancel(job)
    assert job.result().reason == "cancelled"
    assert not engine.step()
    assert model.network.slots.in_use == 0


def test_a_trace_does_not_tell_how_often_a_rule_gave_way():
    asks = []
    for times in (0, 40):
        engine = Engine({"target": Table(3, lambda text: [1.0, 2.0, 3.0])})
        job = engine.submit(giving(times, rounds=3), (1,), Philox(0))
        engine.run()
        asks.append(job.trace.asks)
    assert asks == [3, 3]
