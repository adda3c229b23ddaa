"""Time limits and bounds of the engine: whatever a method does between two forwards, it ends, and others go on."""

from __future__ import annotations

import sys

import pytest
import repository
from toy import Toy

from unspool.core.asks import Done, Emit, Keep, Look, Price, Score
from unspool.core.canvas import Canvas, Field
from unspool.core.chance import Philox
from unspool.core.claim import overheard
from unspool.core.errors import BadRequest
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Same
from unspool.recipes.methods import fitted, runnable
from unspool.rules.decode import plain
from unspool.rules.search.cut_short import CutShort
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.job import SILENT

SHOWN = Canvas.blank((0,), 3)


def silent(ask):
    """A method that looks once and then says the same for ever."""

    def method(text, chance, warp, stop):
        yield Score()
        while True:
            yield ask

    return method


ENDLESS = {
    "emit": Emit((), (), (), canvas=SHOWN),
    "keep": Keep(NOTHING),
    "price": Price(),
    "price of no model": Price("nobody"),
}


@pytest.mark.parametrize("ask", ENDLESS.values(), ids=ENDLESS)
def test_a_method_that_never_asks_a_model_again_fails_alone(ask):
    model = CachedModel(Toy(vocab=4, room=200))
    engine = Engine({"target": model})
    endless = engine.submit(silent(ask), (1,), Philox(0), stop=Stop(most=30))
    other = engine.submit(plain(), (2,), Philox(0), stop=Stop(most=30))
    steps = 0
    while other.state != "ended":
        engine.step()
        steps += 1
    assert endless.state == "live"  # it got its turns, and nobody waited for it
    assert steps <= 40
    engine.run()
    with pytest.raises(BadRequest, match=f"{SILENT} asks in a row without a look at the model"):
        endless.result()
    assert len(other.result().tokens) == 30
    assert model.network.slots.in_use == 0


def test_a_long_row_of_asks_without_a_model_is_no_endless_one():
    def method(text, chance, warp, stop):
        for _ in range(3):
            scores = yield Score()
            for _ in range(SILENT // 2):
                yield Emit((), (), ())
        yield Emit((1,), [scores.leaf[0]], [scores.leaf[0]])
        return Done((1,), "length")

    engine = Engine({"target": CachedModel(Toy(vocab=4))})
    job = engine.submit(method, (1,), Philox(0))
    engine.run()
    assert job.result().tokens == (1,)


# ---- time


class Clock:
    """A second for every forward."""

    now = 0.0

    def __call__(self):
        return self.now


class Timed(Table):
    """A model of any kind, on whose clock a forward takes a second."""

    def __init__(self, clock, vocab=5):
        super().__init__(vocab, lambda text: [1 + (hash((text, x)) % 97) ** 2 for x in range(vocab)])
        self.clock, self.asked = clock, 0

    def score(self, asked):
        self.clock.now += 1
        self.asked += 1
        return super().score(asked)

    def look(self, asked):
        self.clock.now += 1
        self.asked += 1
        return [Field({i: self.law((*ask.look.canvas.tokens, i)) for i in ask.look.places}, 1) for ask in asked]


class Letters:
    """A vocabulary of five signs."""

    size, eos = 5, frozenset({4})

    def piece(self, token):
        return b"abc.\n"[token : token + 1]

    def token(self, text):
        return ord(text) % 5

    def encode(self, text, special=True):
        return tuple("abc.\n".index(x) for x in text if x in "abc.\n")

    def chat(self, messages, reply=True):
        return "a".join(message["content"] for message in messages)


def late(spec, seconds, most=40, prompt=(0, 1, 2)):
    """How a method ends that has so many forwards' time, and what it asked for and emitted."""
    clock = Clock()
    models = {name: Timed(clock) for name in ("target", "draft", "small", "slem", "slrs")}
    made = fitted(spec, Letters())
    found = []
    heard = overheard(made, found.extend)
    method = CutShort(heard) if heard is not made else heard
    engine = Engine(models)
    stop = Stop(most=most, seconds=seconds, clock=clock, piece=Letters().piece)
    job = engine.submit(method, prompt, Philox(3), Same(), stop, room=most + len(prompt))
    engine.run()
    emitted = [x for emit in job.emitted for x in emit.tokens]
    return job.result(), emitted, sum(model.asked for model in models.values()), job


def specs():
    sys.path.insert(0, str(repository.ROOT / "scripts" / "pages"))
    from running import OPTIONS

    without = {
        "filtered",
        "retrieve",
        "rewarded",
        "heads",
        "slem",
        "judged",
        "specdecpp",
    }  # which need a file, or a model of their own
    options = {**OPTIONS, "insert": "none=4", "template": "words=ab+c", "neurologic": "words=ab", "mcts": "rollouts=99"}
    for entry in runnable():
        if entry.name not in without:
            yield f"{entry.name}:{options[entry.name]}" if entry.name in options else entry.name


@pytest.mark.parametrize("seconds", [0.5, 3.5])
@pytest.mark.parametrize("spec", list(specs()))
def test_time_ends_every_method(spec, seconds):
    done, emitted, asked, job = late(spec, seconds)
    assert done.reason == ("length" if len(done.tokens) == 40 else "time"), done  # a canvas may be full by then
    assert asked <= seconds + 2  # the forward during which it was over, and at most a draft model's beside
    assert list(done.tokens) == emitted == job.tokens
    assert all(len(emit.tokens) == len(emit.before) == len(emit.after) for emit in job.emitted)


def test_without_a_limit_nobody_looks_at_the_clock():
    def broken():
        raise AssertionError("there is no limit")

    engine = Engine({"target": CachedModel(Toy(vocab=4))})
    job = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=5, clock=broken))
    engine.run()
    assert len(job.result().tokens) == 5


