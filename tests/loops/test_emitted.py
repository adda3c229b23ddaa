"""What is told of every token: its laws before and after warps, and how many drafted ones stood, by own arithmetic."""

import math
from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from serving import folder, lm, served, told  # noqa: F401  (fixtures)

from unspool.api.settings import Settings
from unspool.core.asks import DeviceRound, Done, Emit, Write, Written
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.core.warp import Frequency, Same, Temperature, TopK
from unspool.loops.plain import plain
from unspool.loops.speculate import Speculate
from unspool.proof.case import Blind
from unspool.rules.draft import RSDC, Cascade, Chain, Lookup, Memoryless, SpecInfer
from unspool.rules.verify import block, kseq, rejection, sample_match, traversal
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

VOCAB, PENALTY, HEAT = 4, 0.9, 0.6


def weights(text, salt=0):
    """Weights that every token of the text and its place change."""
    mixed = salt + sum((place + 2) * (token + 1) * (token + 5) for place, token in enumerate(text))
    return [1.0 + (7 * mixed + 3 * token * token + token * mixed) % 11 for token in range(VOCAB)]


def normed(logs):
    top = max(logs)
    total = sum(math.exp(x - top) for x in logs)
    return [math.exp(x - top) / total for x in logs]


def shaped(logs, written):
    """Frequency, then temperature, then the two best: as they are defined, with nothing of the library."""
    logs = [(x - PENALTY * written.count(token)) / HEAT for token, x in enumerate(logs)]
    bar = sorted(logs)[-2]
    return [x if x >= bar else -math.inf for x in logs]


METHODS = {
    "plain": plain(),
    "nothing": Speculate(),
    "lookup": Speculate(Lookup(1, 1, 3)),
    "chain": Speculate(Chain(3), rejection),
    "block": Speculate(Chain(2), block),
    "rsd_c": Speculate(RSDC((2, 1)), rejection),
    "traversal": Speculate(RSDC((2, 2)), traversal),
    "specinfer": Speculate(SpecInfer(2, 2), kseq),
    "sample_match": Speculate(RSDC((2, 1)), sample_match),
    "cascade": Speculate(Cascade(Chain(2), block, 3), rejection),
}


def tables():
    return {name: Table(VOCAB, lambda text, s=salt: weights(text, s)) for salt, name in enumerate(MODELS)}


MODELS = ("target", "draft", "small")
PROMPT = (0, 1, 2, 0, 1)


@pytest.mark.parametrize("name", METHODS)
def test_every_token_comes_with_the_law_of_its_own_prefix(name):
    accepted = 0
    for seed in range(6):
        engine = Engine(tables())
        job = engine.submit(
            METHODS[name], PROMPT, Philox(seed), Frequency(PENALTY) | Temperature(HEAT) | TopK(2), Stop(most=9)
        )
        engine.run()
        written = []
        for emit in job.emitted:
            accepted += emit.accepted
            assert len(emit.before) == len(emit.after) == len(emit.tokens)
            for token, before, after in zip(emit.tokens, emit.before, emit.after, strict=True):
                logs = [math.log(w) for w in weights((*PROMPT, *written))]
                expected = normed(shaped(logs, written))
                assert before.p.tolist() == pytest.approx(normed(logs), abs=1e-12)
                assert after.spread(before).tolist() == pytest.approx(expected, abs=1e-12)
                assert after.logprob(token) == pytest.approx(math.log(expected[token]), abs=1e-12)
                written.append(token)
        assert tuple(written) == job.result().tokens
        assert len(written) == 9
    assert accepted > 0 or name in ("plain", "nothing"), "nothing that was drafted stood: the test sees no tree"


def counting(text):
    """The next token is always the next number."""
    return [float(token == (text[-1] + 1) % VOCAB) for token in range(VOCAB)]


SPELT = {"strings": ("c",), "piece": lambda token: b"abcd"[token : token + 1]}


