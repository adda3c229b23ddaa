"""The GPU runtime's bookkeeping on a stand-in for the device: many rows that write on their own, and nothing left."""

import math
import random

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
import torch
from standin import Blank, Instant, standin, token_at
from tokenizers import Tokenizer, models

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.asks import Write
from unspool.core.chance import At, Philox, Role
from unspool.core.cost import Cost
from unspool.core.errors import BadScores
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.core.warp.warp import Prefix, Same
from unspool.models.vocabulary import Vocabulary
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Lookup
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.sequence import CachedSequence
from unspool.runtime.cuda.cuda_graph_executor import CudaGraphExecutor
from unspool.runtime.cuda.footprint import PORTION, WIDEST, portion, step_up
from unspool.runtime.cuda.graph_model import graph_model, on_device
from unspool.runtime.cuda.packing import Kind
from unspool.runtime.cuda.text_lines import TextLines
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.model_runner import ModelRunner

VOCAB = 64


def expected(seed, prompt, count):
    return tuple(token_at(seed, place, VOCAB) for place in range(len(prompt), len(prompt) + count))


def left(model):
    model.forget()
    return model.slots.in_use, model.executor.block_table.in_use


def test_a_thousand_requests_of_all_lengths_come_and_go_and_leave_nothing():
    """Whatever joins, ends or is cancelled in between, each text is its own, and slots and lanes are free again."""
    dice = random.Random(1)
    model = standin(VOCAB, room=6000, context=256, prefix_cache=3, sequences=100)
    engine, jobs = Engine({"target": model}), []
    while len(jobs) < 1000 or engine.waiting or engine.live:
        for _ in range(min(dice.randint(0, 60), 1000 - len(jobs))):
            seed, most = len(jobs), dice.choice((1, 2, 3, 17, 40, 150))
            prompt = [dice.randrange(VOCAB) for _ in range(dice.randint(1, 90))]
            method = plain() if dice.random() < 0.8 else Speculate(Lookup(2, 1, 4), budget=4)
            limits = {"stop": Stop(most=most, spare=4), "room": len(prompt) + most + 4, "laws": False}
            jobs.append((prompt, most, engine.submit(method, prompt, Philox(seed), **limits)))
        engine.step()
        if dice.random() < 0.5:
            engine.cancel(dice.choice(jobs)[2])
    for seed, (prompt, most, job) in enumerate(jobs):
        assert job.error is None
        if job.result().reason != "cancelled":
            assert job.result().tokens == expected(seed, prompt, most)
    assert sum(job.result().reason != "cancelled" for _, _, job in jobs) > 500
    assert left(model) == (0, 0)


def test_a_pool_that_is_just_large_enough_is_never_overrun():
    """Tokens written ahead take no slot that another request was promised."""
    model = standin(VOCAB, room=4 * 50, context=256)
    engine = Engine({"target": model})
    jobs = [engine.submit(plain(), [x] * 10, Philox(x), stop=Stop(most=40), room=50, laws=False) for x in range(9)]
    engine.run()
    assert [job.result().tokens for job in jobs] == [expected(x, [x] * 10, 40) for x in range(9)]
    assert left(model) == (0, 0)


def test_where_slots_are_short_fewer_tokens_are_written_at_once():
    model = standin(VOCAB, room=30, context=256)
    sessions = [model.open([x + 1]) for x in range(5)]
    asked = [ScoreRequest(session, NOTHING) for session in sessions]
    writes = [Write(Prefix.of((x + 1,), Same()), Philox(x), most=32) for x in range(5)]
    written = model.device.write(asked, writes, 32)
    assert [len(reply.tokens) for reply in written] == [4] * 5
    for session in sessions:
        session.close()
    assert left(model) == (0, 0)


@pytest.mark.parametrize(("at", "turns"), [((5,), 12), ((2, 9), 16), ((3, None), 32), ((0,), 8)])
def test_what_nobody_wants_behind_an_end_is_not_written(at, turns):
    """The host looks every four turns, while the next four run; `at` is where the end of each text stands, if any."""
    model = standin(VOCAB, context=256)
    prompts = [(x + 1,) for x in range(len(at))]
    texts = [expected(x, list(prompt), 32) for x, prompt in enumerate(prompts)]
    ends = [frozenset() if place is None else frozenset({text[place]}) for text, place in zip(texts, at, strict=True)]
    first = [32 if place is None else text.index(text[place]) for text, place in zip(texts, at, strict=True)]
    assert first == [32 if place is None else place for place in at], "a case whose end stands earlier too"
    sessions = [model.open(prompt) for prompt in prompts]
    asked = [ScoreRequest(session, NOTHING) for session in sessions]
    starts = [Prefix.of(prompt, Same()) for prompt in prompts]
    writes = [Write(start, Philox(x), 32, 0, end) for x, (start, end) in enumerate(zip(starts, ends, strict=True))]
    written = model.device.write(asked, writes, 32)
    assert [reply.tokens for reply in written] == [tuple(text[:turns]) for text in texts]
    assert [reply.forwards for reply in written] == [turns] * len(at)
    for session in sessions:
        session.close()
    assert left(model) == (0, 0)


