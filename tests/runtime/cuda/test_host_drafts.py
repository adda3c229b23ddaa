"""A drafter that is asked from the host reads, of a target on graphs, what it reads of one without them."""

from __future__ import annotations

from dataclasses import replace

import interpreted
import pytest
import torch
from selection import crossed
from test_graph_drafter import DIM, Certain, oracle
from test_rows import left

from unspool.core.chance import Philox
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import Tree
from unspool.core.warp import Temperature
from unspool.loops.speculate import Speculate
from unspool.models.drafters.description import DrafterFile
from unspool.rules.draft import Chain
from unspool.rules.verify import rejection
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.batch_invariant_fused import BatchInvariantFused
from unspool.runtime.cuda.cuda_graph_executor import CudaGraphExecutor
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_bucket import Bucket
from unspool.runtime.cuda.graph_model import on_device
from unspool.runtime.draft_bridge.best_effort import quiet
from unspool.runtime.drafter.drafter_model import TrainedDrafter, network_of
from unspool.runtime.engine.contracts import LAST, ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.linear import DenseLinear
from unspool.runtime.network.llama import Llama

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, of what kernels mask away
DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
PROMPT = tuple((7 * i + i * i) % 40 for i in range(21))  # longer than what is read in one go
MOST, DEPTH = 8, 2


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    if interpreted.INTERPRETED:  # it takes its time for every program
        monkeypatch.setattr("unspool.kernels.tiling.MOST_SPLITS", 1)
        monkeypatch.setattr("unspool.kernels.top.CHUNK", 64)
        monkeypatch.setattr("unspool.runtime.cuda.cuda_graph_executor.WIDEST", 16)


def attentive(number: int) -> DrafterFile:
    """A drafter that is nearly its target, and whose every law depends on a hidden state as well."""
    file, noise = oracle(Certain()), torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(5))
    size = 0.004 / Certain.sure if number else 0.004
    joined = torch.cat((torch.eye(DIM), size * noise), 1)
    return DrafterFile(replace(file.spec, states=(number,)), {**file.tensors, "join.weight": joined}, "attentive")


class Told(TrainedDrafter):
    """A drafter that remembers what it was shown and what it said."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.heard = []

    def score(self, asked):
        answers = super().score(asked)
        for ask, scores in zip(asked, answers, strict=True):
            laws = [law.scores.cpu().float() for law in (*scores.leaf, *scores.after)]
            self.heard.append((tuple(ask.session.texts[0].tokens), ask.tree.tokens(range(len(ask.tree))), laws))
        return answers


class Captured(Bucket):
    """A bucket that notes, as a graph does, what was noted when it ran first, and where that was then."""

    def __init__(self, *parts):
        super().__init__(*parts)
        self.pool, self.own = self.network.slots, None

    def run(self, *given, **named):
        now = self.pool.noted, self.pool._states
        self.own = self.own or now
        self.pool.noted, self.pool._states = self.own
        super().run(*given, **named)
        self.pool.noted, self.pool._states = now


def written(model, network, file):
    """A text by drafts from the host: its tokens and trace, and all that the drafter was asked."""
    network.slots.keep_states([LAST if n == network.layers else n for n in file.spec.states], network.ends.embedding)
    drafter = Told(network_of(file, network.ends, 400), model)
    engine = Engine({"target": model, "draft": quiet(drafter)})
    method = Speculate(Chain(DEPTH), rejection, budget=DEPTH)
    job = engine.submit(method, PROMPT, Philox(1), Temperature(0), Stop(most=MOST))
    engine.run()
    return job.result().tokens, job.trace, drafter.heard


SHOWN = {"what leaves the last norm": 1, "what enters the layers": 0}


@pytest.mark.parametrize(
    ("state", "fused"),
    crossed(SHOWN, [Fused, BatchInvariantFused], quick=2, name=lambda value: getattr(value, "__name__", value)),
)
def test_a_drafter_of_the_host_is_shown_the_same_states(state, fused):
    """Round by round: the same text, the same drafts with the same laws, and as much of them stands."""
    number = SHOWN[state]
    file = attentive(number)
    ours = fused.load(Certain(), torch.float32, DEVICE, 600)
    theirs = Llama.load(Certain(), torch.float32, DEVICE, 600, DenseLinear)
    model = on_device(CachedModel(ours, executor=CudaGraphExecutor(ours, 8, Captured)))
    early = model.open(PROMPT[:1])  # what a model that was just loaded is checked by
    model.score([ScoreRequest(early, Tree.chain([chosen(token) for token in PROMPT[1 : 1 + DEPTH]]))])
    early.close()
    tokens, trace, heard = written(model, ours, file)
    expected, told, before = written(CachedModel(theirs), theirs, file)
    assert tokens == expected
    assert (trace.forwards["target"], trace.drafted, trace.accepted) == (
        told.forwards["target"],
        told.drafted,
        told.accepted,
    )
    assert trace.accepted_tokens >= 3, "drafts that stand move states to where the text goes on"
    assert [asked[:2] for asked in heard] == [asked[:2] for asked in before]
    known = [any(bool((law > law.min()).any()) for law in laws) for *_, laws in heard]
    assert not known[0], "nothing is known of a prompt that was not read yet"
    assert all(known[1:])
    for (*_, found), (*_, want) in zip(heard, before, strict=True):
        for law, other in zip(found, want, strict=True):
            assert torch.allclose(law, other, atol=2e-3, rtol=1e-3)
    assert left(model) == (0, 0)


def test_the_states_are_what_those_laws_depend_on():
    """Without them the same drafter says something else: a state that never arrives would be seen."""
    file, network = attentive(1), Llama.load(Certain(), torch.float32, DEVICE, 600, DenseLinear)
    *_, heard = written(CachedModel(network), network, file)
    zero = DrafterFile(file.spec, {**file.tensors, "join.weight": torch.eye(DIM, 2 * DIM)}, "blind")
    *_, blind = written(CachedModel(network), network, zero)
    (_, _, found), (_, _, want) = heard[1], blind[1]
    assert not torch.allclose(found[0], want[0], atol=0.1)
