"""Shares: nobody who wants little waits for somebody who wants much, nothing is promised twice, and all get in."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from dataclasses import dataclass, field
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from littlemodel import chatting_model, loaded
from patience import PATIENCE
from selection import crossed
from toy import Toy

from unspool.api.settings import Settings
from unspool.apps.server.limits import Limits
from unspool.apps.server.server_request import Began, ClientLine, Ended, Failed, ServerRequest
from unspool.apps.server.worker import Worker
from unspool.core.asks import Done, Keep, Score
from unspool.core.chance import Philox
from unspool.core.errors import ContextExceeded, OutOfRoom
from unspool.core.stop import Stop
from unspool.core.trace import Trace
from unspool.core.tree import ROOT, Tree
from unspool.recipes.methods import method
from unspool.rules.decode import plain
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.job import Account, Ledger, Shares
from unspool.runtime.engine.scheduler import admitted

# ---- the rule by itself: texts that hold tokens and a place for some rounds


@dataclass(eq=False)
class Text:
    room: int
    rounds: int
    came: int = 0
    account: Account = field(default_factory=Account)
    entered: int = -1
    trace: Trace = field(default_factory=Trace)
    after: None = None

    @property
    def key(self):
        return id(self)


@dataclass
class Simulation:
    """Texts come, are let in by the rule, and go; `round` is the time."""

    tokens: Shares
    places: Shares
    waiting: deque[Text] = field(default_factory=deque)
    live: dict[Text, int] = field(default_factory=dict)  # with the rounds that are left to each
    round: int = 0

    def step(self, came=()):
        for text in came:
            text.account.room += text.room
            text.account.texts += 1
            self.waiting.append(text)
        for text in admitted(self.waiting, self.live, self.tokens, self.places)[0]:
            self.live[text], text.entered = text.rounds, self.round
        self.check()
        for text in [text for text, left in self.live.items() if left == 1]:
            text.account.room -= text.room
            text.account.texts -= 1
            del self.live[text]
        self.live = {text: left - 1 for text, left in self.live.items()}
        self.round += 1

    def check(self):
        assert sum(text.room for text in self.live) <= self.tokens.whole
        assert len(self.live) <= self.places.whole
        large = [
            text
            for text in self.live
            if text.account.room > self.tokens.small or text.account.texts > self.places.small
        ]
        assert sum(text.room for text in large) <= self.tokens.most
        assert len(large) <= self.places.most

    def run(self, texts):
        last = max(text.came for text in texts)
        end = last + sum(text.rounds for text in texts) + 1
        while self.waiting or self.live or self.round <= last:
            self.step(text for text in texts if text.came == self.round)
            assert self.round <= end, "somebody is never let in"


SHARES = st.sampled_from([0.1, 0.3, 0.5, 0.75, 1.0])


@st.composite
def requests(draw, most, small):
    """Requests of one text or more, each an account, in the order of their coming."""
    made = []
    for came in sorted(draw(st.lists(st.integers(0, 30), min_size=1, max_size=25))):
        room = draw(st.one_of(st.integers(1, max(1, int(small))), st.integers(1, int(most))))
        account, rounds = Account(), draw(st.integers(1, 9))
        made += [Text(room, rounds, came, account) for _ in range(draw(st.sampled_from([1, 1, 1, 2, 9])))]
    return made


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(8, 200), st.integers(1, 20), SHARES)
def test_nothing_is_promised_twice_and_everybody_gets_in(data, whole, places, share):
    tokens = Shares(whole, share)
    texts = data.draw(requests(tokens.most, tokens.small))
    Simulation(tokens, Shares(places, share)).run(texts)
    assert all(text.entered >= text.came for text in texts)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(16, 200), st.integers(2, 20), st.sampled_from([0.3, 0.5, 0.75]))
def test_small_requests_wait_no_longer_than_by_themselves_on_their_part(data, whole, places, share):
    """Whatever large ones do, a small one is let in as soon as on a server that has the rest alone, for small ones."""
    tokens, seats = Shares(whole, share), Shares(places, share)
    small = [
        Text(data.draw(st.integers(1, int(tokens.small))), data.draw(st.integers(1, 9)), came)
        for came in sorted(data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=25)))
    ]
    large = [
        Text(data.draw(st.integers(int(tokens.small) + 1, int(tokens.most))), data.draw(st.integers(1, 40)), came)
        for came in data.draw(st.lists(st.integers(0, 30), max_size=12))
    ]
    Simulation(Shares(tokens.rest), Shares(seats.rest)).run(small)
    alone = [text.entered for text in small]
    Simulation(tokens, seats).run(sorted([*small, *large], key=lambda text: text.came))
    assert all(text.entered <= before for text, before in zip(small, alone, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(16, 200), st.integers(2, 20), st.sampled_from([0.3, 0.5, 0.75]))
def test_a_large_request_gets_in_however_many_small_ones_keep_coming(data, whole, places, share):
    tokens, seats = Shares(whole, share), Shares(places, share)
    large = [Text(int(tokens.most), data.draw(st.integers(1, 9))) for _ in range(data.draw(st.integers(1, 3)))]
    rounds, each, burst = data.draw(st.integers(1, 9)), data.draw(st.integers(1, int(tokens.small))), whole + places
    world = Simulation(tokens, seats)
    for _ in range(rounds):
        world.step(Text(each, rounds) for _ in range(burst))  # as many as there is room for, and more that wait
    world.waiting.clear()
    began = world.round
    world.step(large)
    while large[-1].entered < 0:
        world.step(Text(each, rounds) for _ in range(burst))
        assert world.round - began <= rounds * (1 + len(large)) + sum(text.rounds for text in large)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_small_requests_have_everything_while_no_large_one_waits(share):
    world = Simulation(Shares(64, share), Shares(16, share))
    for _ in range(16):
        world.step([Text(4, 100)])
    assert len(world.live) == 16


def test_with_one_share_for_all_they_come_in_the_order_of_their_coming():
    texts = [Text(room, 3, 0) for room in (60, 60, 1, 1)]
    world = Simulation(Shares(100), Shares(math.inf))
    world.run(texts)
    assert [text.entered for text in texts] == [0, 3, 3, 3]


def test_large_requests_come_in_the_order_of_their_coming():
    texts = [Text(room, rounds, 0) for room, rounds in ((30, 9), (50, 3), (20, 3), (2, 3))]
    Simulation(Shares(100, 0.5), Shares(16, 0.5)).run(texts)
    assert [text.entered for text in texts] == [0, 9, 12, 0]


def test_texts_of_one_request_count_together():
    one, other = Account(), Account()
    world = Simulation(Shares(800, 0.5), Shares(16, 0.5))
    world.step([*(Text(10, 50, 0, one) for _ in range(16)), *(Text(90, 50, 0, other) for _ in range(9))])
    seats = Counter(text.account for text in world.live)
    assert seats == {one: 8}  # half of the places, and the other is large from its first text on
    world.step(Text(100, 5) for _ in range(8))
    assert len(world.live) == 12  # of these, as many as have half of the cache


@pytest.mark.parametrize("crowd", [1, 3, 30])
def test_many_requests_of_many_texts_leave_half_to_others(crowd):
    world = Simulation(Shares(800, 0.5), Shares(16, 0.5))
    for account in [Account() for _ in range(crowd)]:
        world.step(Text(10, 100, 0, account) for _ in range(9))
    world.step([small := Text(90, 3)])
    assert small.entered == crowd


# ---- the engine: steps are counted, not seconds


def writing(rounds=10**6):
    """A method that asks and writes nothing."""

    def decoding(text, chance, warp, stop):
        for _ in range(rounds):
            yield Score()
        return Done((), "length")

    return decoding


@pytest.fixture
def timeless(monkeypatch):
    """A clock that stands: turns are about seconds (tests/runtime/engine/test_turns.py), and these tests are not."""
    for module in ("engine", "turns", "job"):
        monkeypatch.setattr(f"unspool.runtime.engine.{module}.perf_counter", lambda: 0.0)


def steps_of(engine, job, most):
    """How many steps a request takes from now on."""
    for count in range(most):
        if job.state == "ended":
            return count
        engine.step()
    raise AssertionError(f"it has not ended after {most} steps")


@pytest.mark.parametrize("crowd", [1, 6, 40])
def test_who_comes_while_large_requests_live_and_wait_is_let_in_at_once(crowd, timeless):
    engine = Engine({"target": CachedModel(Toy(vocab=4, room=400))}, places=16, share=0.5)
    large = [engine.submit(writing(), (2,), Philox(0), stop=Stop(), room=200, account=Account()) for _ in range(crowd)]
    engine.step()
    assert [job.state for job in large] == ["live"] + ["waiting"] * (crowd - 1)
    for _ in range(5):
        small = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=20), room=21, account=Account())
        engine.step()
        assert small.state == "live"
        assert steps_of(engine, small, 60) == 20
    engine.cancel(large[0])
    engine.step()
    assert [job.state for job in large[1:2]] == ["live"] * (crowd > 1)


def test_more_than_its_share_of_the_cache_is_refused_to_one_request():
    engine = Engine({"target": CachedModel(Toy(vocab=4, room=400))}, share=0.5)
    with pytest.raises(OutOfRoom, match=r"may need 201 tokens of cache, but one request may hold 200"):
        engine.submit(plain(), (1,), Philox(0), room=201, account=Account())
    assert Engine({"target": CachedModel(Toy(vocab=4, room=400))}).submit(plain(), (1,), Philox(0), room=400)


def test_an_account_wants_nothing_any_more_once_its_texts_have_ended():
    engine, account = Engine({"target": CachedModel(Toy(vocab=4, room=400))}, share=0.5), Account()
    jobs = [engine.submit(plain(), (1,), Philox(0), stop=Stop(most=3), room=20, account=account) for _ in range(3)]
    assert (account.room, account.texts) == (60, 3)
    engine.cancel(jobs[2])
    engine.run()
    assert (account.room, account.texts) == (0, 0)


def spreading(width):
    """A search that goes on with as many texts as it may, none of which share a token."""

    def decoding(text, chance, warp, stop):
        yield Score()
        yield Keep(Tree((), ()), (ROOT,) * width, tuple(i % 4 for i in range(width)))
        for step in itertools.count():
            yield Score()
            yield Keep(Tree((), ()), tuple(~i for i in range(width)), (step % 4,) * width)

    return decoding


def test_a_search_that_outgrows_its_share_fails_alone():
    engine = Engine({"target": CachedModel(Toy(vocab=4, room=400))}, share=0.5)
    search = engine.submit(spreading(8), (2,), Philox(0), stop=Stop(), room=200, account=Account())
    others = [
        engine.submit(plain(), (i,), Philox(0), stop=Stop(most=45), room=46, account=Account()) for i in (0, 1, 3)
    ]
    held = []
    while search.state != "ended":
        engine.step()
        if search.sessions:
            held.append(engine.models["target"].holds(search.sessions["target"]))
    assert max(held) > 180  # it has had what is its own
    assert max(held) <= 200
    with pytest.raises(OutOfRoom, match=r"take \d+ tokens of cache by now, but one request may hold 200"):
        search.result()
    engine.run()
    assert [len(job.result().tokens) for job in others] == [45] * 3


def test_what_several_texts_share_is_counted_once():
    model = CachedModel(Toy(vocab=4, room=400))
    engine = Engine({"target": model}, share=0.5)
    job = engine.submit(spreading(8), (2,) * 50, Philox(0), stop=Stop(), room=200, account=Account())
    for _ in range(10):
        engine.step()
        assert job.state == "live"
        assert model.holds(job.sessions["target"]) == model.slots.in_use
    assert model.slots.in_use > 100


# ---- the server's worker


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatting_model(tmp_path_factory.mktemp("shares") / "little")


@pytest.fixture(scope="module")
def lm(folder):
    with loaded(folder, longest=2) as made:
        yield made


class Client:
    """Somebody who sends a request to a worker, and hears of it."""

    def __init__(self, worker, prompt="Once", spec="plain", **asked):
        self.news, self.over, self.begun, self.left = [], Event(), Event(), asked.get("n", 1)
        given = Settings(**{"temperature": 1.0, "max_tokens": 8, "logit_bias": {1: -100.0}, **asked})
        self.errand = ServerRequest([prompt], given, method(spec), self.hear)
        self.worker = worker
        worker.submit(self.errand)

    def hear(self, news):
        for one in news:
            if isinstance(one, Began):
                self.begun.set()
            self.left -= isinstance(one, Ended)
            if isinstance(one, Failed) or not self.left:
                self.over.set()
        self.news += news

    def failed(self):
        assert self.over.wait(PATIENCE)
        (error,) = [one.error for one in self.news if isinstance(one, Failed)]
        return error


@pytest.fixture
def worker(lm, timeless):
    made = Worker(lm, Limits(parallel=8))
    made.start()
    yield made
    assert made.stop(0)


def counted(worker, patch):
    """A count of the engine's steps."""
    step, count = worker.engine.step, [0]

    def counting():
        count[0] += 1
        return step()

    patch.setattr(worker.engine, "step", counting)
    return count


