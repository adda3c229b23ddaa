"""Models that draft for themselves: blocks filled at once and checked, masks beside candidates, blended laws."""

from __future__ import annotations

import pytest
import torch
from deep import Deep
from toy import Toy

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.asks import Check, Look, Scores
from unspool.core.canvas import HOLE, Canvas, Field
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.tree import ROOT
from unspool.core.warp.warp import Prefix, Same
from unspool.models.shape import DiffusionSpec
from unspool.recipes.methods import method
from unspool.rules.decode import Speculate
from unspool.rules.draft import BigramRecycling, Denoised, Masks
from unspool.rules.verify import Blended, RacedBlock
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.diffusion.block_diffusion import BlockDiffusionModel
from unspool.runtime.diffusion.full_diffusion import FullDiffusionModel
from unspool.runtime.draft_bridge.best_effort import quiet
from unspool.runtime.engine.contracts import Infill, LookRequest
from unspool.runtime.engine.engine import Engine


def table(vocab: int = 4) -> Table:
    """What follows depends on the last two tokens."""
    return Table(
        vocab, lambda text: [1 + (3 * text[-1] + 5 * (text[-2] if len(text) > 1 else 0) + x) % 7 for x in range(vocab)]
    )


def decoded(name: str, most: int = 24, seed: int = 1):
    engine = Engine({"target": table()})
    job = engine.submit(method(name), (1, 2), Philox(seed), stop=Stop(most=most))
    engine.run()
    return job.result().tokens, job.trace


def test_a_filled_block_costs_a_look_and_a_forward_per_round():
    tokens, trace = decoded("denoised:depth=3")
    assert len(tokens) == 24
    assert trace.forwards["target"] == 2 * trace.rounds - (trace.drafted == 0)
    assert trace.accepted_tokens > 0


def test_the_look_of_a_drafted_block_is_at_its_holes_alone():
    prefix = Prefix.of((1, 2), Same(), left=10)
    proposing = Denoised(3).propose(prefix, 8, Philox(0))
    look = next(proposing)
    assert look == Look(Canvas.blank((1, 2), 3))
    with pytest.raises(StopIteration) as end:
        proposing.send(table().look([LookRequest(None, look)])[0])
    tree = end.value.value
    assert len(tree) == 3
    assert tree.parent == (ROOT, 0, 1)


def test_weight_one_takes_blocks_whole_and_weight_zero_as_far_as_the_reader_agrees():
    _, whole = decoded("blended:weight=1,depth=4")
    assert whole.rounds == 7  # five of 4, one of 3, and the last token of a text is never drafted
    assert sum(decoded("blended:weight=0,depth=4", seed=seed)[1].rounds for seed in range(6)) > 6 * whole.rounds
    with pytest.raises(BadRequest, match="blended:weight"):
        Blended(1.5)


def test_the_first_token_of_a_block_always_stands():
    for seed in range(8):
        _, trace = decoded("blended:weight=0,depth=3", most=6, seed=seed)
        assert trace.rounds <= 6


@pytest.mark.parametrize("context", [None, 8], ids=["as long as it takes", "silent behind eight tokens"])
def test_a_block_is_filled_by_a_draft_model_that_was_trained_to(context):
    """Draft models are kept quiet by whoever loads them; one that fills holes fills them all the same."""
    network = Deep(context=context)
    engine = Engine(
        {"target": table(), "draft": quiet(BlockDiffusionModel(network, DiffusionSpec("block", "shifted", 3)))}
    )
    job = engine.submit(method("blended:weight=1,depth=3,by=draft"), (1, 2), Philox(1), stop=Stop(most=12))
    engine.run()
    assert len(job.result().tokens) == 12
    assert 0 < network.forwards == job.trace.forwards["draft"]
    assert job.trace.drafted == (11 if context is None else 6)
    assert network.slots.in_use == 0


def test_a_window_has_what_was_written_since_and_some_places_before_computed_anew():
    """What stood in the holes of the last look is something else by now, and must not be seen as it was."""
    source = RacedBlock(3, "draft", window=2).begin(Prefix.of((1, 2, 3, 0, 1), Same(), left=20))
    looked = []
    for text in ((1, 2, 3, 0, 1), (1, 2, 3, 0, 1, 2, 0), (1, 2, 3, 0, 1, 2, 0, 3)):
        proposing = source.propose(Prefix.of(text, Same(), left=20), 8, Philox(0))
        look = next(proposing)
        looked.append(sorted(look.fresh))
        with pytest.raises(StopIteration):
            proposing.send(table().look([LookRequest(None, look)])[0])
    assert looked == [list(range(8)), list(range(3, 10)), list(range(5, 11))]
    with pytest.raises(BadRequest, match="blended:window"):
        RacedBlock(3, "draft", window=-1)


