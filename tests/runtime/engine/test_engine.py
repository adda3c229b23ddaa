"""The engine: many decoders of different kinds in one batch, each with the same tokens as alone."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from decoders import Beam, Particles
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import Toy, logits_of

from unspool.core.asks import Done, Keep, Look, Score
from unspool.core.canvas import Canvas
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.errors import BadRequest, BadScores, EmptyLaw, OutOfRoom
from unspool.core.law import Drawn, Law
from unspool.core.stop import Stop
from unspool.core.trace import Trace
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Forbid, Temperature
from unspool.rules.decode import Denoise, Speculate, plain
from unspool.rules.draft import RSDC, Chain, Lookup, Memoryless
from unspool.rules.unmask import one
from unspool.rules.verify import rejection
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine


def table(seed: int, vocab: int = 3) -> Table:
    return Table(vocab, lambda text: logits_of((seed, *text), vocab).exp().tolist())


def models() -> dict:
    return {"target": table(1), "draft": table(2)}


def slotted(room: int = 200) -> dict:
    return {"target": CachedModel(Toy(vocab=4, room=room)), "draft": CachedModel(Toy(vocab=4, room=room))}


JOBS = [
    (plain(), (0,)),
    (Speculate(Chain(3), rejection), (0, 1)),
    (Speculate(RSDC((2, 2)), rejection), (2, 1, 0)),
    (Speculate(Lookup(1, 1, 4)), (0, 1, 0, 1)),
    (Beam(3, 6), (1,)),
    (Particles(4, 5), (2, 2)),
]


def alone(method, prompt, seed, which, **submit):
    engine = Engine(which)
    job = engine.submit(method, prompt, Philox(seed), stop=Stop(most=9), **submit)
    engine.run()
    return job.result()


@pytest.mark.parametrize("which", [models, slotted])
def test_a_mixed_batch_gives_each_request_its_own_tokens_in_fewer_forwards(which):
    apart = [alone(method, prompt, seed, which()) for seed, (method, prompt) in enumerate(JOBS)]
    shared = which()
    engine = Engine(shared)
    jobs = [engine.submit(m, p, Philox(seed), stop=Stop(most=9)) for seed, (m, p) in enumerate(JOBS)]
    steps = 1
    while engine.step():
        steps += 1
    assert [job.result() for job in jobs] == apart
    assert steps < sum(job.trace.forwards.total() for job in jobs)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_requests_join_and_leave_at_any_step(data):
    """Whenever the others come, go or are cancelled, what finishes is what it would be alone, and nothing stays."""
    which = slotted(room=400)
    engine, running = Engine(which), []
    for _ in range(data.draw(st.integers(3, 12))):
        act = data.draw(st.sampled_from(["join", "join", "step", "step", "cancel"]))
        if act == "join":
            index, seed = data.draw(st.integers(0, len(JOBS) - 1)), data.draw(st.integers(0, 5))
            method, prompt = JOBS[index]
            running.append((index, seed, engine.submit(method, prompt, Philox(seed), stop=Stop(most=9))))
        elif act == "cancel" and running:
            engine.cancel(data.draw(st.sampled_from(running))[2])
        else:
            engine.step()
    engine.run()
    for index, seed, job in running:
        if job.result().reason != "cancelled":
            assert job.result() == alone(*JOBS[index], seed, slotted())
    for model in which.values():
        assert model.slots.in_use == 0


def test_the_joint_law_of_a_batch_is_the_product_of_the_laws_alone():
    """Two requests in one batch, enumerated together: neither leaks into the other."""
    stop = Stop(frozenset({2}), most=2)

    class Lane:
        """The same chance at other addresses, as another seed would give."""

        def __init__(self, chance, lane):
            self.chance, self.lane = chance, lane

        def choose(self, law, at):
            return self.chance.choose(law, at._replace(position=at.position + 1000 * self.lane))

        def coin(self, p, at):
            return self.chance.coin(p, at._replace(position=at.position + 1000 * self.lane))

    pair = [(Speculate(Chain(1), rejection), (0,)), (plain(), (1,))]
    which = models()

    def together(chance):
        engine = Engine(which)
        jobs = [engine.submit(m, p, Lane(chance, i), stop=stop) for i, (m, p) in enumerate(pair)]
        engine.run()
        return tuple(job.result() for job in jobs)

    def single(i):
        def program(chance):
            engine = Engine(which)
            job = engine.submit(*pair[i], Lane(chance, i), stop=stop)
            engine.run()
            return job.result()

        return Every().law(program)

    first, second = single(0), single(1)
    product = {(a, b): p * q for a, p in first.items() for b, q in second.items()}
    assert total_variation(Every().law(together), product) < 1e-12


def test_a_failure_is_the_requests_own():
    class Cracked(Table):
        def law(self, text):
            law = super().law(text)
            return Law(law.scores * float("nan")) if text[:1] == (2,) else law

    engine = Engine({"target": Cracked(3, lambda text: [1.0, 1.0, 1.0])})
    broken = engine.submit(plain(), (2,), Philox(0), stop=Stop(most=4))
    forbidden = engine.submit(plain(), (0,), Philox(0), Forbid((0, 1, 2)), Stop(most=4))
    fine = engine.submit(plain(), (0,), Philox(0), stop=Stop(most=4))
    engine.run()
    assert len(fine.result().tokens) == 4
    with pytest.raises(BadScores, match="NaN"):
        broken.result()
    with pytest.raises(EmptyLaw, match="every token is forbidden"):
        forbidden.result()


def test_one_request_that_breaks_the_forward_does_not_take_the_others_with_it():
    class Fragile(Toy):
        def forward(self, batch):
            if 3 in batch.tokens.tolist():
                raise RuntimeError("token 3 is poison")
            return super().forward(batch)

    network = Fragile(vocab=4, room=100)
    engine = Engine({"target": CachedModel(network)})
    no_three = Forbid((3,)) | Temperature(0)
    jobs = [engine.submit(plain(), (x,), Philox(0), no_three, Stop(most=3)) for x in (0, 3, 1)]
    engine.run()
    assert [job.error is None for job in jobs] == [True, False, True]
    with pytest.raises(RuntimeError, match="poison"):
        jobs[1].result()
    assert network.slots.in_use == 0


def test_admission_waits_for_room_and_refuses_what_never_fits():
    engine = Engine({"target": CachedModel(Toy(room=20))})
    jobs = [engine.submit(plain(), (x,), Philox(x), stop=Stop(most=7), room=8) for x in range(5)]
    engine.step()
    assert [job.state for job in jobs] == ["live", "live", "waiting", "waiting", "waiting"]
    with pytest.raises(OutOfRoom, match="may need 21 tokens of cache, but the target model has 20"):
        engine.submit(plain(), (1,), Philox(0), room=21)
    engine.run()
    assert all(len(job.result().tokens) == 7 for job in jobs)


def test_a_cancelled_request_keeps_what_it_emitted_and_frees_the_rest():
    which = slotted()
    engine = Engine(which)
    job = engine.submit(Speculate(Chain(3), rejection), (1, 2), Philox(0), stop=Stop(most=50))
    for _ in range(10):
        engine.step()
    assert which["target"].slots.in_use > 0
    engine.cancel(job)
    engine.cancel(job)
    assert job.result().reason == "cancelled"
    assert sum(len(emit.tokens) for emit in job.emitted) > 0
    assert which["target"].slots.in_use == 0
    assert which["draft"].slots.in_use == 0
    assert not engine.step()


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [((), BadRequest, "prompt is empty"), ((9,), BadRequest, "token 9 is outside"), ((-1,), BadRequest, "outside")],
)
def test_impossible_prompts_are_refused(text, error, words):
    with pytest.raises(error, match=words):
        Engine(models()).submit(plain(), text, Philox(0))


def test_a_prompt_that_fills_the_context_is_refused():
    engine = Engine({"target": CachedModel(Toy(context=4))})
    with pytest.raises(OutOfRoom, match="4 tokens, but the target model reads at most 4"):
        engine.submit(plain(), (1, 2, 3, 4), Philox(0))


def test_a_missing_model_and_an_ask_it_cannot_answer_are_named():
    engine = Engine({"target": CachedModel(Toy())})
    no_draft = engine.submit(Speculate(Chain(2), rejection), (1,), Philox(0))
    canvas = engine.submit(Denoise(one, 3), (1,), Philox(0))
    engine.run()
    with pytest.raises(BadRequest, match="a model called 'draft'; this engine has: target"):
        no_draft.result()
    with pytest.raises(BadRequest, match="fills holes, but the target model reads left to right"):
        canvas.result()


def test_hidden_states_come_through_the_ask():
    def curious(text, chance, warp, stop):
        scores = yield Score(want=("hidden:1",))
        yield Keep(NOTHING)
        return Done((round(float(scores.hidden["hidden:1"][0, 0]), 6),), "length")

    engine = Engine({"target": CachedModel(Toy())})
    job = engine.submit(curious, (1, 2), Philox(0))
    engine.run()
    assert job.result().tokens == (round(float(logits_of((1, 2, 1), 3)[0]), 6),)


def test_looks_and_scores_share_a_table():
    def both(text, chance, warp, stop):
        scores = yield Score()
        field = yield Look(Canvas.blank(text, 1))
        same = torch.allclose(scores.leaf[0].p, field[len(text)].p, atol=1e-12)
        return Done((int(same),), "length")

    engine = Engine(models())
    job = engine.submit(both, (1, 2), Philox(0))
    engine.run()
    assert job.result().tokens == (1,)


def test_the_trace_adds_up():
    engine = Engine(models())
    job = engine.submit(Speculate(Chain(2), rejection), (0,), Philox(3), stop=Stop(most=20))
    engine.run()
    trace = job.trace
    assert trace.tokens == 20
    assert trace.forwards["target"] == trace.rounds
    assert trace.rounds <= trace.drafted <= 2 * trace.rounds
    assert trace.forwards["draft"] == trace.drafted
    assert sum(trace.accepted.values()) == trace.rounds
    assert trace.mean_acceptance_length == pytest.approx(1 + trace.accepted_tokens / trace.rounds)
    rates = trace.per_position_acceptance_rate
    assert rates == sorted(rates, reverse=True)
    assert sum(rates) * trace.rounds == pytest.approx(trace.accepted_tokens)
    parts = trace.seconds_draft + trace.seconds_forward + trace.seconds_rule + trace.seconds_overhead
    assert parts == pytest.approx(trace.seconds_total)
    assert "drafted tokens accepted" in str(trace)
    assert "time: draft " in str(trace)
    assert "time: method " in str(replace(trace, drafted=0))  # who drafted nothing spent no time on it


def test_what_an_end_takes_is_part_of_the_whole_time(clock):
    """However long sessions take to close, the parts of a request's time are no more than all of it."""

    class Slow(CachedModel):
        def closed(self, session):
            super().closed(session)
            clock.now += 0.3

    engine = Engine({"target": Slow(Toy(vocab=4, room=64))})
    job = engine.submit(plain(), (0,), Philox(3), stop=Stop(most=4))
    engine.run()
    assert job.trace.seconds_rule == pytest.approx(0.3)
    assert job.trace.seconds_total == pytest.approx(0.3)


