"""Auto drafts what pays and nothing else; prices are measured once, kept, and never change a text."""

import json

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
from letters import Letters
from standin import standin

from unspool.core.asks import Price
from unspool.core.chance import Philox
from unspool.core.claim import LAW, SEED
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import Tree
from unspool.core.warp import Temperature
from unspool.proof import prove
from unspool.recipes.methods import method
from unspool.rules.constrain import Constrained, regex
from unspool.rules.decode import Speculate
from unspool.rules.draft import Draft, Source, auto
from unspool.rules.draft.merge import Merged, Rate, Trust
from unspool.rules.grow import FREE, Cost
from unspool.rules.verify import sample_match, zeroing
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine import engine as engine_module
from unspool.runtime.engine import price as prices
from unspool.runtime.engine.engine import Engine

STEEP = Cost((1, 2), (1.0, 2.5))  # a second row costs more than a token can bring
DEAR, CHEAP = Cost((1,), (5.0,)), Cost((1,), (0.01,))


def loop(text):
    """A model that counts 0, 1, 2, 3 round and round, rather sure of it."""
    return [20.0 if x == (text[-1] + 1) % 4 else 1.0 for x in range(4)]


def write(spec, price, heat=0.0, models=None, most=40):
    engine = Engine(models or {"target": Table(4, loop)}, price)
    job = engine.submit(method(spec), (0, 1, 2, 3, 0), Philox(5, 0), Temperature(heat), Stop(most=most))
    engine.run()
    return job.result().tokens, job.trace


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_auto_drafts_where_rows_are_free_and_is_plain_where_they_are_not(heat):
    plain, _ = write("plain", lambda _: FREE, heat)
    free, drafting = write("auto", lambda _: FREE, heat)
    steep, idle = write("auto", lambda _: STEEP, heat)
    assert free == steep == plain
    assert drafting.tokens_per_forward > 2
    assert idle.drafted == 0
    assert idle.forwards["target"] == idle.rows["target"] == len(plain)  # one row each


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_auto_drafts_what_a_constraint_forces(heat):
    """Nothing comes twice, so only the constraint knows what comes: after each of two free tokens, six forced ones."""
    pytest.importorskip("llguidance")
    words = Letters(tuple("abcdefghijklmn"), controls=0, ends=1)
    warp = Constrained(regex("[ab]cdefgh[ab]ijklmn").fit(words)) | Temperature(heat)

    def written(spec):
        model = Table(words.size, lambda text: [1.0 + (x + len(text) * len(text)) % 3 for x in range(words.size)])
        engine = Engine({"target": model}, lambda _: FREE)
        job = engine.submit(method(spec), (0,), Philox(5, 0), warp, Stop(tokens=words.eos, most=60))
        engine.run()
        return job.result().tokens, job.trace

    plain, _ = written("plain")
    tokens, trace = written("auto")
    assert tokens == plain
    assert len(tokens) >= 14
    assert trace.forwards["target"] <= 7


