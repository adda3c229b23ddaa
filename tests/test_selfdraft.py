"""Models that draft for themselves: blocks filled at once and checked, masks beside candidates, blended laws."""

from __future__ import annotations

import pytest

from unspool.asks import Check, Look, Scores
from unspool.canvas import HOLE, Canvas
from unspool.chance import Philox
from unspool.draft import Denoised, Masks, Recall
from unspool.draft.masks import drafting
from unspool.errors import BadRequest
from unspool.law import Law
from unspool.methods import method
from unspool.run.engine import Engine
from unspool.run.session import Looking
from unspool.run.table import Table
from unspool.settings import Settings
from unspool.stop import Stop
from unspool.tree import ROOT
from unspool.verify import Blended
from unspool.warp.warp import Prefix, Same


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
        proposing.send(table().look([Looking(None, look)])[0])
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


@pytest.mark.parametrize("beside", [(), (Recall(),)])
def test_masks_keep_to_the_budget_and_write_what_plain_decoding_writes(beside):
    trees: list[int] = []

    def watched(text, chance, warp, stop):
        decoding, reply = drafting(Masks(2, beside), 2)(text, chance, warp, stop), None
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
        smollm2.generate("Once upon a time", Settings(max_tokens=4), method="masks")


def _proposed(source, prefix: Prefix, budget: int):
    try:
        next(source.propose(prefix, budget, Philox(0)))
    except StopIteration as end:
        return end.value
    raise AssertionError("it asked a model")


def _scores(leaf: list[float], after: list[list[float]]) -> Scores:
    return Scores([Law.of(row) for row in after], [Law.of(leaf)])
