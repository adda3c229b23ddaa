"""Greedy texts under masks that are asked behind the steps: the same texts, in hardly more forwards than tokens."""

from __future__ import annotations

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
import torch
from test_device_warps import Fewer, Rising, on_host, reading, submitted
from test_leaps import VOCAB, Always
from test_rows import left

from unspool.core.cost import Cost
from unspool.core.errors import EmptyLaw
from unspool.core.warp.forbid import Forbid
from unspool.core.warp.mask import Mask
from unspool.core.warp.penalise import Frequency, Repetition
from unspool.core.warp.truncate import TopK
from unspool.core.warp.warp import Temperature
from unspool.recipes.methods import method
from unspool.rules.constrain.bits import packed
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import OnDevice
from unspool.runtime.cuda import device_speculation
from unspool.runtime.cuda.checked_turns import CheckedTurns
from unspool.runtime.engine.engine import Engine

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the device here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy, of what kernels mask away
]


class Rarely(Mask):
    """Only one token, every so many tokens; between these any. It counts how often all its bits are asked for."""

    def __init__(self, every, size=VOCAB):
        self.every, self.size, self.asked = every, size, 0

    def start(self, text):
        return 0

    def step(self, state, token):
        return state + 1

    def _allowed(self, state):
        tokens = torch.arange(self.size)
        return tokens == (state * 5) % self.size if state % self.every == self.every - 1 else tokens >= 0

    def bits(self, state):
        self.asked += 1
        return packed(self._allowed(state))

    def __call__(self, state, law):
        return law.only(self._allowed(state))


class Spelt(Rarely):
    """The same, and it knows what must follow."""

    def only(self, state):
        return (state * 5) % self.size if state % self.every == self.every - 1 else -1


@pytest.fixture
def counted(monkeypatch):
    """The goes that were checked behind, as how many turns each has run."""
    goes, run = [], CheckedTurns.run

    def counting(self, turns, others):
        goes.append(run(self, turns, others))
        return goes[-1]

    monkeypatch.setattr(CheckedTurns, "run", counting)
    return goes


@pytest.mark.parametrize("ranked", [pytest.param(8, marks=pytest.mark.slow), 2])
def test_texts_under_masks_that_are_asked_behind_the_steps_are_those_that_masks_make(counted, monkeypatch, ranked):
    """With few best tokens at hand a row has to have its mask applied now and then, and goes back twice."""
    monkeypatch.setattr("unspool.runtime.cuda.turn_notes.RANKED", ranked)
    network, model = reading()
    engine, most = Engine({"target": model}), 13
    warps = [
        Fewer() | Temperature(0),
        Fewer() | Repetition(1.3) | Temperature(0),
        Rising() | Temperature(0),
        Rarely(4) | Frequency(0.5) | Temperature(0),
        Rarely(3) | Temperature(0),
        Spelt(3) | Temperature(0),
        Spelt(2) | Frequency(0.5) | Temperature(0),
    ]
    prompts = [[5, 1, 4] * 3, [2, 3, 2], [1], [0, 2], [7, 2], [0, 1, 2, 3], [6]]
    jobs = [submitted(engine, plain(), p, i, w, most) for i, (p, w) in enumerate(zip(prompts, warps, strict=True))]
    free = submitted(engine, plain(), [3, 1], 9, Temperature(0.7) | TopK(4), most)
    engine.run()
    for i, (job, prompt, warp) in enumerate(zip(jobs, prompts, warps, strict=True)):
        assert job.result().tokens == on_host(prompt, i, warp, most), i
    assert free.result().tokens == on_host([3, 1], 9, Temperature(0.7) | TopK(4), most)
    assert counted
    assert network.forwards <= sum(counted) + 2 * most  # all together in every turn, but where few are left
    assert left(model) == (0, 0)


def test_a_token_that_may_follow_costs_no_turn_and_one_that_may_not_costs_one(counted):
    _, model = reading()
    engine, most = Engine({"target": model}), 15
    masks = [Rarely(5) for _ in range(3)]
    jobs = [submitted(engine, plain(), [i, 2], i, mask | Temperature(0), most) for i, mask in enumerate(masks)]
    engine.run()
    for i, job in enumerate(jobs):
        assert job.result().tokens == on_host([i, 2], i, Rarely(5) | Temperature(0), most)
        assert job.trace.tokens == most
    assert sum(counted) <= most + 3 * 2 + len(counted)  # every fifth token is another than the best, three times


