"""A long prompt is read in chunks while others write, who go on in between; its text is what it is alone."""

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
from standin import standin, token_at
from toy import Toy

from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Chain, Lookup
from unspool.rules.verify import rejection
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.packing import Kind
from unspool.runtime.draft_bridge.best_effort import BestEffortDraft
from unspool.runtime.engine.engine import Engine

LONG = [(3 * i + i // 7) % 4 for i in range(50)]


class Watched(Toy):
    """A toy that notes how many tokens each forward computes."""

    def __init__(self, **options):
        super().__init__(**options)
        self.widths = []

    def forward(self, batch):
        self.widths.append(len(batch.tokens))
        return super().forward(batch)


def watched(chunk, **options):
    network = Watched(vocab=4, room=400, **options)
    model = CachedModel(network)
    model.chunk = chunk
    return network, model


def alone(method, prompt, most):
    engine = Engine({"target": CachedModel(Toy(vocab=4, room=400))})
    job = engine.submit(method, prompt, Philox(1), stop=Stop(most=most))
    engine.run()
    return job.result()


def tokens(job):
    return sum(len(emit.tokens) for emit in job.emitted)


@pytest.mark.parametrize("method", [plain(), Speculate(Lookup(2, 1, 4))])
def test_who_writes_gets_a_token_between_the_portions(method):
    network, model = watched(8)
    engine = Engine({"target": model})
    first = engine.submit(method, (1, 2), Philox(1), stop=Stop(most=40))
    engine.step()
    second = engine.submit(method, LONG, Philox(1), stop=Stop(most=5))
    grew = []
    while not second.emitted:
        before, already = tokens(first), len(network.widths)
        engine.step()
        if not second.emitted:
            grew.append(tokens(first) - before)
            assert sum(network.widths[already:]) <= 8 + 5  # the chunk, and the other's token with its draft
    assert len(grew) >= 50 // 8
    assert all(n >= 1 for n in grew[1:])
    assert second.trace.rows["target"] >= 50
    engine.run()
    assert first.result() == alone(method, (1, 2), 40)
    assert second.result() == alone(method, LONG, 5)
    assert network.slots.in_use == 0


@pytest.mark.parametrize("room", [400, 30])
def test_a_draft_model_reads_in_portions_too_and_falls_silent_where_it_has_no_room(room):
    network, model = watched(8)
    drafting = Watched(vocab=4, room=room)
    draft = CachedModel(drafting)
    draft.chunk = 8
    engine, method = (
        Engine({"target": model, "draft": BestEffortDraft(draft)}),
        Speculate(Chain(2), rejection, budget=2),
    )
    first = engine.submit(method, (1, 2), Philox(1), stop=Stop(most=30))
    while not first.emitted:
        engine.step()
    second = engine.submit(method, LONG, Philox(1), stop=Stop(most=5))
    engine.run()
    assert max(drafting.widths) <= 8 + 3  # never the whole prompt while the other writes
    assert (second.trace.drafted > 0) == (second.trace.forwards["draft"] > 0) == (room == 400)
    for job, prompt, most in ((first, (1, 2), 30), (second, LONG, 5)):
        lonely = Engine(
            {
                "target": CachedModel(Toy(vocab=4, room=400)),
                "draft": BestEffortDraft(CachedModel(Toy(vocab=4, room=room))),
            }
        )
        same = lonely.submit(method, prompt, Philox(1), stop=Stop(most=most))
        lonely.run()
        assert job.result() == same.result()
    assert network.slots.in_use == drafting.slots.in_use == 0


def test_who_is_alone_reads_its_prompt_in_one_go():
    network, model = watched(8)
    engine = Engine({"target": model})
    engine.submit(plain(), LONG, Philox(1), stop=Stop(most=2))
    engine.run()
    assert network.widths == [50, 1]


def test_requests_that_come_together_read_together():
    network, model = watched(8)
    engine = Engine({"target": model})
    for start in range(3):
        engine.submit(plain(), [start, *LONG], Philox(1), stop=Stop(most=2))
    engine.run()
    assert network.widths == [3 * 51, 3]


def test_when_the_others_have_ended_the_rest_is_read_at_once():
    network, model = watched(8)
    engine = Engine({"target": model})
    first = engine.submit(plain(), (1, 2), Philox(1), stop=Stop(most=3))
    engine.step()
    second = engine.submit(plain(), LONG, Philox(1), stop=Stop(most=2))
    engine.run()
    assert len(first.result().tokens) == 3
    assert network.widths == [2, 1, 8, 1, 8, 34, 1]
    assert second.result() == alone(plain(), LONG, 2)


def test_the_oldest_reads_first_and_short_prompts_share_a_portion():
    network, model = watched(8)
    engine = Engine({"target": model})
    writer = engine.submit(plain(), (1,), Philox(1), stop=Stop(most=60))
    engine.step()
    jobs = [engine.submit(plain(), [0, x, *LONG[:n]], Philox(x), stop=Stop(most=4)) for x, n in enumerate((12, 2, 1))]
    engine.step()
    assert [job.reading for job in jobs] == [True, True, True]
    assert network.computed == 1 + 1 + 8
    engine.step()
    # Of the oldest 6 tokens are left and read; the next has 4, of which 2 still fit; the last one waits.
    assert [job.reading for job in jobs] == [False, True, True]
    engine.run()
    assert [len(job.result().tokens) for job in (writer, *jobs)] == [60, 4, 4, 4]


def test_a_request_that_is_cancelled_while_it_reads_frees_all_it_holds():
    network, model = watched(8)
    engine = Engine({"target": model})
    writer = engine.submit(plain(), (1, 2), Philox(1), stop=Stop(most=30))
    engine.step()
    reader = engine.submit(plain(), LONG, Philox(1), stop=Stop(most=5))
    for _ in range(3):
        engine.step()
    assert reader.reading
    assert network.slots.in_use > 3 * 8
    engine.cancel(reader)
    assert reader.result().reason == "cancelled"
    assert network.slots.in_use < 8
    engine.run()
    assert writer.result() == alone(plain(), (1, 2), 30)
    assert network.slots.in_use == 0


def test_a_prompt_that_cannot_be_read_is_its_requests_own_failure():
    class Fragile(Watched):
        def forward(self, batch):
            if 3 in batch.tokens.tolist():
                raise RuntimeError("token 3 is poison")
            return super().forward(batch)

    network = Fragile(vocab=4, room=400)
    model = CachedModel(network)
    model.chunk = 8
    engine = Engine({"target": model})
    calm = Philox(1)
    writer = engine.submit(Speculate(Lookup(2, 1, 1), budget=1), (1, 2), calm, stop=Stop(most=4))
    engine.step()
    broken = engine.submit(plain(), [0, 1, 3, *[0] * 20], calm, stop=Stop(most=1))
    fine = engine.submit(plain(), [1] * 20, calm, stop=Stop(most=1))
    engine.run()
    with pytest.raises(RuntimeError, match="poison"):
        broken.result()
    assert len(fine.result().tokens) == 1
    assert writer.state == "ended"
    assert network.slots.in_use == 0


def test_samples_of_a_prompt_that_is_read_in_portions_still_share_it():
    _, model = watched(8)
    engine = Engine({"target": model})
    engine.submit(plain(), (1, 2), Philox(1), stop=Stop(most=30))
    engine.step()
    jobs = [engine.submit(plain(), LONG, Philox(1, stream), stop=Stop(most=1)) for stream in range(3)]
    engine.run()
    assert sum(job.trace.rows["target"] for job in jobs) == 50 + 2


def test_on_a_device_the_others_write_between_the_portions_and_nothing_is_left():
    model = standin(64, context=4096)
    engine = Engine({"target": model})
    writers = [engine.submit(plain(), [x, 1], Philox(x), stop=Stop(most=90), laws=False) for x in range(6)]
    engine.step()
    prompt = [(i + 60) % 64 for i in range(3000)]
    reader = engine.submit(plain(), prompt, Philox(9), stop=Stop(most=3), laws=False)
    gone = engine.submit(plain(), prompt[::-1], Philox(9), stop=Stop(most=3), laws=False)
    engine.step()
    assert reader.reading
    assert gone.reading
    assert model.owed(reader.sessions["target"]) == 3000 - 4 * model.chunk  # four tokens were written meanwhile
    assert [tokens(job) for job in writers] == [32] * 6  # handed out when the decoder goes on
    engine.step()
    assert [tokens(job) for job in writers] == [36] * 6
    engine.cancel(gone)
    engine.run()
    expected = tuple(token_at(9, place, 64) for place in range(3000, 3003))
    assert reader.result().tokens == expected
    assert [len(job.result().tokens) for job in writers] == [90] * 6
    assert model.slots.in_use == 0
    assert model.executor.block_table.in_use == 0


def test_a_text_read_in_portions_has_the_slots_of_one_read_at_once():
    model = standin(64, context=4096)
    session = model.open([1] * 2700)
    model.read([(session, 2600)])
    assert model.owed(session) == 100
    assert model.slots.in_use == 2600
    fills = [size for size in model.executor.buckets if size.kind is Kind.FILL]
    assert {size.tokens for size in fills} == {2048, 1024}
    session.keep(NOTHING, (~0,), (5,))
    session.close()
    assert model.slots.in_use == 0
