"""Drafting while the target checks: the text is the seed's, and what was drafted ahead is used if it fits."""

from __future__ import annotations

import threading

import pytest
import torch
from littlemodel import little_model
from patience import PATIENCE

from unspool import Settings, load
from unspool.core.asks import Begin, Fetch, Score
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.tree import Tree
from unspool.core.warp import Same, Temperature
from unspool.core.warp.warp import Prefix
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Coupled, Pearl
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine

COUNTS = Table(5, lambda text: [float(x == (text[-1] + 1) % 5) for x in range(5)])
MOSTLY = Table(5, lambda text: [float(x == (text[-1] + 1 + (len(text) % 7 == 0)) % 5) for x in range(5)])


def written(method, target, draft, most=30, seed=1, warp=None):
    engine = Engine({"target": target, "draft": draft})
    job = engine.submit(method, (0,), Philox(seed), warp or Same(), Stop(most=most))
    engine.run()
    return job


class Placed(Table):
    """A table on a device; it notes in which threads it is asked."""

    def __init__(self, vocab, weights, place):
        super().__init__(vocab, weights)
        self.place, self.threads, self.inside = torch.device(place), set(), 0

    def score(self, asked):
        self.threads.add(threading.current_thread().name.split("_")[0])
        self.inside += 1
        assert self.inside == 1, "two threads in one model"
        try:
            return super().score(asked)
        finally:
            self.inside -= 1


def test_when_all_stands_the_next_draft_is_there():
    """Five tokens a round, and in the second one no forward of the draft model that anybody waits for."""
    job = written(Speculate(Pearl(4), budget=4), COUNTS, COUNTS)
    assert job.result().tokens == tuple((1 + i) % 5 for i in range(30))
    assert job.trace.forwards["target"] == 6
    asked = []
    source, prefix = Pearl(4).begin(None), Prefix.of((0,), Same())
    tree = drive(source.propose(prefix, 4, Philox(1)), asked)
    below = drive(asked[-1].proposing, [])
    assert (len(tree), len(below)) == (4, 5)
    after = prefix.then((*tree.tokens(range(4)), below.drawn[0].token))
    asked.clear()
    again = drive(source.propose(after, 4, Philox(1)), asked, below)
    assert again.drawn == below.drawn[1:]
    assert not any(isinstance(ask, Score) for ask in asked)


@pytest.mark.parametrize("bonus", [0, 4], ids=["another token", "one that was refused"])
def test_when_it_does_not_fit_the_draft_is_made_anew(bonus):
    asked = []
    source, prefix = Pearl(2).begin(None), Prefix.of((0,), Same())
    tree = drive(source.propose(prefix, 2, Philox(1)), asked)
    below = Tree.chain(tree.drawn)  # whatever it was
    kept = tree.tokens(range(2)) if bonus == 0 else tree.tokens(range(1))
    after = prefix.then((*kept, bonus))
    again = drive(source.propose(after, 2, Philox(1)), asked, below, after.text)
    assert again.tokens(range(2)) == tuple((after.text[-1] + i) % 5 for i in (1, 2))


def drive(proposing, asked, below=None, text=(0,)):
    """A tree below a text, its asks answered by the table that counts; `below` is what was begun before."""
    reply = None
    while True:
        try:
            ask = proposing.send(reply)
        except StopIteration as end:
            return end.value
        asked.append(ask)
        reply = below if isinstance(ask, Fetch) else None
        if isinstance(ask, Score):
            (reply,) = COUNTS.score([ScoreRequest(COUNTS.open(text), ask.tree)])
        assert isinstance(ask, (Begin, Fetch, Score))


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("warp", [Same(), Temperature(0.0)], ids=["drawn", "greedy"])
def test_the_text_is_the_seeds_on_one_device_on_two_and_on_none(depth, warp):
    target = lambda text: [1.0 + (x * 7 + len(text)) % 5 for x in range(6)]  # noqa: E731
    draft = lambda text: [1.0 + (x * 7 + len(text)) % 4 for x in range(6)]  # noqa: E731
    truth = written(plain(), Table(6, target), Table(6, draft), warp=warp).result()
    for here, there in (("cpu", "cpu"), ("cpu", "meta"), (None, None)):
        models = [
            Table(6, w) if place is None else Placed(6, w, place) for w, place in ((target, here), (draft, there))
        ]
        job = written(Speculate(Pearl(depth), budget=depth), *models, warp=warp)
        assert job.result() == truth
        if there is not None:
            assert ("unspool-draft" in models[1].threads) == (here != there)
            assert models[0].threads == {"MainThread"}