@pytest.mark.parametrize("window", [0, 2, 64])
def test_a_model_that_sees_everything_computes_its_window_alone(window):
    """APD's pair: a model that fills holes and keeps keys drafts for one that reads."""
    network = Deep(room=4000)
    filler = FullDiffusionModel(network, DiffusionSpec("full", "aligned", 3))
    engine = Engine({"target": table(), "draft": quiet(filler)})
    spec = f"blended:weight=1,depth=3,by=draft,window={window}"
    job = engine.submit(method(spec), (1, 2) * 10, Philox(1), stop=Stop(most=10))
    engine.run()
    assert len(job.result().tokens) == 10
    looks = job.trace.forwards["draft"]
    assert looks == 3
    places = [20 + 3, 23 + 3, 26 + 3]
    assert network.computed == {0: sum(places), 64: sum(places), 2: 23 + 2 * (2 + 3 + 3)}[window]
    assert network.slots.in_use == 0


def test_a_draft_model_that_only_reads_is_no_model_that_fills():
    assert not isinstance(quiet(CachedModel(Toy())), Infill)
    engine = Engine({"target": table(5), "draft": quiet(CachedModel(Toy()))})
    job = engine.submit(method("blended:by=draft"), (1, 2), Philox(1), stop=Stop(most=4))
    engine.run()
    with pytest.raises(BadRequest, match="the draft model reads left to right"):
        job.result()


def test_a_loaded_draft_that_fills_holes_can_be_asked_to(smollm2):
    """As `unspool.load("smollm2", draft="smollm2-diffusion")` puts them together."""

    class Filler(Table):
        looks = 0

        def look(self, asked):
            self.looks += 1
            even = Law(torch.zeros(self.vocab))
            return [Field(dict.fromkeys(ask.look.places, even), 1) for ask in asked]

    words = smollm2.vocabulary
    filler = Filler(words.size, lambda text: [1.0] * words.size)
    both = LM("both", smollm2.model, words, draft=LM("filler", filler, words))
    out = both.generate("The rain", Settings(max_tokens=4, ignore_eos=True), "blended:by=draft,weight=1")
    assert len(out.tokens) == 4
    assert filler.looks == 1  # three of the four tokens are one block


def test_masks_hang_below_the_text_and_below_every_guess():
    source = Masks(ahead=2).begin(Prefix.of((1, 2), Same()))
    prefix = Prefix.of((1, 2), Same())
    first = _proposed(source, prefix, 8)
    assert first.tokens(range(len(first))) == (HOLE, HOLE)
    assert first.parent == (ROOT, 0)
    source.learn(prefix.then((3,)), first, _scores([0.1, 0.2, 0.3, 0.4, 0.0], [[0, 9, 1, 0, 0], [9, 0, 0, 0, 0]]))
    tree = _proposed(source, prefix.then((3,)), 8)  # two guesses, each with two masks, and two below the text
    assert tree.tokens(range(2)) == (1, 0)
    assert tree.parent[:2] == (ROOT, 0)
    assert [tree.parent[i] for i in range(2, 8)] == [ROOT, 2, 0, 4, 1, 6]


def test_what_is_learnt_is_what_was_guessed_behind_the_last_token_that_stood():
    prefix = Prefix.of((1, 2), Same())
    source = Masks(ahead=1).begin(prefix)
    first = _proposed(source, prefix, 5)
    source.learn(prefix.then((3,)), first, _scores([1, 1, 1, 1, 0], [[0, 9, 1, 0, 0]]))
    tree = _proposed(source, prefix.then((3,)), 5)  # guesses 1 or 2, a mask below each and below the text
    after = [[0, 0, 1, 9, 0] if parent == 0 else [1, 1, 1, 1, 0] for parent in tree.parent]
    source.learn(prefix.then((3, 1, 0)), tree, _scores([1, 1, 1, 1, 0], after))  # the guess 1 stood, then came 0
    again = _proposed(source, prefix.then((3, 1, 0)), 5)
    assert again.drawn[0].token == 3


@pytest.mark.parametrize("beside", [(), (BigramRecycling(),)])
def test_masks_keep_to_the_budget_and_write_what_plain_decoding_writes(beside):
    trees: list[int] = []

    def watched(text, chance, warp, stop):
        decoding, reply = Speculate(Masks(2, beside), budget=8)(text, chance, warp, stop), None
        while True:
            try:
                ask = decoding.send(reply)
            except StopIteration as end:
                return end.value
            if isinstance(ask, Check):
                trees.append(len(ask.tree))
            reply = yield ask

    texts = []
    for decoder in (watched, method("plain")):
        engine = Engine({"target": table()})
        job = engine.submit(decoder, (1, 2), Philox(5), stop=Stop(most=30))
        engine.run()
        texts.append(job.result().tokens)
    assert texts[0] == texts[1]
    assert max(trees) == 2 + 3 * 2


def test_a_model_without_a_mask_says_so(smollm2):
    with pytest.raises(BadRequest, match="shows the model holes"):
        smollm2.generate("Once upon a time", Settings(max_tokens=4), method="masks", raw=True)


def _proposed(source, prefix: Prefix, budget: int):
    try:
        next(source.propose(prefix, budget, Philox(0)))
    except StopIteration as end:
        return end.value
    raise AssertionError("it asked a model")


def _scores(leaf: list[float], after: list[list[float]]) -> Scores:
    return Scores([Law.of(row) for row in after], [Law.of(leaf)])
