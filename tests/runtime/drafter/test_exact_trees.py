"""Exact trees over trained drafters, at any temperature: real networks of two tokens, every branch of chance followed.

What comes out under rejection, block, traversal and sample matching is the law of plain decoding, whatever was drafted.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.support.drafterfiles import KINDS, LAYERS
from tests.support.littlemodel import little_model
from unspool.api.trained_draft import attached
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.core.warp import Temperature
from unspool.loops.speculate import Speculate
from unspool.models.drafters.description import DrafterFile
from unspool.models.drafters.forms import FORMS
from unspool.models.drafters.opening import open_drafter
from unspool.models.weights import open_checkpoint
from unspool.rules.draft import Chain, DySpec, Likeliest, SpecInfer
from unspool.rules.verify import block, rejection, sample_match, traversal
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.draft_bridge.best_effort import quiet
from unspool.runtime.drafter.drafter_model import TrainedDrafter
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.linear import dense
from unspool.runtime.network.llama import Llama

TOKENS, PROMPT, MOST = 2, (0, 1, 1), 3
METHODS = {
    "a drawn chain under rejection": Speculate(Chain(2), rejection, budget=2),
    "a drawn chain under block verification": Speculate(Chain(2), block, budget=2),
    "marginals' likeliest paths under sample matching (DDTree)": Speculate(Likeliest(2, 2), sample_match, budget=3),
    "likeliest paths under traversal": Speculate(Likeliest(2, 2), traversal, budget=3),
    "a tree by slots under rejection": Speculate(DySpec(0.3), rejection, budget=2),
    "drawn paths under traversal": Speculate(SpecInfer(2, 1), traversal, budget=2),
}


PAIRS = [("dspark", named) for named in METHODS if "drawn paths" not in named]
PAIRS += [("eagle-3", named) for named in METHODS if "slots" in named or "rejection" in named]
EVERY = ("a drawn chain under rejection", "marginals' likeliest paths under sample matching (DDTree)")
OTHERS = ("eagle-1", "mtp", "p-eagle", "dflash", "jetspec", "dflash2", "medusa", "mlp speculator", *FORMS)
PAIRS += [(kind, EVERY[n % 2]) for n, kind in enumerate(OTHERS)]
PAIRS += [(kind, "likeliest paths under traversal") for kind in ("hydra", "clover2", "jakiro", "dflash2")]
PAIRS += [pytest.param("dflash2", "drawn paths under traversal", marks=pytest.mark.slow)]


def few(file: DrafterFile) -> DrafterFile:
    """The drafter with the first two tokens alone."""
    cut = {"embed.weight", "head.weight", "markov.w1", "markov.w2", "selector.before", "selector.after"}
    tensors = {n: t[:TOKENS] if n in cut or n.endswith((".out", ".embed")) else t for n, t in file.tensors.items()}
    tensors.pop("ids", None)
    mask = None if file.spec.mask is None else 0
    return DrafterFile(replace(file.spec, mask=mask), tensors, file.source)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A target of two tokens, and a drafter of a kind that reads its states."""
    target = open_checkpoint(little_model(tmp_path_factory.mktemp("target"), LAYERS))

    def make(kind: str) -> tuple[CachedModel, TrainedDrafter]:
        network = Llama.load(target, torch.float64, room=128)
        file = open_drafter(KINDS[kind](tmp_path_factory.mktemp("drafter")), network.shape)
        words = network.ends.embedding[:TOKENS]
        network.shape = replace(network.shape, vocab=TOKENS)
        network.ends = replace(network.ends, table=words, head=dense(words, None))
        model = CachedModel(network, 4)
        return model, attached(model, few(file))

    return make


@pytest.fixture
def world(pair):
    """An engine of such a pair."""

    def make(kind: str) -> Engine:
        model, drafter = pair(kind)
        return Engine({"target": model, "draft": quiet(drafter)})

    return make


def law_of(engine: Engine, method, warp) -> tuple[dict, int, int]:
    counts = [0, 0]

    def text(chance):
        job = engine.submit(method, PROMPT, chance, warp, Stop(most=MOST))
        engine.run()
        counts[0] += job.trace.drafted
        counts[1] += job.trace.accepted_tokens
        return job.result()

    return Every(4000).law(text), counts[0], counts[1]


@pytest.mark.parametrize(("kind", "named"), PAIRS)
def test_the_law_is_that_of_plain_decoding(kind, named, world):
    engine, warp = (
        world(kind),
        Temperature(6.0),
    )  # random networks are too sure of themselves to be refused and accepted
    truth, *_ = law_of(engine, Speculate(), warp)
    found, drafted, accepted = law_of(engine, METHODS[named], warp)
    assert total_variation(found, truth) < 1e-12
    assert 0 < accepted < drafted, "some drafts stand and some do not, or nothing is shown"


def test_what_stands_of_drafts_is_what_laws_along_the_text_let_expect(pair):
    """Round by round along the greedy text, with sessions that have read it anew: as many forwards, no more."""
    stood = {kind: compared(*pair(kind)) for kind in ("eagle-3", "mtp", "dspark", "dflash2", "hydra")}
    assert sum(stood.values()) > 0, "nothing is shown by drafts that never stand"


def compared(model: CachedModel, drafter: TrainedDrafter) -> int:
    """How many drafts should stand, once as many forwards were counted as that makes."""
    engine = Engine({"target": model, "draft": quiet(drafter)})
    job = engine.submit(Speculate(Chain(2), rejection, budget=2), PROMPT, Philox(1), Temperature(0), Stop(most=24))
    engine.run()
    whole, stood, forwards = [*PROMPT, *job.result().tokens], 0, 1
    at = len(PROMPT) + 1  # the first forward is the target's alone
    while at < len(whole):
        target, session = model.open(whole[:at]), drafter.open(whole[:at])
        model.score([ScoreRequest(target, NOTHING)])
        drafter.follow(session, target)
        tree = NOTHING
        for _ in range(min(2, len(whole) - at - 1)):
            (scores,) = drafter.score([ScoreRequest(session, tree)])
            tree, _ = tree.grow(chosen(scores.law(len(tree) - 1).best), len(tree) - 1)
        session.close()
        target.close()
        stands = 0
        while stands < len(tree) and tree.drawn[stands].token == whole[at + stands]:
            stands += 1
        at, stood, forwards = at + stands + 1, stood + stands, forwards + 1
    assert job.trace.forwards["target"] == forwards
    return stood