@pytest.mark.parametrize(("kind", "drafted"), [(Stop, None), (Blind, 3)], ids=["pruned", "cut"])
@pytest.mark.parametrize(
    ("ends", "kept"), [({"tokens": frozenset({2})}, 2), ({"tokens": frozenset({1})}, 1), (SPELT, 2)]
)
def test_drafted_tokens_behind_a_stop_did_not_stand(ends, kept, kind, drafted):
    """The target agrees with all three that are drafted, and the text ends within them, seen before or after."""
    stop = kind(**ends)
    engine = Engine({"target": Table(VOCAB, counting)})
    job = engine.submit(Speculate(Lookup(1, 1, 3)), (0, 1, 2, 3, 0), Philox(0), None, stop)
    engine.run()
    (emit,) = job.emitted
    assert (len(emit.tokens), emit.drafted, emit.accepted) == (kept, drafted or kept, kept)
    trace = job.trace
    assert trace.accepted == Counter({kept: 1})
    assert (trace.tokens, trace.rounds, trace.drafted, trace.accepted_tokens) == (kept, 1, drafted or kept, kept)
    assert trace.forwards == {"target": 1}
    assert trace.mean_acceptance_length == 1 + kept  # as vLLM counts it, though the text has one token less
    assert trace.draft_acceptance_rate == pytest.approx(kept / (drafted or kept))


@pytest.mark.parametrize("leaps", [(), (DeviceRound(1, 2), DeviceRound(3, 2)), (DeviceRound(3, 4),)])
def test_what_a_device_has_written_behind_a_stop_is_not_told(leaps):
    """It may write several tokens before anybody looks."""
    decoding = plain()((0,), Philox(0), Same(), Stop(frozenset({2})))
    assert isinstance(next(decoding), Write)
    emits, reply = [], Written((1, 0, 2, 3), rounds=leaps)
    with suppress(StopIteration):
        while True:
            emits.append(decoding.send(reply))
            reply = None
    assert [token for emit in emits for token in emit.tokens] == [1, 0, 2]
    counts = [emit.accepted if leaps else emit.rounds for emit in emits]
    assert counts == {0: [3], 1: [3], 2: [1, 1]}[len(leaps)]


def test_rounds_that_are_told_together_count_one_by_one():
    def writing(text, chance, warp, stop):
        yield Emit((1, 2, 3), (), (), rounds=3)
        yield Emit((4, 5), (), (), drafted=2, accepted=1)
        return Done((1, 2, 3, 4, 5), "length")

    engine = Engine({"target": Table(VOCAB, counting)})
    job = engine.submit(writing, (0,), Philox(0))
    engine.run()
    assert (job.trace.rounds, job.trace.accepted) == (4, Counter({0: 3, 1: 1}))


class Asked(Memoryless):
    """Drafts nothing, and remembers for how many nodes it was asked."""

    def __init__(self):
        self.budgets = []

    def propose(self, prefix, budget, chance):
        yield from ()
        self.budgets.append(budget)
        return NOTHING


@pytest.mark.parametrize(("spare", "budgets"), [(0, [3, 2, 1]), (1, [4, 3, 2]), (math.inf, [8, 8, 8])])
def test_a_draft_has_no_more_nodes_than_its_request_has_room_for(spare, budgets):
    draft, engine = Asked(), Engine({"target": Table(VOCAB, weights)})
    engine.submit(Speculate(draft, budget=8), (0,), Philox(1), None, Stop(most=4, spare=spare))
    engine.run()
    assert draft.budgets == budgets


# ---- on a network, as users and clients see it

HOT = Settings(temperature=0.8, top_p=0.7, logprobs=3, max_tokens=16, ignore_eos=True)
SAID = "the cat and the cat and the "


