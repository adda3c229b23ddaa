"""Deferred capture: nobody waits for a graph, wider ones serve until it is there, and the text is the same."""

from __future__ import annotations

from itertools import product

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
import torch
from standin import Instant, standin, token_at
from test_leaps import VOCAB, Always, Reader, plainly

from unspool.core.asks import Write
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.core.warp import Prefix, Temperature
from unspool.rules.decode import plain
from unspool.runtime.cuda.deferred_capture import (
    RENT,
    USUAL,
    WARPED,
    DeferredCapture,
    Wish,
    holds,
    includes,
    ladder,
    speculative_ladder,
)
from unspool.runtime.cuda.device_speculation import widest, widths
from unspool.runtime.cuda.footprint import FLOCK
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.cuda.packing import Kind, Size
from unspool.runtime.cuda.warp_stage import BARE, Shaping
from unspool.runtime.engine.contracts import DefersCapture, ScoreRequest
from unspool.runtime.engine.engine import Engine

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the device here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy, of what kernels mask away
]


EITHER = (False, True)


class Recorded(Instant):
    """A bucket that notes what it would have captured, and how often it ran."""

    ran = 0

    def run(self, turns=1, want=(), masks=None):
        self.graphs[want, self.heads is not None, self.shaping] = None
        self.ran += 1
        super().run(turns, want, masks)


def deferring():
    model = standin(bucket=Recorded)
    model.executor.deferred = DeferredCapture(model.executor.buckets)
    return model, model.executor


def written(model, texts, warp=None):
    engine = Engine({"target": model})
    jobs = [
        engine.submit(plain(), (1, 2, i), Philox(i), warp=warp, stop=Stop(most=6), laws=False) for i in range(texts)
    ]
    engine.run()
    return [tuple(token for emit in job.emitted for token in emit.tokens) for job in jobs]


def sizes(graphs, kind=Kind.WRITE):
    return {size.rows for size in graphs.buckets if size.kind is kind}


def test_a_wider_graph_serves_until_somebody_has_time():
    model, graphs = deferring()
    assert isinstance(model.device, DefersCapture)
    written(model, 16)
    assert written(model, 5) == [tuple(token_at(i, 3 + n, 512) for n in range(6)) for i in range(5)]
    assert sizes(graphs) == {16}
    while model.device.capture_next():
        pass
    own = next(bucket for size, bucket in graphs.buckets.items() if size.kind is Kind.WRITE and size.rows == 8)
    before = own.ran
    written(model, 5)
    assert own.ran > before
    assert len(graphs.deferred) == 0


def test_what_is_used_again_and_again_is_captured_though_somebody_waits():
    model, graphs = deferring()
    written(model, 16)
    for _ in range(RENT):
        assert sizes(graphs) == {16}
        written(model, 5)
    written(model, 5)
    assert sizes(graphs) == {8, 16}


def test_hidden_states_are_told_by_a_graph_of_their_own():
    _, graphs = deferring()
    with_states = graphs.serving(Kind.TREE, 4, 8, 100, told=True)[0]
    with_states.set_empty()
    with_states.run(want=(1,))
    assert graphs.serving(Kind.TREE, 4, 8, 100)[0] is with_states  # nothing else is there, so it is captured
    assert with_states.shapings == []


@pytest.mark.parametrize("there", USUAL)
@pytest.mark.parametrize(
    "shaping", [Shaping(*each) for each in product((False, True), (False, True), (0, 5, 20), (False, True))]
)
def test_a_graph_serves_those_of_whom_it_has_all_kernels(there, shaping):
    more = there.edits < shaping.edits or there.truncates < shaping.truncates or there.masks != shaping.masks
    assert includes(there, shaping) == (not more and (shaping.reports == 0 or shaping.reports == there.reports))


def test_rows_tokens_and_keys_must_fit():
    there = Size(Kind.TREE, 4, 8, 2048)
    assert holds(there, Size(Kind.TREE, 3, 5, 2048))
    for size in (
        Size(Kind.TREE, 5, 5, 1024),
        Size(Kind.TREE, 1, 9, 1024),
        Size(Kind.TREE, 1, 1, 4096),
        Size(Kind.FILL, 1, 1, 1024),
    ):
        assert not holds(there, size)
    assert not holds(Size(Kind.SPECULATE, 4, 8, 2048), Size(Kind.SPECULATE, 4, 4, 2048))  # its trees would be wider


def test_the_ladder_has_a_place_for_whatever_so_many_texts_ask():
    longest = 8192
    there = [*ladder(16, longest), *speculative_ladder(16, longest, lambda n: widths(widest(n)))]
    assert len(there) == len(set(there)) < 200
    for rows, length in product((1, 3, 16), (1024, 2048, 8192)):
        wishes = [Wish(Size(Kind.WRITE, rows, 1, length), shaping) for shaping in USUAL]
        wishes += [Wish(Size(Kind.FILL, rows, tokens, length), BARE) for tokens in (64, 512) if rows * tokens <= FLOCK]
        wishes += [Wish(Size(Kind.TREE, rows, 64, length), WARPED)] * (rows <= 4)
        wishes += [Wish(Size(Kind.SPECULATE, rows, width, length), BARE) for width in widths(widest(rows))]
        for size, shaping in wishes:
            assert any(holds(has.size, size) and includes(has.shaping, shaping) for has in there), (size, shaping)


def test_a_rehearsal_touches_no_text():
    network = Reader(VOCAB, 900, 128)
    model = graph_model(network, 2, 16)
    model.device.speculation.gate = Always()
    session, warp = model.open([5, 1, 4] * 3), Temperature(0.7)
    for ahead in (0, 3):
        text = tuple(session.leaves[0].tokens)
        before = network.memory[: network.slots.room].clone(), model.executor.block_table.table[0].clone()
        for kind, tokens in ((Kind.FILL, 4), (Kind.TREE, 2), (Kind.WRITE, 1), (Kind.SPECULATE, 4)):
            graphs = model.executor
            made = graphs.makers.get(kind, graphs.make)
            for shaping in (BARE, WARPED, WARPED._replace(masks=True))[: 2 if kind is Kind.SPECULATE else 3]:
                graphs.of(Size(kind, 2, tokens, 1024), made).rehearse(BARE if kind is Kind.FILL else shaping)
        assert torch.equal(network.memory[: network.slots.room], before[0])
        assert torch.equal(model.executor.block_table.table[0], before[1])
        write = Write(Prefix.of(text, warp), Philox(7), 5, ahead)
        model.device.write([ScoreRequest(session, NOTHING)], [write], 4)
    text = session.leaves[0].tokens
    assert text == plainly([5, 1, 4] * 3, 7, 0, len(text) - 9, 0.7)
