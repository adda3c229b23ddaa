"""Warps in the steps of a device: every text is the one that the host writes, in mixed batches and when drafted."""

from __future__ import annotations

import math
from dataclasses import dataclass

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
import torch
from test_leaps import VOCAB, Always, Reader, scores
from test_rows import left

from unspool.core.asks import Write
from unspool.core.chance import At, Philox, Role
from unspool.core.errors import BadScores, EmptyLaw
from unspool.core.law import Law, chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, Tree
from unspool.core.warp.forbid import BadWords, Forbid, MinTokens, NoRepeatNgram
from unspool.core.warp.mask import Mask
from unspool.core.warp.penalise import Frequency, LogitBias, Presence, Repetition
from unspool.core.warp.truncate import Eta, MinP, TopK, TopNSigma, TopP, Typical
from unspool.core.warp.warp import Prefix, Same, Temperature, Warp
from unspool.loops.drafter import Memoryless
from unspool.rules.constrain.bits import packed
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Lookup, OnDevice
from unspool.rules.verify import greedy, sample_match
from unspool.runtime.cuda.cuda_graph_executor import FEW
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the device here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy, of what kernels mask away
]

WARPS: list[Warp] = [
    Temperature(0.7) | TopP(0.8),
    Repetition(1.4) | Temperature(0),
    Frequency(0.6) | Presence(0.4) | TopK(4),
    NoRepeatNgram(2) | Temperature(0),
    LogitBias({1: 2.0, 3: -9.0}) | BadWords(((2, 5), (4,))) | MinTokens(6, {0, 7}) | MinP(0.1),
    Temperature(0.9) | TopNSigma(1.5) | Typical(0.9) | Eta(0.05),
    Same(),
]


def on_host(prompt, seed, warp, most):
    """What plain decoding writes by the host's warps."""
    prefix, chance = Prefix.of(tuple(prompt), warp), Philox(seed)
    for _ in range(most):
        law = prefix.shape(Law(scores(prefix.text)))
        prefix = prefix.then([chance.choose(law, At(len(prefix), Role.PICK))])
    return prefix.text[len(prompt) :]


def submitted(engine, method, prompt, seed, warp, most):
    return engine.submit(method, prompt, Philox(seed), warp=warp, stop=Stop(most=most), laws=False)


def reading(rows=16):
    network = Reader(VOCAB, 2000, 128)
    return network, graph_model(network, 2, rows)


def test_requests_with_all_kinds_of_warps_share_a_batch_and_write_what_each_writes_on_the_host():
    network, model = reading()
    engine, most = Engine({"target": model}), 9
    prompts = [[5, 1, 4] * 3, [2, 3, 2], [1], [6, 6], [7, 2], [0, 1, 2, 3], [4]]
    assert len(WARPS) > FEW
    given = list(zip(prompts, WARPS, strict=True))
    jobs = [submitted(engine, plain(), prompt, i, warp, most) for i, (prompt, warp) in enumerate(given)]
    engine.run()
    for i, (job, (prompt, warp)) in enumerate(zip(jobs, given, strict=True)):
        assert job.result().tokens == on_host(prompt, i, warp, most)
    assert network.forwards <= most + 2  # all together, and nobody by itself
    assert left(model) == (0, 0)


def test_a_request_of_its_own_kind_does_not_take_the_others_off_the_device():
    class Own(Warp):
        def __call__(self, state, law):
            return law.without(0)

    _, model = reading()
    engine = Engine({"target": model})
    warps = [Own(), *WARPS[:5]]
    jobs = [submitted(engine, plain(), [i + 1], i, w, 8) for i, w in enumerate(warps)]
    engine.run()
    for i, (job, warp) in enumerate(zip(jobs, warps, strict=True)):
        assert job.result().tokens == on_host([i + 1], i, warp, 8)
    assert max(len(emit.tokens) for emit in jobs[0].emitted) == 1
    assert min(max(len(emit.tokens) for emit in job.emitted) for job in jobs[1:]) > 1


def test_logprobs_are_reported_by_the_device_as_the_host_would_tell_them():
    _, model = reading()
    engine = Engine({"target": model})
    wants = [3, None, 0, 20, 5, 5]
    jobs = [
        engine.submit(plain(), [i + 1], Philox(i), warp=warp, stop=Stop(most=5), laws=False, logprobs=k)
        for i, (warp, k) in enumerate(zip(WARPS, wants, strict=False))
    ]
    engine.run()
    for i, (job, warp, k) in enumerate(zip(jobs, WARPS, wants, strict=False)):
        prefix = Prefix.of((i + 1,), warp)
        assert job.result().tokens == on_host([i + 1], i, warp, 5)
        told = [(emit, at) for emit in job.emitted for at in range(len(emit.tokens))]
        assert len(told) == 5
        for emit, at in told:
            token = emit.tokens[at]
            if k is None:
                assert not emit.before
            else:
                raw = Law(scores(prefix.text))
                before, after = emit.before[at], emit.after[at]
                assert before.logprob(token) == pytest.approx(raw.logprob(token), abs=1e-5)
                assert after.logprob(token) == pytest.approx(prefix.shape(raw).logprob(token), abs=1e-5)
                best = before.top(k) if k else []
                assert best == raw.top(min(k, VOCAB))
                assert [before.logprob(x) for x in best] == pytest.approx([raw.logprob(x) for x in best], abs=1e-5)
            prefix = prefix.then([token])
    with pytest.raises(TypeError, match="reported"):
        _ = jobs[0].emitted[-1].before[0].scores