def test_more_requests_than_lanes_wait_for_one():
    model = standin(VOCAB, sequences=4, context=256)
    engine = Engine({"target": model})
    jobs = [engine.submit(plain(), [x], Philox(x), stop=Stop(most=40), laws=False) for x in range(11)]
    engine.step()
    assert len(engine.live) == 4
    engine.run()
    assert all(job.result().reason == "length" for job in jobs)


def test_who_wants_few_tokens_does_not_hold_up_the_others():
    engine = Engine({"target": standin(VOCAB)})
    wants = (1, 2, 9, 30, 33, 64)
    jobs = [engine.submit(plain(), [x % 9] * 9, Philox(x), stop=Stop(most=x), laws=False) for x in wants]
    steps = 0
    while engine.step():
        steps += 1
    assert [len(job.result().tokens) for job in jobs] == list(wants)
    assert steps <= 3


@pytest.mark.parametrize(("patience", "most"), [(math.inf, 32), (1e-9, 1)])
def test_a_burst_is_as_long_as_the_least_patient_lets_it_be(patience, most):
    engine = Engine({"target": standin(VOCAB)})
    waits = (math.inf, patience)
    jobs = [engine.submit(plain(), [1] * 8, Philox(0), stop=Stop(most=200), laws=False, patience=p) for p in waits]
    engine.run()
    assert max(len(emit.tokens) for emit in jobs[1].emitted) == most
    assert jobs[0].result() == jobs[1].result()


def lm(**device):
    pieces = [bytes([97 + i % 26]) for i in range(VOCAB - 2)] + ["é".encode()[:1], "é".encode()[1:]]
    return LM("stand-in", standin(VOCAB, **device), Vocabulary(Tokenizer(models.BPE()), pieces, special=(), eos=()))


@pytest.mark.parametrize("stop", [(), ("xyz", "mn"), ("h",)])
def test_events_made_afterwards_are_those_of_the_stream(stop):
    writer = lm()
    options = Settings(max_tokens=90, temperature=1.0, seed=3, stop=stop)
    events, stream = [], writer.stream([1, 2, 3], options)
    while True:
        try:
            events.append(next(stream))
        except StopIteration as end:
            streamed = end.value
            break
    output = writer.generate([1, 2, 3], options)
    assert (output.text, output.tokens, output.reason) == (streamed.text, streamed.tokens, streamed.reason)
    assert output.events == streamed.events == tuple(events)
    assert "".join(event.text for event in events) == output.text
    assert not any(string in output.text for string in stop)


def test_prompts_are_read_once_however_many_samples_there_are_and_wait_for_room():
    """Forty prompts take more than the cache has; what one sample reads, those beside it share."""
    writer = lm(room=1500)
    prompts = [[x] * 40 for x in range(40)]
    outputs = writer.batch(prompts, Settings(max_tokens=20, temperature=1.0, n=3))
    assert [output.tokens for output in outputs[:3]] == [expected(0, prompts[0], 20)] * 3  # the stand-in has one stream
    assert [len(output.tokens) for output in outputs] == [20] * 120
    rows = [output.trace.rows["target"] for output in outputs]
    assert [sum(rows[i : i + 3]) for i in range(0, 9, 3)] == [39 + 3 * 20] * 3
    assert left(writer.model) == (0, 0)


class Failing(CudaGraphExecutor):
    """A device whose buckets break when they run, from the second write on."""

    def of(self, size, make):
        found = super().of(size, make)
        self.wrote = getattr(self, "wrote", 0) + (size.kind is Kind.WRITE)
        if self.wrote > 1:
            found.run = lambda *_, **__: 1 / 0
        return found


def test_a_device_that_fails_gives_all_slots_back():
    network = Blank(VOCAB, 500, 256)
    model = on_device(CachedModel(network, 0, Failing(network, 16, Instant)))
    engine = Engine({"target": model})
    jobs = [engine.submit(plain(), [x] * 4, Philox(x), stop=Stop(most=40 - x), laws=False) for x in range(6)]
    engine.run()
    assert all(isinstance(job.error, ZeroDivisionError) for job in jobs)
    assert left(model) == (0, 0)