@pytest.mark.parametrize("spec", ["beam", "mcts", "smc", "astar", "several:count=3"])
def test_a_search_hands_out_the_best_that_it_has_found(spec):
    done, emitted, _, _ = late(spec, 6.5)
    assert done.reason == "time"
    assert len(emitted) >= 3


@pytest.mark.parametrize("seconds", [6.5, 8.5, 10.5, 12.5])
def test_a_search_that_has_begun_to_write_hands_out_nothing_twice(seconds):
    done, emitted, _, _ = late("chaotic:entropy=0,ratio=0,top=2,longest=4", seconds)  # looks ahead most of the time
    assert done.reason == "time"
    assert list(done.tokens) == emitted
    assert 1 <= len(emitted) <= 4


STANDING = {
    "renoise": 30.5,
    "edit": 30.5,
    "resample": 30.5,
    "fragments:rounds=50": 60.5,
    "deliberate": 30.5,
    "slots:size=6,beam=2": 8.5,
    "insert:none=4": 3.5,
}


@pytest.mark.parametrize(("spec", "seconds"), STANDING.items())
def test_a_canvas_hands_out_what_stands_on_it(spec, seconds):
    """By then something stands, though it might have been revised."""
    done, _, _, _ = late(spec, seconds)
    assert len(done.tokens) > 1
    assert -1 not in done.tokens


def test_a_prompt_that_takes_too_long_to_read_is_given_up():
    clock = Clock()

    class Slow(Toy):
        def forward(self, batch):
            clock.now += len(batch.tokens)
            return super().forward(batch)

    model = CachedModel(Slow(vocab=4, room=5000))
    engine = Engine({"target": model})
    other = engine.submit(plain(), (2,), Philox(0), stop=Stop(most=40))
    engine.step()
    engine.step()
    long = engine.submit(plain(), tuple(range(4)) * 1000, Philox(0), stop=Stop(most=9, seconds=100.0, clock=clock))
    engine.run()
    assert long.result() == Done((), "time")
    assert clock.now < 4000  # the rest of it was not read
    assert len(other.result().tokens) == 40
    model.forget()
    assert model.network.slots.in_use == 0


def test_one_that_fails_at_the_end_of_its_time_tells_why():
    def method(text, chance, warp, stop):
        try:
            while True:
                yield Score()
        finally:
            raise BadRequest("it broke while it was tidying up")

    clock = Clock()
    engine = Engine({"target": Timed(clock)})
    job = engine.submit(method, (1,), Philox(0), stop=Stop(seconds=2.5, clock=clock))
    engine.run()
    with pytest.raises(BadRequest, match="tidying up"):
        job.result()


# ---- rows


def wants(*asks):
    def method(text, chance, warp, stop):
        for ask in asks:
            _ = yield ask
        return Done((), "length")

    return method


WIDE = Tree.chain([chosen(1)] * 9)
BLANK = Canvas.blank((0,), 12)
LARGE = {
    "a tree": (9 + 1, [Score(WIDE)]),
    "texts": (9, [Keep(NOTHING, (ROOT,) * 9, (1,) * 9)]),
    "a tree after texts": (9 + 3, [Keep(NOTHING, (ROOT,) * 3, (1,) * 3), Score(WIDE)]),
    "holes": (12, [Look(BLANK)]),
    "copies": (12 * 12 // 4, [Look(BLANK, along=tuple(range(1, 13)))]),
}


@pytest.mark.parametrize(("rows", "asks"), LARGE.values(), ids=LARGE)
def test_a_request_that_wants_too_much_in_one_step_fails_before_the_forward(rows, asks):
    for most, fits in ((rows, True), (rows - 1, False)):
        model = Timed(Clock())
        engine = Engine({"target": model}, rows=most)
        job = engine.submit(wants(*asks), (0,), Philox(0))
        other = engine.submit(plain(), (1,), Philox(0), stop=Stop(most=3))
        engine.run()
        assert len(other.result().tokens) == 3
        if fits:
            assert job.result().reason == "length"
        else:
            with pytest.raises(BadRequest, match=rf"wants {rows} rows of the model in one step.* may have {most} here"):
                job.result()
            assert job.trace.forwards["target"] == 0