LARGE = {
    "long texts": {"max_tokens": 4000},
    "a wide search": {"spec": "beam:width=64", "max_tokens": 128},
    "many texts": {"n": 8, "max_tokens": 1900},
}


@pytest.mark.parametrize(("kind", "crowd"), crossed(LARGE, [1, 6, 20], quick=2))
def test_a_small_request_is_answered_while_large_ones_hold_and_want_the_server(worker, monkeypatch, kind, crowd):
    large = [Client(worker, **LARGE[kind]) for _ in range(crowd)]
    assert large[0].begun.wait(PATIENCE)
    count = counted(worker, monkeypatch)
    for i in range(3):
        small = Client(worker, f"number {i}", max_tokens=8)
        assert small.over.wait(PATIENCE)
        assert not any(isinstance(one, Failed) for one in small.news)
        assert not any(client.over.is_set() for client in large)
    assert count[0] < 200  # 24 tokens, and prompts; a large one takes hundreds or thousands
    assert len(worker.engine.live) <= 8
    for client in large:
        worker.drop(client.errand)


def test_a_text_as_long_as_the_context_still_fits_into_a_share_of_the_usual_cache(lm, worker):
    assert lm.model.room == 2 * lm.model.context
    client = Client(worker, "x" * (lm.model.context - 4), max_tokens=3)
    assert client.over.wait(PATIENCE)
    assert not any(isinstance(one, Failed) for one in client.news)