def test_speculation_goes_right_up_to_the_end_of_the_context():
    """The last tokens of a full context are drafted no further than they can stand."""
    network = Toy(vocab=4, room=64, context=24)
    which = {"target": CachedModel(network), "draft": CachedModel(Toy(vocab=4, room=64, context=24))}
    for method in (Speculate(Chain(5), rejection), Speculate(Lookup(1, 1, 6)), Speculate(RSDC((2, 2, 2)), rejection)):
        engine = Engine(which)
        job = engine.submit(method, (1, 2, 1, 2), Philox(1), stop=Stop(most=20))
        engine.run()
        assert len(job.result().tokens) == 20
        assert job.result().reason == "length"
    assert network.slots.in_use == 0


def test_near_the_end_drafts_get_shallower_and_not_narrower():
    """Two tokens before the end a tree has one level, as wide as ever, within the room there is."""

    @dataclass(frozen=True)
    class Wide(Memoryless):
        shapes: list

        def propose(self, prefix, budget, chance):
            yield from ()
            law = Law.point(3)
            tree = Tree((Drawn(3, law),) * budget, tuple(ROOT if i % 2 == 0 else i - 1 for i in range(budget)))
            self.shapes.append((budget, prefix.left))
            return tree

        def learn(self, prefix, tree, scores):
            self.shapes.append(len(tree))

    for spare, nodes in ((math.inf, 6), (3, 4), (0, 1)):
        shapes = []
        engine = Engine({"target": Table(4, lambda text: (1, 1, 1, 0))})  # no drafted token ever stands
        job = engine.submit(Speculate(Wide(shapes), budget=6), (1,), Philox(0), stop=Stop(most=3, spare=spare))
        engine.run()
        assert len(job.result().tokens) == 3
        first, whole, second, pruned = shapes  # nothing is drafted for the last token
        assert first == (whole, 3) == (min(6, 2 + spare), 3)
        assert second == (nodes, 2)
        assert pruned == (nodes + 1) // 2