def test_what_must_follow_costs_no_turn(counted):
    _, model = reading()
    engine, most = Engine({"target": model}), 11
    jobs = [submitted(engine, plain(), [i, 2], i, Spelt(3) | Temperature(0), most) for i in range(3)]
    engine.run()
    for i, job in enumerate(jobs):
        assert job.result().tokens == on_host([i, 2], i, Rarely(3) | Temperature(0), most)
    assert sum(counted) <= most + len(counted)


def test_a_text_that_nothing_may_follow_fails_alone_where_masks_would_end_it():
    _, model = reading()
    engine = Engine({"target": model})
    warps = [Rising(repeats=False) | Temperature(0), *[Fewer() | Temperature(0)] * 5]
    warps.append(Spelt(3) | Forbid([2 * 5 % VOCAB]) | Temperature(0))  # which is what must follow two tokens
    jobs = [submitted(engine, plain(), [5 if i == 0 else i], i, warp, 12) for i, warp in enumerate(warps)]
    engine.run()
    assert isinstance(jobs[0].error, EmptyLaw)
    assert jobs[0].tokens[-1] == VOCAB - 1
    assert isinstance(jobs[-1].error, EmptyLaw)
    assert len(jobs[-1].tokens) == 2
    for i, job in enumerate(jobs[1:-1], 1):
        assert job.result().tokens == on_host([i], i, warps[i], 12)
    assert left(model) == (0, 0)


def test_texts_that_end_early_do_not_keep_the_others_in_a_wide_step(counted):
    """Where half of the rows would do, the next go has half of them."""
    _, model = reading()
    engine = Engine({"target": model})
    wants = [4, 4, 4, 4, 4, 20, 20, 20]
    jobs = [submitted(engine, plain(), [i], i, Fewer() | Temperature(0), want) for i, want in enumerate(wants)]
    engine.run()
    for i, (job, want) in enumerate(zip(jobs, wants, strict=True)):
        assert job.result().tokens == on_host([i], i, Fewer() | Temperature(0), want)
    assert counted[0] < 12


def test_forced_drafts_are_left_to_the_device_where_it_drafts_for_itself(counted):
    """Twelve texts take one forward for all of them, turn by turn, as plain decoding does."""
    network, model = reading(64)
    most, forwards = 4, {}
    for spec in ("plain", "forced"):
        network.forwards, engine = 0, Engine({"target": model}, lambda _: Cost((1, 64), (1.0, 1.5)))
        jobs = [submitted(engine, method(spec), [i % VOCAB, 2], i, Fewer() | Temperature(0), most) for i in range(12)]
        engine.run()
        for i, job in enumerate(jobs):
            assert job.result().tokens == on_host([i % VOCAB, 2], i, Fewer() | Temperature(0), most)
        forwards[spec] = network.forwards
        model.forget()
    assert forwards["forced"] == forwards["plain"] <= 3 * most


class Hearing(Always):
    """Speculates, and notes what each text is said to have got of how many rounds."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def speculated(self, leaf, rounds, tokens, chosen, rows):
        self.heard.append((rounds, tokens))


def test_rounds_that_a_mask_cuts_and_the_step_behind_them_count_as_what_drafts_cost(monkeypatch):
    monkeypatch.setattr(device_speculation, "TRIAL", 2)  # so few that none is computed behind the end of the text
    network, model = reading()
    gate = model.device.speculation.gate = Hearing()
    engine, warp = Engine({"target": model}), Rarely(2) | Temperature(0)  # which cuts nearly every round
    job = submitted(engine, Speculate(OnDevice(3)), [5, 1, 4] * 3, 0, warp, 8)
    engine.run()
    assert job.result().tokens == on_host([5, 1, 4] * 3, 0, warp, 8)
    assert 1 + sum(rounds for rounds, _ in gate.heard) == job.trace.forwards["target"]  # one has read the prompt
    assert network.forwards == job.trace.forwards["target"]
    assert left(model) == (0, 0)