def test_auto_asks_a_draft_model_only_if_its_time_is_worth_it(monkeypatch):
    monkeypatch.setattr(auto, "perf_counter", lambda: 0.0)  # what tables take is not what their prices say

    def dull(text):  # nothing to copy and nothing to remember: the draft model alone knows what comes
        return [9.0 if x == (len(text) * 7 + len(text) // 5) % 50 else 0.1 for x in range(50)]

    asked = {}
    for name, cost in (("cheap", CHEAP), ("dear", DEAR)):
        models = {"target": Table(50, dull), "draft": Table(50, dull)}
        tokens, trace = write(
            "auto", lambda by, cost=cost: cost if by == "draft" else Cost((1, 9), (1.0, 1.2)), models=models
        )
        assert tokens == write("plain", lambda _: FREE, models=models)[0]
        asked[name] = trace
    assert asked["cheap"].tokens_per_forward > 3
    assert asked["dear"].forwards["draft"] <= 40 / 16 + 1  # a probe now and then


class Timed(Table):
    """A table whose forwards take some time of a clock."""

    def __init__(self, clock, seconds, vocab, weights):
        super().__init__(vocab, weights)
        self.clock, self.seconds = clock, seconds

    def score(self, asked):
        self.clock.tick(self.seconds * sum(1 + 0.02 * len(ask.tree) for ask in asked))
        return super().score(asked)


@pytest.mark.parametrize(("right", "takes"), [(0, 0.3), (4, 0.3), (1, 0.3), (1, 2.0), (0, 2.0)])
def test_a_draft_model_that_loses_is_left_out_whatever_its_price_says(monkeypatch, right, takes):
    """It is right in one of `right` tokens, never if 0, and its forward takes so much of the target's."""
    clock, most = Clock(), 300

    def dull(text):
        return [9.0 if x == (len(text) * 7 + len(text) // 5) % 50 else 0.1 for x in range(50)]

    def drafts(text):
        hit = right and len(text) % right == 0
        return (
            dull(text) if hit else [9.0 if x == (len(text) * 7 + len(text) // 5 + 1) % 50 else 0.1 for x in range(50)]
        )

    monkeypatch.setattr(auto, "perf_counter", lambda: clock.now)
    models = {"target": Timed(clock, 1.0, 50, dull), "draft": Timed(clock, takes, 50, drafts)}
    cheap = Cost((1, 9), (1.0, 1.2))
    tokens, trace = write("auto", lambda by: CHEAP if by == "draft" else cheap, models=models, most=most)
    assert len(tokens) == most
    if right == 1 and takes < 1:
        assert clock.now < 0.6 * most  # where it is right it stays
        assert trace.tokens_per_forward > 3
    else:
        assert clock.now < 1.07 * most  # 1.00 is plain decoding


def test_a_draft_model_is_not_made_to_read_what_it_cannot_win_back(monkeypatch):
    monkeypatch.setattr(auto, "perf_counter", lambda: 0.0)
    models = {"target": Table(4, loop), "draft": Table(4, loop)}
    slow = Cost((1, 8), (0.1, 60.0))  # reading five tokens takes longer than half of the forty that are written
    _, trace = write("auto", lambda by: slow if by == "draft" else Cost((1, 9), (1.0, 1.2)), models=models)
    assert trace.forwards["draft"] == 0


class Guessed(Table):
    """A table whose heads guess for next to nothing."""

    guesses = True


@pytest.mark.parametrize("right", [True, False])
def test_auto_drafts_what_cheap_heads_guess_and_leaves_them_alone_where_they_are_wrong(monkeypatch, right):
    monkeypatch.setattr(auto, "perf_counter", lambda: 0.0)

    def dull(further):  # nothing to copy and nothing to remember
        def weights(text):
            length = len(text) + further
            return [9.0 if x == (length * 7 + length // 5) % 50 else 0.1 for x in range(50)]

        return weights

    def written(spec, model):
        return write(spec, lambda _: Cost((1, 2, 3, 9), (1.0, 1.1, 1.2, 2.0)), models={"target": model})

    model = Guessed(50, dull(0))
    model.heads = [Table(50, dull(further if right else further + 1)) for further in range(2)]
    tokens, trace = written("auto", model)
    same, without = written("auto", Table(50, dull(0)))
    assert tokens == same == written("plain", model)[0]
    if right:
        assert trace.tokens_per_forward > max(2.5, 1.5 * without.tokens_per_forward)
    else:
        assert trace.drafted <= without.drafted + 16  # after a few in vain they are not believed any more


def test_what_is_promised_in_vain_is_believed_less_by_all():
    trust = Trust()
    kept, other = Rate(0.5, trust=trust), Rate(0.5, trust=trust)
    for _ in range(12):
        kept.mark(False)
    assert kept.value < 0.05
    assert other.value < 0.2  # though it was never tried
    for _ in range(40):
        kept.mark(True)
    assert other.value == pytest.approx(0.5)  # and never more than was believed at first


def test_a_request_is_told_the_price_of_the_forward_it_shares():
    told = []

    def ask(text, chance, warp, stop):
        told.append((yield Price()))
        told.append((yield Price("nobody")))
        return (yield from method("plain")(text, chance, warp, stop))

    cost = Cost((1, 2, 4), (1.0, 1.5, 4.0))
    engine = Engine({"target": Table(4, loop)}, lambda _: cost)
    for i in range(2):
        engine.submit(ask, (i,), Philox(i, 0), stop=Stop(most=1))
    engine.run()
    assert told == [cost.among(2), None, cost.among(2), None]
    assert cost.among(2)(2) == cost(4)


def test_what_checking_takes_aside_is_due_for_every_request_and_writing_takes_none_of_it():
    cost = Cost((1, 2, 8, 64), (1.0, 1.5, 1.8, 4.0), aside=0.4)
    assert cost.among(1) == cost
    assert cost.among(8)(1) == pytest.approx(1.8 - 0.4)  # written
    assert cost.among(8)(8) == pytest.approx(4.0 + 7 * 0.4)
    assert Cost((1, 64), (1.0, 1.1), aside=0.4).among(8)(1) == 1.0  # never less than one alone


def test_a_price_is_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path))
    table = Table(4, loop)
    first = prices.price(table, "this model here")
    forwards = table.forwards
    assert prices.price(table, "this model here") == first
    assert table.forwards == forwards
    assert json.loads((tmp_path / prices.FILE).read_text())["this model here"]["rows"] == list(first.rows)
    prices.price(table, "another")
    assert table.forwards > forwards
    assert set(json.loads((tmp_path / prices.FILE).read_text())) == {"this model here", "another"}


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"key": {"rows": [1], "seconds": [-1]}}', '{"key": 3}'])
def test_a_broken_file_of_prices_is_measured_anew(tmp_path, monkeypatch, broken):
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path))
    (tmp_path / prices.FILE).write_text(broken)
    table = Table(4, loop)
    measured = prices.price(table, "key")
    assert prices.price(table, "key") == measured


def test_without_a_key_or_a_folder_to_write_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("not a folder")
    assert prices.price(Table(4, loop), "key").rows
    assert prices.price(Table(4, loop), None).rows
    assert (tmp_path / "file").read_text() == "not a folder"


class Naps(Draft):
    """A drafter of nothing that rests for two tokens after every round."""

    def begin(self, prefix):
        return Napping()


class Napping(Source):
    until = 0

    def rest(self, prefix):
        return max(0, self.until - len(prefix))

    def propose(self, prefix, budget, chance):
        yield from ()
        return Tree.chain([chosen(x) for x in prefix.text[-1:]])

    def learn(self, prefix, tree, scores):
        self.until = len(prefix) + 2


@pytest.mark.parametrize(("verify", "claim"), [(sample_match, SEED), (zeroing, LAW)])
def test_a_source_that_rests_leaves_the_law_alone(verify, claim):
    assert prove(Speculate(Naps(), verify, budget=1), claim, quick=True).ok


def test_auto_rests_where_the_host_takes_longer_than_it_brings():
    tokens, trace = write("auto", lambda _: Cost((1, 64), (1e-9, 1.2e-9)), heat=1.0)  # no forward is as short as a look
    assert tokens == write("plain", lambda _: FREE, heat=1.0)[0]
    assert trace.drafted == 0


class Clock:
    """Time that passes only where something is said to take some."""

    now = 0.0

    def tick(self, seconds):
        self.now += seconds


HOST, STEP, ASIDE = 3e-4, 5.5e-4, 2e-4  # seconds of a draft, of a token and of a check on an H200 (bench/gpu.py)
SHARED = Cost((1, 2, 8, 64), (STEP, 8e-4, 8.2e-4, 1.1e-3), aside=ASIDE)


def simulated(spec, requests, monkeypatch, most=256):
    """Seconds of a batch on the stand-in, by a clock on which drafts, checks and tokens take what they take there."""
    clock = Clock()

    def look(self, *given):
        clock.tick(HOST / 2)
        return gathered(self, *given)

    def note(self, *given):
        clock.tick(HOST / 2)
        learnt(self, *given)

    gathered, learnt = Merged.gather, Merged.learn
    monkeypatch.setattr(Merged, "gather", look)
    monkeypatch.setattr(Merged, "learn", note)
    for timed in (auto, engine_module):  # the engine too: whoever thinks for long gives way to others
        monkeypatch.setattr(timed, "perf_counter", lambda: clock.now)
    model = standin(1021, context=1024)  # a prime: no text repeats itself
    write, check = model.device.write, model.device.check

    def written(asked, writes, turns, logprobs=None):
        replies = write(asked, writes, turns, logprobs)
        clock.tick(0 if replies is None else max(len(reply.tokens) for reply in replies) * SHARED.among(len(asked))(1))
        return replies

    def checked(asked, checks):
        rows = sum(1 + len(ask.tree) for ask in asked)
        clock.tick(SHARED(rows) + len(asked) * ASIDE)
        return check(asked, checks)

    model.device.write, model.device.check = written, checked
    engine = Engine({"target": model}, lambda _: SHARED)
    jobs = [
        engine.submit(method(spec), [i, 1, 2, 3], Philox(i, 0), Temperature(1.0), Stop(most=most), laws=False)
        for i in range(requests)
    ]
    engine.run()
    monkeypatch.undo()
    assert [len(job.result().tokens) for job in jobs] == [most] * requests
    return clock.now


@pytest.mark.parametrize("requests", [1, 2, 3, 4, 8, 32])
def test_looking_takes_little_of_the_time_where_it_brings_nothing(monkeypatch, requests):
    """The stand-in's texts repeat nothing, so whatever drafting takes is lost."""
    plain, ours = (simulated(spec, requests, monkeypatch) for spec in ("plain", "auto"))
    assert plain / ours > 0.97


def test_auto_looks_again_when_the_batch_has_shrunk(monkeypatch):
    looks = []
    engine = Engine({"target": Table(4, loop)}, lambda _: Cost((1, 64), (3e-4, 3.3e-4)))
    monkeypatch.setattr(Merged, "gather", lambda self, prefix, *_: looks.append(len(engine.live)) or iter(()))
    monkeypatch.setattr(auto, "perf_counter", lambda: 0.0)
    for i, most in enumerate((300, *[20] * 7)):
        engine.submit(method("auto"), (i % 4,), Philox(i, 0), Temperature(0.0), Stop(most=most))
    engine.run()
    assert looks
    assert set(looks) == {1}