class Rising(Mask):
    """Tokens that are not below the last; or, if it may not repeat, above it."""

    def __init__(self, repeats=True):
        self.repeats = repeats

    def start(self, text):
        return text[-1]

    def step(self, state, token):
        return token

    def _allowed(self, state):
        return torch.arange(VOCAB) >= state + (not self.repeats)

    def bits(self, state):
        return packed(self._allowed(state))

    def __call__(self, state, law):
        return law.only(self._allowed(state))

    def refusal(self):
        return EmptyLaw("nothing rises above the highest")


@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 6])
def test_masks_of_the_host_are_applied_by_the_device(rows):
    _, model = reading()
    engine = Engine({"target": model})
    warps = [Rising() | warp for warp in (Temperature(0.7), Repetition(1.2) | TopK(5), Temperature(0))] * 2
    jobs = [submitted(engine, plain(), [i % 3, 0], i, warp, 5) for i, warp in enumerate(warps[:rows])]
    free = submitted(engine, plain(), [3, 1], 9, WARPS[0], 5)
    engine.run()
    for i, (job, warp) in enumerate(zip(jobs, warps, strict=False)):
        assert job.result().tokens == on_host([i % 3, 0], i, warp, 5)
        assert sorted(job.tokens) == job.tokens
    assert free.result().tokens == on_host([3, 1], 9, WARPS[0], 5)
    assert left(model) == (0, 0)


class Fewer(Mask):
    """Any token but the three that the sum of all before it points at."""

    def start(self, text):
        return sum(text)

    def step(self, state, token):
        return state + token

    def _allowed(self, state):
        return (torch.arange(VOCAB) - state) % VOCAB >= 3

    def bits(self, state):
        return packed(self._allowed(state))

    def __call__(self, state, law):
        return law.only(self._allowed(state))


GREEDY = [Fewer() | Temperature(0), Fewer() | Repetition(1.3) | Temperature(0), Rising() | Temperature(0)]


def test_under_masks_several_tokens_are_written_in_one_go_each_under_its_own_mask():
    network, model = reading()
    engine = Engine({"target": model})
    warps = [*GREEDY, Fewer() | Temperature(0.8) | TopK(4)]
    jobs = [submitted(engine, plain(), [i, 2], i, warp, 12) for i, warp in enumerate(warps)]
    free = submitted(engine, plain(), [3, 1], 9, WARPS[0], 12)
    engine.run()
    for i, (job, warp) in enumerate(zip(jobs, warps, strict=True)):
        assert job.result().tokens == on_host([i, 2], i, warp, 12)
        assert len(job.emitted) < 6
    assert free.result().tokens == on_host([3, 1], 9, WARPS[0], 12)
    assert network.forwards <= 12 + 2  # all together
    assert left(model) == (0, 0)


@pytest.mark.parametrize(("warp", "verify"), [(GREEDY[0], greedy), (GREEDY[1], sample_match)])
def test_drafts_under_a_mask_are_verified_without_it_and_cut_where_it_says_no(warp, verify):
    _, model = reading()
    engine, prompts = Engine({"target": model}), ([5, 1, 4, 5, 1], [2, 2, 2])
    jobs = [
        submitted(engine, Speculate(Lookup(2, 1, 3), verify, budget=3), p, i, warp, 12) for i, p in enumerate(prompts)
    ]
    engine.run()
    for i, (job, prompt) in enumerate(zip(jobs, prompts, strict=True)):
        assert job.result().tokens == on_host(prompt, i, warp, 12)
    assert left(model) == (0, 0)


@pytest.mark.parametrize("warp", [GREEDY[1], *(pytest.param(w, marks=pytest.mark.slow) for w in GREEDY[2:])])
def test_a_device_that_drafts_for_itself_under_a_mask_takes_a_step_where_nothing_stands(warp):
    _, model = reading()
    model.device.speculation.gate = Always()
    engine, prompts = Engine({"target": model}), [[5, 1, 4] * 3, [2, 3, 2, 3, 2]]
    jobs = [submitted(engine, Speculate(OnDevice(3)), p, i, warp, 8) for i, p in enumerate(prompts)]
    engine.run()
    for i, (job, prompt) in enumerate(zip(jobs, prompts, strict=True)):
        assert job.result().tokens == on_host(prompt, i, warp, 8)
    assert left(model) == (0, 0)


