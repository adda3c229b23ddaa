"""Recurrent layers in graphs: whatever is drafted, forked or let go, a token goes on from the state of its own text.

The network here has texts for states: a checkpoint holds the tokens up to the one it stands behind, and what a token
finds there must be what its slots say.
"""

from __future__ import annotations

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
import torch
from test_leaps import VOCAB, Always, Reader, plainly, scores
from test_rows import left

from unspool.core.asks import Draw, Write
from unspool.core.chance import At, Philox, Role
from unspool.core.law import Law, chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Prefix, Temperature
from unspool.recipes.methods import method
from unspool.runtime.cache.checkpoint_pool import CheckpointPool, RecurrentGatherPool
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.recurrent_plan import RecurrentPlanner

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the device here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy, of what kernels mask away
]
TEXT = (0, "text")


class Carrier(Reader):
    """A network that is told its text by a checkpoint and the tokens since, and holds it against its slots."""

    def __init__(self, vocab, room, context, states):
        super().__init__(vocab, room, context)
        self.recurrent = RecurrentPlanner(CheckpointPool(states), self.device)
        self.lay_out_states()
        self.slots = RecurrentGatherPool(room, [], torch.float32, self.device, self.recurrent.checkpoints)

    def lay_out_states(self):
        return self.recurrent.checkpoints.lay_out(TEXT, (self.context + 1,), torch.int32, self.device)

    def run(self, tokens, rows, want=()):
        texts, _ = super().run(tokens, rows, want)
        held, wide = self.recurrent.checkpoints.stored(TEXT), len(rows.slots) // len(rows.past)
        carried = {}
        for row in range(len(rows.past)):
            for token in range(row * wide, row * wide + int(rows.count[row])):
                above, into = int(rows.before[token]), int(rows.into[token])
                before = carried[above] if above >= 0 else held[~above, 1 : 1 + int(held[~above, 0])].tolist()
                carried[token] = [*before, int(tokens[token])]
                assert carried[token] == texts[token]
                if into >= 0:
                    held[into, : 2 + len(before)] = torch.tensor([len(before) + 1, *carried[token]])
                else:  # whoever follows stands right behind it
                    assert not (rows.before == token)[token + 2 :].any()
        return texts, {}


def model_of(states=64, prefix_cache=2, sequences=16):
    network = Carrier(VOCAB, 900, 128, states)
    return graph_model(network, prefix_cache, sequences)


def nothing_is_left(model):
    """Slots, lanes and checkpoints are all free again."""
    assert left(model) == (0, 0)
    checkpoints = model.slots.checkpoints
    assert len(checkpoints) == 0
    assert sorted(checkpoints._free) == list(range(2, checkpoints._size))


@pytest.mark.parametrize(("t", "ahead", "rows", "states"), [(0.0, 3, 2, 64), (0.7, 7, 2, 4)])
def test_what_is_drafted_on_the_device_goes_on_from_what_stands(t, ahead, rows, states):
    model = model_of(states)
    model.device.speculation.gate = Always()
    prompts = [[5, 1, 4] * 7, [2, 3, 2, 3, 2], [1]][:rows]
    sessions = [model.open(prompt) for prompt in prompts]
    for _ in range(3):
        texts = [tuple(session.leaves[0].tokens) for session in sessions]
        writes = [Write(Prefix.of(text, Temperature(t)), Philox(7, i), 9, ahead) for i, text in enumerate(texts)]
        asked = [ScoreRequest(session, NOTHING) for session in sessions]
        replies = model.device.write(asked, writes, 2)
        if replies is None:  # prompts are read with the first step
            model.score(asked)
            for leaf in (session.leaves[0] for session in sessions):
                model.slots.drop([leaf.slots.pop()])
                leaf.law = None
    assert any(reply.rounds for reply in replies)
    for number, (prompt, session) in enumerate(zip(prompts, sessions, strict=True)):
        text = session.leaves[0].tokens
        assert len(text) > len(prompt)
        assert text == plainly(prompt, 7, number, len(text) - len(prompt), t)
        session.close()
    nothing_is_left(model)


@pytest.mark.parametrize("states", [3, pytest.param(64, marks=pytest.mark.slow)])
def test_methods_together_write_what_plain_decoding_does_alone(states):
    model = model_of(states)
    specs = ("plain", "lookup", "recycle")
    prompts = [[5, 1, 4] * 7, [2, 3, 2, 3, 2], [5, 1, 4] * 6]
    engine = Engine({"target": model})
    jobs = [
        engine.submit(method(spec), tuple(prompt), Philox(7, i), Temperature(0.7), Stop(most=7), laws=False)
        for i, (spec, prompt) in enumerate(zip(specs, prompts, strict=True))
    ]
    engine.run()
    for number, (prompt, job) in enumerate(zip(prompts, jobs, strict=True)):
        tokens = list(job.result().tokens)
        assert [*prompt, *tokens] == plainly(prompt, 7, number, len(tokens), 0.7)
        assert len(tokens) == 7
    nothing_is_left(model)


@pytest.mark.parametrize("states", [64, 2])
def test_a_text_that_forks_and_rolls_back_is_each_of_its_texts(states):
    model = model_of(states)
    session = model.open([5, 1, 4, 2])
    tree = Tree(tuple(chosen(x) for x in (1, 2, 3, 4)), (ROOT, 0, ROOT, 2))
    model.score([ScoreRequest(session, tree)])
    session.keep(tree, (1,), (7,))
    copy = session.fork()
    chain = Tree.chain([chosen(3), chosen(6)])
    mine, theirs = model.score([ScoreRequest(session, chain), ScoreRequest(copy, NOTHING)])
    assert torch.equal(theirs.leaf[0].scores, scores([5, 1, 4, 2, 1, 2, 7]))
    assert torch.equal(mine.after[1].scores, scores([5, 1, 4, 2, 1, 2, 7, 3, 6]))
    deeper = chain.grow(chosen(2), 1)[0]  # below drafts of an earlier forward
    assert torch.equal(
        model.score([ScoreRequest(session, deeper)])[0].after[2].scores, scores([5, 1, 4, 2, 1, 2, 7, 3, 6, 2])
    )
    session.close()
    copy.close()
    nothing_is_left(model)


def test_a_chain_that_is_drawn_on_the_device_leaves_a_state_behind_every_token():
    model = model_of(2)
    sessions = [model.open(prompt) for prompt in ([5, 1, 4, 5, 1], [2, 3])]
    draws = [
        Draw(Prefix.of(tuple(s.leaves[0].tokens), Temperature(0.7)), 4, Philox(7, i),
             At(len(s.leaves[0].tokens), Role.DRAFT, round=len(s.leaves[0].tokens)), "draft")
        for i, s in enumerate(sessions)
    ]  # fmt: skip
    found = model.drafting.draw([ScoreRequest(session, NOTHING) for session in sessions], draws)
    for session, drew in zip(sessions, found, strict=True):
        text = [*session.leaves[0].tokens, *drew.tree.tokens(drew.tree.path(len(drew.tree) - 1))]
        (after,) = model.score([ScoreRequest(session, drew.tree)])
        assert torch.equal(after.after[-1].scores, scores(text))
        assert torch.equal(Law(after.after[1].scores).scores, scores(text[:-2]))
        session.close()
    nothing_is_left(model)
