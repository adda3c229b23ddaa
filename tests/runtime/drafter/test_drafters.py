"""Trained drafters of every form: the same guesses as their plainest restatement, in batches, trees, forks and after
shared prefixes, and the same text as plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from selection import crossed

from tests.support.contracts import exercise
from tests.support.drafterfiles import KINDS, LAYERS, expected
from tests.support.littlemodel import little_model
from unspool import LM, Settings, load
from unspool.api.trained_draft import attached
from unspool.core.asks import Scores
from unspool.core.law import chosen
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.models.drafters.description import DrafterFile
from unspool.models.drafters.opening import open_drafter
from unspool.models.weights import open_checkpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.drafter.drafter_model import TrainedDrafter
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.network import Batch, Row


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("target"), LAYERS)


@pytest.fixture(scope="module")
def drafted(target, tmp_path_factory):
    """The target with a drafter of each kind."""

    @lru_cache
    def make(kind: str) -> LM:
        return load(target, draft=KINDS[kind](tmp_path_factory.mktemp("drafter")))

    return make


def states_of(model: CachedModel, text: Sequence[int]) -> torch.Tensor:
    """The target's hidden states of all tokens of a text but the last, from one forward over it."""
    network, count = model.network, len(text) - 1
    want = tuple(network.slots.noted)
    slots = network.slots.take(count)
    row, places = Row(0, count, slots, range(count)), torch.arange(count)
    out = network.forward(Batch(torch.tensor(text[:-1]), places, slots, [row], places, want))
    network.slots.drop(slots)
    return torch.cat([out.hidden[number] for number in want], -1)


def scratch(model: CachedModel, file: DrafterFile):
    embedding = model.network.ends.embedding

    @cache
    def states(text: tuple[int, ...]) -> torch.Tensor:
        return states_of(model, text)

    def of(text: tuple[int, ...], path: tuple[int, ...]) -> torch.Tensor:
        given = states(text) if len(text) > 1 else torch.empty(0)
        return expected(file, embedding, embedding, given, text, path)

    return of


class Pair:
    """A target and its drafter as one model, whose laws are the drafter's: the target reads every text first."""

    def __init__(self, target: CachedModel, drafter: TrainedDrafter) -> None:
        self.target, self.drafter, self.vocab = target, drafter, drafter.vocab

    def open(self, text):
        return PairSession(self, self.target.open(text), self.drafter.open(text))

    def score(self, asked) -> list[Scores]:
        self.target.score([ScoreRequest(ask.session.target, ask.tree) for ask in asked])
        return self.drafter.score([ScoreRequest(ask.session.drafter, ask.tree) for ask in asked])


class PairSession:
    def __init__(self, pair, target, drafter) -> None:
        self.pair, self.target, self.drafter = pair, target, drafter
        pair.drafter.follow(drafter, target)

    def keep(self, tree, nodes, extra) -> None:
        self.target.keep(tree, nodes, extra)
        self.drafter.keep(tree, nodes, extra)

    def fork(self):
        return PairSession(self.pair, self.target.fork(), self.drafter.fork())

    def close(self) -> None:
        self.target.close()
        self.drafter.close()


# dialects of a kind, which are named behind a comma, differ from it in how they are read
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow if "," in kind else ()) for kind in KINDS])
def test_guesses_what_its_plain_form_does(kind, target, tmp_path):
    """After any text and along any path below it, whatever was kept, forked, closed and read beside it before."""
    model = CachedModel(Llama.load(open_checkpoint(target), torch.float64, room=256), 4)
    file = open_drafter(KINDS[kind](tmp_path), model.network.shape)
    pair = Pair(model, attached(model, file))

    @settings(max_examples=5, deadline=None, derandomize=True, phases=(Phase.generate,))
    @given(st.data())
    def check(data):
        exercise(data, pair, scratch(model, file), 1e-5, steps=5, vocab=3, longest=4, below=True)

    check()
    assert pair.drafter.network.slots.in_use == 0, "every slot is given back"


def test_states_go_where_accepted_tokens_go(target, tmp_path):
    """Of two siblings the second is kept, whose keys and states move up to the end of the text."""
    model = CachedModel(Llama.load(open_checkpoint(target), torch.float64, room=64))
    file = open_drafter(KINDS["eagle-3"](tmp_path), model.network.shape)
    pair = Pair(model, attached(model, file))
    session, tree = pair.open((5, 6, 7)), Tree((chosen(8), chosen(9)), (ROOT, ROOT))
    pair.score([ScoreRequest(session, tree)])
    session.keep(tree, (1,), (4,))
    (scores,) = pair.score([ScoreRequest(session, NOTHING)])
    want = scratch(model, file)((5, 6, 7, 9, 4), ())
    assert torch.allclose(scores.leaf[0].scores, want, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "method"),
    crossed(["eagle-3", "dspark", "medusa"], ["chain", "likeliest", "dyspec", "rsd_s", "sequoia"], quick=3),
)
def test_greedy_text_is_that_of_plain_decoding(kind, method, drafted):
    lm, told = drafted(kind), Settings(max_tokens=24, temperature=0)
    prompts = ["a first text", "another, longer text"]
    plain = [out.tokens for out in lm.batch(prompts, told)]
    assert [out.tokens for out in lm.batch(prompts, told, method)] == plain


def test_seed_decides_the_text_under_sample_matching(drafted):
    lm, told = drafted("eagle-3.1"), Settings(max_tokens=24, temperature=0.9, seed=5)
    assert lm.generate("some text", told, "likeliest").tokens == lm.generate("some text", told).tokens


def test_it_attends_by_kernels_that_need_no_plan_for_every_length(target, tmp_path, monkeypatch):
    """cuDNN makes one for every number of keys, in tens of milliseconds; whoever called finds PyTorch as it was."""
    model = CachedModel(Llama.load(open_checkpoint(target), torch.float64, room=64))
    pair = Pair(model, attached(model, open_drafter(KINDS["eagle-3"](tmp_path), model.network.shape)))
    session, before, seen = pair.open((5, 6, 7)), torch.backends.cuda.cudnn_sdp_enabled(), []
    own = pair.drafter.network.read

    def read(texts):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return own(texts)

    monkeypatch.setattr(pair.drafter.network, "read", read)
    pair.score([ScoreRequest(session, NOTHING)])
    assert seen == [False]
    assert torch.backends.cuda.cudnn_sdp_enabled() is before is True