@pytest.mark.parametrize("method", [plain(), Speculate(Lookup(2, 1, 4), budget=4)])
def test_scores_that_are_broken_end_the_request_they_belong_to(method):
    class Cracked(Instant):
        def run(self, turns=1, want=(), masks=None):
            super().run(turns, want, masks)
            on = self.staging.on
            broken = on["seed"] == 3  # from place 11 on: what was written before is good
            if self.size.kind is Kind.WRITE:
                late = on["places"][:, None] + 1 + torch.arange(turns) > 10
                self.written[:, :turns][broken[:, None] & late] = -1
            elif self.size.kind is Kind.TREE:
                late = on["places"].view(self.size.rows, -1).amax(1) + 1 > 10
                self.verdicts[broken & late, 1] = -1

    model = standin(VOCAB, room=2000, bucket=Cracked)
    engine = Engine({"target": model})
    jobs = [engine.submit(method, [x] * 9, Philox(x), stop=Stop(most=20), laws=False) for x in range(6)]
    engine.run()
    for seed, job in enumerate(jobs):
        if seed == 3:
            with pytest.raises(BadScores, match="NaN"):
                job.result()
            assert tuple(job.tokens) == expected(seed, [seed] * 9, len(job.tokens))
            assert 1 <= len(job.tokens) <= 2
        else:
            assert job.result().tokens == expected(seed, [seed] * 9, 20)
    assert left(model) == (0, 0)


def scores(text):
    """What a network that sees exactly this text says of the next token."""
    return torch.randn(8, generator=torch.Generator().manual_seed(hash(tuple(text)) % 2**31))


class Reader(Blank):
    """A network that reads each row through its table and its own slots, as the kernels do."""

    def run(self, tokens, rows, want=()):
        self.memory[rows.slots.long()] = tokens
        count, texts = len(rows.slots) // len(rows.past), []
        for row, past in enumerate(rows.past.tolist()):
            text = self.memory[rows.table[row, :past].long()].tolist()
            for i in range(count):
                text = [*text, int(tokens[row * count + i])]
                texts.append(text)
        return texts, {}

    def read(self, x):
        return torch.stack([scores(text) for text in x])


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the device here")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, of what kernels mask away
@pytest.mark.parametrize("turns", [1, 4])
def test_rows_that_write_on_read_their_own_text_in_order(turns):
    """Written in bursts of any length, beside any others, a text is what the rule makes of it token by token."""
    rows = [(1, 4), (12, 2), (3, 1), (7, 4), (2, 3)]  # tokens of the prompt, tokens wanted each time
    network = Reader(8, 400, 64)
    network.memory = torch.full((401,), -1, dtype=torch.int32)
    model = graph_model(network, 2, 16)
    prompts = [[(3 * i + k) % 8 for k in range(length)] for i, (length, _) in enumerate(rows)]
    sessions = [model.open(prompt) for prompt in prompts]
    for _ in range(2):
        texts = [tuple(session.leaves[0].tokens) for session in sessions]
        each = enumerate(zip(texts, rows, strict=True))
        writes = [Write(Prefix.of(text, Same()), Philox(7, i), most) for i, (text, (_, most)) in each]
        assert model.device.write([ScoreRequest(session, NOTHING) for session in sessions], writes, turns) is not None
    for number, (prompt, session) in enumerate(zip(prompts, sessions, strict=True)):
        text = list(prompt)
        for _ in range(2 * min(turns, rows[number][1])):
            text.append(Philox(7, number).choose(Law(scores(text)), At(len(text), Role.PICK)))
        assert session.leaves[0].tokens == text
        session.close()
    assert left(model) == (0, 0)


def test_only_who_shows_no_laws_is_priced_as_one_whose_model_drafts_for_itself():
    runner = ModelRunner({"target": graph_model(Blank(VOCAB, 400, 64), 0, 8)}, lambda _: Cost((1,), (1.0,)))
    job = engine_job()
    for laws in (True, False):
        job.laws = laws
        assert runner.price("target", job, 1).speculates is not laws
    assert runner.price("nobody", job, 1) is None


def engine_job():
    return Engine({"target": standin(VOCAB)}).submit(plain(), [1], Philox(0), stop=Stop(most=1))


def test_a_prompt_is_read_in_forwards_that_it_nearly_fills():
    for size in (1, 64, 2048, 2049, 3583, 3584, 4095, 4096, 4097, 8100, 8192):
        left, padded = size, 0
        while left:
            count = portion(left)
            assert 0 < count <= min(left, PORTION)
            left, padded = left - count, padded + step_up(count, WIDEST)
        assert padded <= (4 * size / 3 if size >= PORTION // 2 else max(WIDEST, 2 * size))


def test_the_tokens_of_many_texts_travel_in_one_copy():
    lines = TextLines(3, 10, torch.device("cpu"))
    texts = [CachedSequence([1, 2, 3], []), CachedSequence(list(range(10)), [])]
    assert len({line.number for line in lines.lines(texts)}) == 2
    texts[0].tokens += [7, 8]
    for leaf in (*texts, CachedSequence([4], [])):
        line = lines.line(leaf)
        assert line.written == len(leaf.tokens)
        assert lines.texts[line.number, : line.written].tolist() == leaf.tokens
