"""Looks through the buckets of a device: what each token sees there is what its layout says, after any history."""

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
import torch
from deep import FILLINGS, VOCAB, Deep, expected, logits_of, sorted_sight, text_law, told
from hypothesis import given, settings
from hypothesis import strategies as st
from standin import Blank
from test_canvased import looks

from unspool.core.asks import Look, Soft
from unspool.core.canvas import HOLE, Canvas
from unspool.core.errors import BadRequest
from unspool.core.law import Law, chosen
from unspool.core.tree import NOTHING, Tree
from unspool.runtime.cuda.graph_bucket import Bucket
from unspool.runtime.cuda.packing import BITS, Kind
from unspool.runtime.diffusion.graph_denoiser import graph_diffusion
from unspool.runtime.engine.contracts import LookRequest, ScoreRequest


class Hashing(Bucket):
    """A bucket that computes what `Deep` does, from the same buffers that kernels read."""

    def run(self, turns=1, want=(), masks=None):
        on, size, memory = self.staging.on, self.size, self.network.memory
        self.staging.send()
        self.block_table.table.view(-1).index_put_((on["at"].long(),), on["slot"])
        states = [HOLE if x == VOCAB else x for x in on["tokens"].tolist()]
        for layer in range(Deep.layers):
            for i, (slot, place) in enumerate(zip(on["slots"].tolist(), on["places"].tolist(), strict=True)):
                memory[layer, slot] = (place, states[i])
            states = [self._state(layer, i) for i in range(len(states))]
        if size.kind is Kind.TREE:
            self.logits = torch.stack([logits_of(state) for state in states])
            self.best = torch.zeros(len(states), 16)

    def _state(self, layer: int, i: int) -> int:
        on, tokens = self.staging.on, self.size.tokens
        row, own = divmod(i, tokens)
        past, count = int(on["past"][row]), int(on["count"][row])
        if own >= count:
            return 0
        table = self.block_table.table[int(on["lane"][row])]
        keys = [*table[:past].tolist(), *on["slots"][row * tokens : row * tokens + count].tolist()]
        if self.size.kind is Kind.TREE and tokens > 1:
            bits = sum((word & 0xFFFFFFFF) << (BITS * n) for n, word in enumerate(on["sees"][i].tolist()))
            clear = int(on["clear"][row])
            seen = [key < clear or bits >> (key - clear) & 1 for key in range(len(keys))]
        else:
            seen = [key <= past + own for key in range(len(keys))]
        sights = [self.network.memory[layer, slot] for slot, see in zip(keys, seen, strict=True) if see]
        return told(int(on["places"][i]), sorted_sight(sights))


def same(field, look: Look, filling) -> None:
    want = expected(look, filling)
    assert tuple(field) == tuple(want)
    for i in want:
        assert torch.equal(field[i].scores, want[i].float()), f"place {i} of {look.canvas.tokens}"


def painted(filling, prefix_cache=0, room=400, context=64):
    """The runtime on such buckets."""
    network = Blank(VOCAB, room, context)
    network.memory = {}
    model = graph_diffusion(network, filling, prefix_cache)
    model.executor.make = Hashing
    return model


@given(st.data(), st.sampled_from(FILLINGS), st.sampled_from([0, 2]))
@settings(max_examples=60, deadline=None)
def test_looks_and_scores_of_any_history_equal_those_from_nothing(data, filling, shelf):
    model = painted(filling, shelf)
    live, tokens = [], st.integers(0, VOCAB - 2)
    for _ in range(6):
        act = data.draw(st.sampled_from(["open", "look", "look", "look", "score", "keep", "close"]))
        if act == "open" or not live:
            text = tuple(data.draw(st.lists(tokens, min_size=1, max_size=4)))
            live.append([model.open(text), text])
        elif act == "close":
            live.pop(data.draw(st.integers(0, len(live) - 1)))[0].close()
        elif act == "look":
            company = [each for each in live if data.draw(st.booleans())] or live[:1]
            asked = [LookRequest(session, data.draw(looks(text))) for session, text in company]
            asked = [ask for ask in asked if not ask.look.soft]
            for ask, field in zip(asked, model.look(asked), strict=True):
                if ask.look.places:
                    same(field, ask.look, filling)
        else:
            each = data.draw(st.sampled_from(live))
            tree = Tree.chain([chosen(x) for x in data.draw(st.lists(tokens, max_size=3))])
            (scores,) = model.score([ScoreRequest(each[0], tree)])
            assert torch.equal(scores.leaf[0].scores, text_law(each[1]).float())
            if act == "keep" and len(tree):
                node = data.draw(st.integers(0, len(tree) - 1))
                each[0].keep(tree, (node,), (None,))
                each[1] += tree.tokens(tree.path(node))
    for session, _ in live:
        session.close()
    model.forget()
    assert model.slots.in_use == 0


def test_a_long_text_is_read_in_portions_before_its_window():
    filling = FILLINGS[0]
    model = painted(filling, room=2000, context=1024)
    text = tuple(i % (VOCAB - 1) for i in range(700))
    look = Look(Canvas.blank(text, 8))
    session = model.open(text)
    (field,) = model.look([LookRequest(session, look)])
    same(field, look, filling)
    session.close()
    model.forget()
    assert model.slots.in_use == 0


def test_mixtures_are_refused_and_nothing_leaks():
    model = painted(FILLINGS[0])
    session = model.open((1, 2))
    with pytest.raises(BadRequest, match="mixtures"):
        model.look(
            [LookRequest(session, Look(Canvas.blank((1, 2), 2), soft={2: Soft(Law.of([1.0, 1.0, 1.0, 0.0]), 0.5)}))]
        )
    assert model.score([ScoreRequest(session, NOTHING)])
    session.close()
    model.forget()
    assert model.slots.in_use == 0