def test_a_prompt_beyond_its_share_is_told_what_a_request_may_hold(folder):
    with loaded(folder) as tight:
        worker = Worker(tight, Limits())
        worker.start()
        error = Client(worker, "x" * 3000).failed()
        assert isinstance(error, ContextExceeded)
        assert "maximum context length is 2048 tokens (what one request may hold of its cache: --share" in str(error)
        assert "you requested 3008 tokens (3000 in the prompt, 8 in the completion)" in str(error)
        cut = Client(worker, "x" * 2040, max_tokens=4000)
        assert cut.over.wait(PATIENCE)
        assert [one.trace.tokens for one in cut.news if isinstance(one, Ended)] == [8]
        assert worker.stop(0)


def test_who_waits_outlives_the_engine_that_falls(worker, monkeypatch):
    large = [Client(worker, max_tokens=4000) for _ in range(3)]
    assert large[0].begun.wait(PATIENCE)
    monkeypatch.setattr(worker.engine, "step", lambda: 1 / 0)
    assert isinstance(large[0].failed(), ZeroDivisionError)
    assert large[1].begun.wait(PATIENCE)
    assert not large[2].begun.is_set()
    for client in large[1:]:
        assert not client.over.is_set()
        worker.drop(client.errand)
    assert Client(worker).over.wait(PATIENCE)
    assert not worker.engine.waiting


