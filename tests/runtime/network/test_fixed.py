"""Fixed shapes: the bits of a law depend on the text before it alone, so drafted, batched and plain texts agree."""

import pytest
import torch
from prompts import PROMPTS

import unspool
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.errors import BadRequest
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.network.batch_invariant import check, padded
from unspool.runtime.network.linear import dense

CHATS = [[{"role": "user", "content": PROMPTS[i]}] for i in (0, 5, 9, 8, 10, 11, 23, 7)]
METHODS = [
    "suffix",
    "recycle:nodes=12",
    "merge:nodes=5",
    "auto",
    "lookup",
    "plain",
    "suffixtree:nodes=9",
    "bigram_recycling",
]
ANSWERS = {"greedy": Settings(max_tokens=7), "drawn": Settings(max_tokens=7, temperature=0.8, top_p=0.9, seed=5)}


@pytest.fixture(scope="module")
def fixed(smollm2_path):
    return load(str(smollm2_path), batch_invariant=True)


def bits(law):
    return law.scores.view(torch.int32)


def tree_of(tokens, parent):
    return Tree(tuple(Drawn(x, Law.point(x)) for x in tokens), tuple(parent))


def test_a_law_has_the_same_bits_in_a_tree_a_prompt_and_a_batch(fixed):
    text = list(fixed.encode(CHATS[2]))
    fork, odd = len(text) // 2, 7
    session = fixed.model.open(text[:fork])
    branches = tree_of([odd, *text[fork : fork + 5], odd], [ROOT, ROOT, 1, 2, 3, 4, 2])
    other = fixed.model.open(fixed.encode(CHATS[1]))
    drafted, _ = fixed.model.score([ScoreRequest(session, branches), ScoreRequest(other, NOTHING)])
    session.keep(branches, (5,), (None,))
    session.keep(NOTHING, (ROOT,), (text[fork + 5],))
    (went_on,) = fixed.model.score([ScoreRequest(session, NOTHING)])
    session.close(), other.close(), fixed.model.forget()
    wanted = {fork + i: drafted.law(node) for i, node in enumerate([ROOT, 1, 2, 3, 4, 5])} | {fork + 6: went_on.leaf[0]}
    for end, law in wanted.items():
        alone = fixed.model.open(text[:end])
        read = fixed.model.score([ScoreRequest(alone, NOTHING)])[0].leaf[0]
        alone.close(), fixed.model.forget()
        assert torch.equal(bits(read), bits(law)), end


@pytest.mark.parametrize("kind", [pytest.param("greedy", marks=pytest.mark.slow), "drawn"])
def test_eight_mixed_requests_in_a_batch_write_what_each_writes_alone_by_plain_decoding(fixed, kind):
    from unspool.core.chance import Philox
    from unspool.recipes.methods import method
    from unspool.runtime.engine.engine import Engine

    wanted = ANSWERS[kind]
    alone = [fixed.generate(chat, wanted).tokens for chat in CHATS]
    fixed.model.forget()
    engine = Engine(fixed.models())
    warp, stop = wanted.warp(fixed.vocabulary), wanted.stop_rule(fixed.vocabulary)
    jobs = [
        engine.submit(method(spec), fixed.encode(chat), Philox(wanted.seed, 0), warp, stop)
        for spec, chat in zip(METHODS, CHATS, strict=True)
    ]
    engine.run()
    assert [job.result().tokens for job in jobs] == alone
    assert any(job.trace.accepted_tokens for job in jobs)


def test_a_prompt_read_in_portions_beside_others_gives_the_text_that_it_gives_alone(fixed, monkeypatch):
    from unspool.core.chance import Philox
    from unspool.recipes.methods import method
    from unspool.runtime.engine.engine import Engine

    wanted = Settings(max_tokens=4)
    alone = [fixed.generate(chat, wanted).tokens for chat in CHATS[:2]]
    fixed.model.forget()
    monkeypatch.setattr(fixed.model, "chunk", 3)
    engine, stop = Engine(fixed.models()), wanted.stop_rule(fixed.vocabulary)
    jobs = []
    for spec, chat in zip(("recycle:nodes=5", "lookup"), CHATS, strict=False):
        jobs.append(engine.submit(method(spec), fixed.encode(chat), Philox(0), wanted.warp(fixed.vocabulary), stop))
        engine.step()
    assert jobs[1].reading
    engine.run()
    assert [job.result().tokens for job in jobs] == alone


def test_a_machine_that_cannot_keep_the_promise_is_found_out(smollm2_path):
    from unspool.models.weights import open_checkpoint
    from unspool.runtime.network.batch_invariant import PerTokenPlanner
    from unspool.runtime.network.llama import Llama

    def careless(weight, bias):  # what rounding does where kernels differ by the number of rows, made plain to see
        kept = dense(weight, bias)
        return lambda x: kept(x) * (1 + 2**-20 * x.shape[0])

    network = Llama.load(open_checkpoint(smollm2_path), linear=careless, planner=PerTokenPlanner)
    with pytest.raises(BadRequest, match="cannot be kept here"):
        check(CachedModel(network))


def test_rows_are_filled_up_and_taken_off_again():
    seen = []

    def noted(weight, bias):
        def apply(x):
            seen.append(tuple(x.shape))
            return x @ weight.t()

        return apply

    weight, x = torch.randn(3, 4), torch.randn(11, 4)
    assert torch.allclose(padded(noted, 8)(weight, None)(x), x @ weight.t())
    assert seen == [(8, 4), (8, 4)]


@pytest.mark.parametrize("shapes", ["fixed", 0, -3, 1.5])
def test_what_is_no_number_of_rows_is_refused(smollm2_path, shapes):
    with pytest.raises(BadRequest, match="expected True, False, or rows at a time"):
        unspool.load(str(smollm2_path), batch_invariant=shapes)