@pytest.fixture(scope="module")
def truth(folder):  # noqa: F811
    """log p of every next token after a text, by transformers, and log p of those in its nucleus."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).double()

    def laws(tokens, settings):
        with torch.no_grad():
            raw = model(torch.tensor([tokens])).logits[0, -1].double().log_softmax(0).tolist()
        heated = normed([x / settings.temperature for x in raw])
        kept, mass = set(), 0.0
        for p, token in sorted(((p, x) for x, p in enumerate(heated)), reverse=True):
            if mass >= settings.top_p:
                break
            kept, mass = {*kept, token}, mass + p
        return raw, {x: math.log(heated[x] / mass) for x in kept}

    return laws


@pytest.mark.parametrize("method", ["plain", "lookup:ngram=1,least=1", "suffix"])
def test_log_probabilities_are_those_of_another_library(lm, truth, method):  # noqa: F811
    tokens = list(lm.encode(SAID))
    for seed in range(2):
        settings = replace(HOT, seed=seed)
        output = lm.generate(SAID, settings, method, raw=True)
        text = list(tokens)
        for event in output.events:
            raw, warm = truth(text, settings)
            assert event.raw_logprob == pytest.approx(raw[event.token], abs=1e-4)
            assert event.logprob == pytest.approx(warm[event.token], abs=1e-3)
            assert [p for _, p in event.top] == pytest.approx(sorted(raw, reverse=True)[:3], abs=1e-4)
            text.append(event.token)
        assert len(output.events) == 16
        assert any(abs(event.logprob - event.raw_logprob) > 0.01 for event in output.events)


def test_samples_of_one_seed_are_different_texts(lm):  # noqa: F811
    texts = [output.tokens for output in lm.samples(SAID, replace(HOT, n=4))]
    assert len(set(texts)) == 4
    assert texts[0] == lm.generate(SAID, HOT).tokens
    others = {lm.generate(SAID, replace(HOT, seed=seed)).tokens for seed in range(HOT.seed + 1, HOT.seed + 4)}
    assert others.isdisjoint(texts)  # nor are they the texts of the seeds that follow


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("method", ["plain", "lookup:ngram=1,least=1"])
def test_clients_are_told_the_models_own_log_probabilities(served, lm, truth, chat, method):  # noqa: F811
    # Cold enough for the text to repeat itself, so that copies stand; 0 and 1 have no text by which to know them.
    body = {"temperature": 0.2, "top_p": 0.9, "max_tokens": 40, "seed": 4, "logit_bias": {"0": -100, "1": -100}}
    body["decoding"] = {"method": method}
    if chat:
        said = {"messages": [{"role": "user", "content": SAID}], "logprobs": True, "top_logprobs": 2}
        answer = served.post("/v1/chat/completions", **said, **body).json()
        told_ = answer["choices"][0]["logprobs"]["content"]
        found = [(bytes(one["bytes"]), one["logprob"]) for one in told_]
        text = list(lm.encode(said["messages"]))
    else:
        answer = served.post("/v1/completions", prompt=SAID, logprobs=2, **body).json()
        told_ = answer["choices"][0]["logprobs"]
        found = list(zip(told_["tokens"], told_["token_logprobs"], strict=True))
        text = list(lm.encode(SAID))
    vocabulary, settings = lm.vocabulary, replace(HOT, top_p=1.0)
    by_name = {(vocabulary.piece(x) if chat else vocabulary.name(x)): x for x in range(2, vocabulary.size)}
    for name, logprob in found:
        token = by_name[name]
        raw, _ = truth(text, settings)
        assert logprob == pytest.approx(raw[token], abs=1e-4)
        text.append(token)
    usage = answer["usage"]
    assert len(found) == usage["completion_tokens"] == 40
    assert usage["total_tokens"] == usage["prompt_tokens"] + 40
    assert (usage["unspool"]["accepted"] > 0) is (method != "plain")


def test_clients_are_told_where_in_the_text_a_token_begins(served, lm):  # noqa: F811
    """A token may be half a character, or several."""
    answer = served.post("/v1/completions", prompt=SAID, logprobs=0, temperature=0.8, seed=4, max_tokens=40).json()
    events = lm.generate(SAID, Settings(temperature=0.8, seed=4, max_tokens=40, logprobs=0), raw=True).events
    said = [event.text for event in events if event.token not in lm.vocabulary.eos]
    assert any(len(text) != 1 for text in said)
    expected = [sum(map(len, said[:i])) for i in range(len(said))]
    assert answer["choices"][0]["logprobs"]["text_offset"] == expected