def test_where_a_mask_leaves_nothing_it_says_why_itself():
    _, model = reading()
    engine = Engine({"target": model})
    job = submitted(engine, plain(), [VOCAB - 1], 0, Rising(repeats=False) | Temperature(0.5), 3)
    engine.run()
    assert str(job.error) == "nothing rises above the highest"


@pytest.mark.parametrize("warp", [pytest.param(WARPS[0], marks=pytest.mark.slow), WARPS[2]])
def test_drafts_of_the_host_are_verified_on_the_device_under_warps(warp):
    _, model = reading()
    engine, prompts = Engine({"target": model}), ([5, 1, 4, 5, 1], [2, 2, 2])
    method = Speculate(Lookup(2, 1, 2), budget=2)
    jobs = [submitted(engine, method, p, i, warp, 5) for i, p in enumerate(prompts)]
    engine.run()
    for i, (job, prompt) in enumerate(zip(jobs, prompts, strict=True)):
        assert job.result().tokens == on_host(prompt, i, warp, 5)


@pytest.mark.parametrize("warp", [pytest.param(WARPS[0], marks=pytest.mark.slow), WARPS[4]])
def test_a_device_that_drafts_for_itself_obeys_warps(warp):
    _, model = reading()
    model.device.speculation.gate = Always()
    prompts = [[5, 1, 4] * 3, [2, 3, 2, 3, 2]]
    sessions = [model.open(prompt) for prompt in prompts]
    model.read([(session, len(prompt) - 1) for session, prompt in zip(sessions, prompts, strict=True)])
    prefixes = [Prefix.of(tuple(prompt), warp) for prompt in prompts]
    for _ in range(2):
        writes = [Write(prefix, Philox(i), 5, 3) for i, prefix in enumerate(prefixes)]
        replies = model.device.write([ScoreRequest(session, NOTHING) for session in sessions], writes, 2)
        assert all(reply.rounds for reply in replies)
        prefixes = [prefix.then(reply.tokens) for prefix, reply in zip(prefixes, replies, strict=True)]
    for i, (prompt, prefix) in enumerate(zip(prompts, prefixes, strict=True)):
        assert prefix.text[len(prompt) :] == on_host(prompt, i, warp, len(prefix) - len(prompt))
    for session in sessions:
        session.close()
    assert left(model) == (0, 0)


def test_a_text_that_nothing_can_follow_fails_where_it_does_on_the_host_and_alone():
    """NoRepeatNgram(1) allows every token once, so the ninth has nothing left; who stops before never hears of it."""
    warp = NoRepeatNgram(1)
    _, model = reading()
    engine = Engine({"target": model})
    ends = [8, 7, 8, 8, 8, 8]
    jobs = [submitted(engine, plain(), [i], i, warp, m) for i, m in enumerate(ends)]
    engine.run()
    assert isinstance(jobs[0].error, EmptyLaw)
    assert len(jobs[0].tokens) == 7  # all that could be written came
    assert len(jobs[1].result().tokens) == 7
    assert left(model) == (0, 0)


@dataclass(frozen=True)
class Foreseen(Memoryless):
    """Drafts what comes."""

    text: tuple[int, ...]

    def propose(self, prefix, budget, chance):
        yield from ()
        return Tree.chain([chosen(token) for token in self.text[len(prefix) :][:budget]])


def test_what_ends_a_text_may_be_drafted_though_nothing_can_follow_it():
    """All of the eight tokens have come by then."""
    warp, (_, model) = NoRepeatNgram(1), reading()
    engine, expected = Engine({"target": model}), on_host([3], 4, NoRepeatNgram(1), 7)
    method, stop = Speculate(Foreseen((3, *expected)), budget=7), Stop(tokens=frozenset(expected[-1:]), most=9)
    job = engine.submit(method, [3], Philox(4), warp=warp, stop=stop, laws=False)
    engine.run()
    assert job.result().tokens == expected
    assert job.trace.forwards["target"] < 4
    assert left(model) == (0, 0)


def test_all_forbidden_is_said_before_anything_is_written():
    _, model = reading()
    engine = Engine({"target": model})
    job = submitted(engine, plain(), [1], 0, Forbid(range(VOCAB)), 3)
    engine.run()
    assert isinstance(job.error, EmptyLaw)


def test_broken_scores_are_told_from_empty_ones(monkeypatch):
    monkeypatch.setattr(Reader, "read", lambda self, x: torch.full((len(x), VOCAB), math.nan))
    _, model = reading()
    engine = Engine({"target": model})
    job = submitted(engine, plain(), [1], 0, WARPS[0], 3)
    engine.run()
    assert isinstance(job.error, BadScores)