def test_who_hangs_up_while_waiting_leaves_nothing_behind(worker):
    large = [Client(worker, max_tokens=4000) for _ in range(12)]
    assert large[0].begun.wait(PATIENCE)
    for client in reversed(large):
        worker.drop(client.errand)
        worker.drop(client.errand)
    last = Client(worker, max_tokens=4)
    assert last.over.wait(PATIENCE)
    assert not worker.waiting
    assert not worker.engine.waiting
    assert not any(client.begun.is_set() for client in large[1:])


def test_those_who_are_passed_do_not_make_others_seem_to_wait(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("unspool.apps.server.server_request.monotonic", lambda: now[0])
    queue, errands = ClientLine(100), [object() for _ in range(9)]
    for errand in errands:
        queue.add(errand)
    now[0] = 8.0
    queue.take(errands[0])
    assert queue.wait == pytest.approx(8.0)  # a second for each of those who are left
    queue.take(errands[8])
    passed = queue.wait
    assert passed == 0.0
    now[0] = 800.0
    queue.take(errands[1])
    queue.add(object())
    assert queue.wait < 1.0
    assert len(queue) == 7


def of(client, count, rounds=3, came=0):
    """So many requests of a client, each of one text."""
    return [Text(1, rounds, came, Account(client)) for _ in range(count)]


def test_one_who_has_sent_many_requests_is_let_in_after_those_who_have_sent_few():
    """A client's sixty requests stand before its own next one, and not before another's first."""
    many, few, late = of("mallory", 60), of("anna", 2, came=1), of("berta", 1, came=4)
    Simulation(Shares(1000), Shares(4)).run([*many, *few, *late])
    assert [text.entered for text in few] == [3, 3]  # as soon as anybody goes
    assert [text.entered for text in late] == [6]
    assert [text.entered for text in many] == sorted(text.entered for text in many)


def test_places_that_come_free_go_to_the_client_with_the_fewest_texts_inside():
    live = dict.fromkeys(of("mallory", 3) + of("anna", 1))
    waiting = deque([*of("mallory", 2), *of("anna", 2), *of("berta", 2)])
    order = list(waiting)
    came, _ = admitted(waiting, live, Shares(1000), Shares(8))
    assert [text.account.client for text in came] == ["berta", "anna", "berta", "anna"]
    assert list(waiting) == order[:2]
    assert [text for text in came if text.account.client == "anna"] == order[2:4]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=40), st.integers(1, 5))