def test_on_one_device_it_drafts_as_coupled_does():
    ours, theirs = (
        written(Speculate(draft, budget=3), Placed(5, COUNTS.weights, "cpu"), Placed(5, MOSTLY.weights, "cpu"))
        for draft in (Pearl(3), Coupled(3))
    )
    assert ours.result() == theirs.result()
    assert ours.trace.forwards == theirs.trace.forwards


def test_the_draft_model_works_while_the_target_does():
    """The target's first forward with drafts ends only when the draft model has worked beside it."""
    busy = threading.Event()

    class Waiting(Placed):
        def score(self, asked):
            if any(len(ask.tree) for ask in asked):
                assert busy.wait(PATIENCE), "nothing was drafted meanwhile"
            return super().score(asked)

    class Telling(Placed):
        def score(self, asked):
            if threading.current_thread() is not threading.main_thread():
                busy.set()
            return super().score(asked)

    job = written(
        Speculate(Pearl(2), budget=2), Waiting(5, COUNTS.weights, "cpu"), Telling(5, COUNTS.weights, "meta"), 9
    )
    assert job.result().tokens == tuple((1 + i) % 5 for i in range(9))


def test_many_requests_never_meet_in_the_draft_model_and_may_be_cancelled():
    target, draft = Placed(5, COUNTS.weights, "cpu"), Placed(5, MOSTLY.weights, "meta")
    engine = Engine({"target": target, "draft": draft})
    method = Speculate(Pearl(3), budget=3)
    jobs = [engine.submit(method, (i,), Philox(i), Same(), Stop(most=20 + i)) for i in range(5)]
    for _ in range(6):
        engine.step()
    engine.cancel(jobs[0])
    engine.run()
    for i, job in enumerate(jobs[1:], 1):
        assert job.result().tokens == tuple((i + 1 + k) % 5 for k in range(20 + i))


def test_whose_time_is_over_drafts_no_more_beside():
    clock = iter(range(10**6))
    target, draft = Placed(5, COUNTS.weights, "cpu"), Placed(5, COUNTS.weights, "meta")
    engine = Engine({"target": target, "draft": draft})
    stop = Stop(most=200, seconds=20, clock=lambda: float(next(clock)))
    job = engine.submit(Speculate(Pearl(64), budget=64), (0,), Philox(1), Same(), stop)
    engine.run()
    assert job.done.reason != "length"
    assert draft.forwards < 64 + 65


def test_an_error_of_the_draft_model_is_the_requests_own():
    class Failing(Placed):
        def score(self, asked):
            if threading.current_thread() is not threading.main_thread():
                raise ValueError("no more")
            return super().score(asked)

    engine = Engine({"target": Placed(5, COUNTS.weights, "cpu"), "draft": Failing(5, COUNTS.weights, "meta")})
    bad = engine.submit(Speculate(Pearl(3), budget=3), (0,), Philox(1), Same(), Stop(most=20))
    good = engine.submit(plain(), (0,), Philox(1), Same(), Stop(most=20))
    engine.run()
    assert len(good.result().tokens) == 20
    with pytest.raises(ValueError, match="no more"):
        bad.result()


def test_a_real_pair_by_name(tmp_path):
    lm = load(little_model(tmp_path / "little"), draft="layers:1")
    settings = Settings(max_tokens=12, ignore_eos=True, temperature=0.8, seed=3)
    assert lm.generate("Once", settings, "pearl:depth=3").tokens == lm.generate("Once", settings).tokens


def test_what_is_drafted_ahead_ends_with_the_time_of_its_text():
    class Ticking(Table):
        now = 0.0

        def score(self, asked):
            self.now += 1
            return super().score(asked)

    draft = Ticking(5, COUNTS.weights)
    engine = Engine({"target": COUNTS, "draft": draft})
    stop = Stop(most=64, seconds=20, clock=lambda: draft.now)
    job = engine.submit(Speculate(Pearl(16), budget=16), (0,), Philox(1), Same(), stop)
    engine.run()
    assert job.result().reason == "time"
    assert draft.now <= 21  # 16 to begin with, and not all of the 17 below them