def test_a_tight_cache_holds_drafts_to_the_very_end():
    """Where the cache has room for the text and nothing more, drafts make do with what the text does not use yet."""
    which = {name: CachedModel(Toy(vocab=4, room=24, context=24)) for name in ("target", "draft")}
    for method in (Speculate(Chain(5), rejection), Speculate(RSDC((2, 2, 2)), rejection, budget=14)):
        engine = Engine(which)
        job = engine.submit(method, (1, 2, 1, 2), Philox(1), stop=Stop(most=20, spare=0), room=24)
        engine.run()
        assert len(job.result().tokens) == 20


def test_traces_add_up_over_requests():
    engine = Engine(models())
    jobs = [engine.submit(method, text, Philox(2), stop=Stop(most=6)) for method, text in JOBS[:2]]
    engine.run()
    traces = [job.trace for job in jobs]
    total = sum(traces, Trace())
    assert total.seconds_first is None
    for figure in ("prompt", "tokens", "rounds", "drafted", "accepted_tokens", "asks", "seconds_total"):
        assert getattr(total, figure) == sum(getattr(trace, figure) for trace in traces)
    assert total.forwards["target"] == sum(trace.forwards["target"] for trace in traces)
    assert traces[0].tokens == 6  # adding changed nothing


def test_a_text_that_cannot_be_opened_ends_its_request_alone():
    class Choosy(Table):
        def open(self, text, owner=""):
            if text[0] == 1:
                raise OutOfRoom("no text that begins with 1")
            return super().open(text, owner)

    engine = Engine({"target": Choosy(3, lambda text: [1.0, 1.0, 1.0])})
    jobs = [engine.submit(plain(), (first,), Philox(0), stop=Stop(most=2)) for first in (0, 1, 2)]
    engine.run()
    assert [len(job.result().tokens) for job in (jobs[0], jobs[2])] == [2, 2]
    with pytest.raises(OutOfRoom, match="begins with 1"):
        jobs[1].result()
    engine.cancel(jobs[1])
    assert not engine.live
    assert not engine.waiting


def test_who_comes_with_a_prompt_that_was_read_waits_for_nobody():
    engine = Engine({"target": CachedModel(Toy(vocab=4, room=200), prefix_cache=1)})
    first = engine.submit(plain(), (1, 2, 3), Philox(0), stop=Stop(most=9))
    while not first.trace.forwards["target"]:
        engine.step()
    others = [engine.submit(plain(), (1, 2, 3), Philox(seed), stop=Stop(most=9)) for seed in (1, 2)]
    engine.admit()
    assert all(job in engine.live for job in others)


def test_a_text_that_learns_from_another_begins_when_that_has_ended():
    engine = Engine(slotted())
    first, second = (engine.submit(plain(), (n,), Philox(0), stop=Stop(most=5)) for n in (1, 2))
    second.after = first
    while first.state != "ended":
        engine.submit(plain(), (3,), Philox(0), stop=Stop(most=1))  # who comes and goes, so that the queue is looked at
        assert second.state == "waiting"
        engine.step()
    engine.run()
    assert len(second.result().tokens) == 5