def test_nobody_waits_while_another_client_holds_two_more_and_is_let_in(texts, places):
    """Whoever is let in has no more texts inside than any client that is left waiting."""
    made = [Text(1, rounds, 0, Account(client)) for client, rounds in texts]
    world = Simulation(Shares(1000), Shares(places))
    world.waiting.extend(made)
    for text in made:
        text.account.room, text.account.texts = 1, 1
    while world.waiting or world.live:
        before = Counter(text.account.client for text in world.live)
        inside = set(world.live)
        world.step()
        came = [text for text in made if text.entered == world.round - 1 and text not in inside]
        after = before + Counter(text.account.client for text in came)
        for client in {text.account.client for text in came}:
            assert all(after[client] <= after[other.account.client] + 1 for other in world.waiting)


@given(st.integers(1, 64), st.floats(0.01, 1.0))
def test_what_is_small_fits_beside_all_that_large_ones_may_hold(whole, share):
    shares = Shares(whole, share)
    assert shares.small <= shares.rest


def test_where_the_cache_has_no_end_only_places_make_a_request_large():
    ledger = Ledger(Shares(math.inf, 0.5), Shares(16, 0.5))
    assert not ledger.large(Account(room=10**9, texts=1))
    assert ledger.large(Account(room=1, texts=9))
