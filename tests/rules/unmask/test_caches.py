"""Approximate caches: exact where their rules say so, old exactly where they say so, and how far off they are then."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from deep import FULL, Deep, expected

from unspool.core.asks import Look
from unspool.core.canvas import Canvas, Field
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.stop import Stop
from unspool.loops.unmasker import begun, blocks_of, look
from unspool.models.shape import DiffusionSpec, Shape
from unspool.recipes.methods import method
from unspool.rules.unmask.cached_dual import CachedDual
from unspool.rules.unmask.cached_prefix import CachedPrefix
from unspool.rules.unmask.delayed import Delayed
from unspool.rules.unmask.interval import Interval
from unspool.rules.unmask.windowed import Windowed
from unspool.runtime.diffusion.block_diffusion import BlockDiffusionModel
from unspool.runtime.diffusion.full_diffusion import FullDiffusionModel
from unspool.runtime.engine.contracts import LookRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.batch_invariant import PerTokenPlanner, padded
from unspool.runtime.network.linear import dense
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.network import CacheRefresh, staying

ORDER = (2, 0, 1, 4, 3, 5)  # in which the six holes are filled, block by block


def walk(model, view, block: int = 3, text: tuple[int, ...] = (1, 2)):
    """Fill six holes one by one; every look that was asked, with the answer."""
    session, view, blocks = model.open((0,)), begun(view), blocks_of(block)
    canvas, seen = Canvas.blank(text, 6), []
    while (sheet := blocks(canvas)).holes:
        place = next(i for i in ORDER if len(text) + i in sheet.holes)
        viewing = view(sheet, sheet.holes)
        ask = next(viewing)
        (field,) = model.look([LookRequest(session, ask)])
        seen.append((ask, field))
        with pytest.raises(StopIteration):
            viewing.send(field)
        canvas = canvas.fill({len(text) + place: place % 3})
    session.close()
    assert model.slots.in_use == 0
    return seen


def exact(seen, filling: DiffusionSpec) -> list[bool]:
    """For every look, whether all its laws are those of everything computed anew."""
    found = []
    for ask, field in seen:
        want = expected(Look(ask.canvas, ask.at), filling)
        found.append(all(torch.equal(field[i].scores, want[i]) for i in want))
    return found


@pytest.mark.parametrize("filling", FULL, ids=str)
@pytest.mark.parametrize(
    ("view", "block", "text"),
    [
        (look, 3, (1, 2)),
        (Delayed(reload=1), 3, (1, 2)),
        (CachedPrefix(), 0, ()),
        (CachedDual(), 0, ()),
        (CachedPrefix(), 1, (1, 2)),
        (CachedDual(), 1, (1, 2)),
        (Interval(prompt=1, answer=1), 3, (1, 2)),
        (Interval(prompt=9, answer=1), 3, ()),
        (Interval(prompt=9, answer=9, renew=1.0), 3, ()),
        (Windowed(near=6, far=6, cycle=1), 0, (1, 2)),
        (Windowed(near=6, far=6, cycle=9), 0, ()),
    ],
)
def test_where_nothing_can_be_old_a_cache_is_exact(view, block, text, filling):
    assert all(exact(walk(FullDiffusionModel(Deep(), filling), view, block, text), filling))


@pytest.mark.parametrize(
    ("view", "rows", "right"),
    [
        (CachedPrefix(), [8, 6, 6, 8, 3, 3], [True, False, False, True, False, False]),
        (CachedDual(), [8, 3, 3, 8, 3, 3], [True, False, False, True, False, False]),
        (Delayed(reload=9), [8, 8, 5, 8, 8, 2], [True, True, False, True, True, False]),
        (Interval(prompt=4, answer=3, renew=0.5), [8, 4, 4, 6, 6, 4], [True, False, False, False, True, False]),
        (Windowed(near=2, far=2, cycle=3), [8, 3, 3, 8, 3, 3], [True, False, False, True, False, False]),
    ],
    ids=["prefix", "dual", "delayed", "interval", "windowed"],
)
def test_a_cache_computes_what_its_rule_says_and_no_more(view, rows, right):
    filling = FULL[1]
    seen = walk(FullDiffusionModel(Deep(), filling), view)
    assert [field.rows for _, field in seen] == rows
    assert exact(seen, filling) == right


def asked_of(viewing):
    """The look that a view asks for; it is answered with nothing."""
    look = next(viewing)
    with pytest.raises(StopIteration):
        viewing.send(Field({}))
    return look


def test_only_near_holes_are_looked_at_between_two_looks_at_everything():
    view, blank = Windowed(near=2, far=3, cycle=3).begin(), Canvas.blank((1,), 6)
    assert asked_of(view(blank, blank.holes)) == Look(blank, (1, 2, 3, 4, 5, 6))
    written = blank.fill({2: 0, 5: 0})
    look = asked_of(view(written, written.holes))
    assert look.places == (1, 3)  # the two leftmost holes
    assert look.fresh == {1, 3, 2, 5}  # these, and what was written since
    assert look.seen == {0, 1, 2, 3, 4, 5}  # all tokens and three holes; the fourth, 6, is not seen
    asked_of(view(written, written.holes))
    assert asked_of(view(written, written.holes)) == Look(written, (1, 3, 4, 6))  # a new cycle


def test_old_keys_are_those_of_the_last_time_they_were_computed():
    network, filling = Deep(), FULL[1]
    model = FullDiffusionModel(network, filling)
    session = model.open((0,))
    blank = Canvas.blank((1,), 3)
    model.look([LookRequest(session, Look(blank))])
    written = blank.fill({1: 2})
    stale = model.look([LookRequest(session, Look(written, (3,), fresh=frozenset((3,))))])[0]
    assert torch.equal(stale[3].scores, expected(Look(blank), filling)[3])  # as if nothing had been written
    later = model.look([LookRequest(session, Look(written, (3,), fresh=frozenset((0, 1, 2, 3))))])[0]
    assert torch.equal(later[3].scores, expected(Look(written), filling)[3])
    alone = model.look([LookRequest(session, Look(written, (3,), seen=frozenset((0, 1))))])[0]
    assert alone.rows == 3
    assert not torch.equal(alone[3].scores, later[3].scores)


@pytest.mark.parametrize(
    "view", [CachedPrefix(), CachedDual(), Delayed(), Interval(), Windowed(2, 4, 3)], ids=lambda v: type(v).__name__
)
def test_where_the_text_is_read_from_left_to_right_every_cache_is_exact(view):
    filling = DiffusionSpec("block", "shifted", 3)
    assert all(exact(walk(BlockDiffusionModel(Deep(), filling), view), filling))


# ---- on a network


class Random:
    """A checkpoint with random weights, in which everything sees everything."""

    rope_factors, title, bytes = None, "random", 0
    shape = Shape("llada", 4, 32, 4, 2, 8, 64, 64, 128, 1e-5, 1e4, filling=DiffusionSpec("full", "aligned", 63))

    def names(self):
        return frozenset(self.shape.tensors())

    def vocabulary(self):
        raise NotImplementedError

    def tensor(self, name, dtype=None):
        size = self.shape.tensors()[name]
        seed = torch.Generator().manual_seed(sum(map(ord, name)))
        weight = torch.randn(size, generator=seed) * (size[-1] ** -0.5 if len(size) > 1 and "embed" not in name else 1)
        return weight.to(dtype or torch.float64)


@pytest.fixture
def network(one_thread):
    model = FullDiffusionModel(Llama.load(Random(), torch.float64), Random.shape.filling)
    assert isinstance(model.network, Llama)
    return model


def test_renewing_a_share_of_what_is_not_old_changes_nothing(network):
    session, canvas = network.open((0,)), Canvas.blank((5, 6, 7), 9).fill({4: 9, 8: 2})
    (whole,) = network.look([LookRequest(session, Look(canvas))])
    for renew, rows in ((0.3, 4), (0.01, 2), (0.5, 5)):
        look = Look(canvas, (5,), fresh=frozenset(), renew=renew)
        beside = LookRequest(network.open((0,)), Look(canvas))
        other, field = network.look([beside, LookRequest(session, look)])
        beside.session.close()
        assert field.rows == rows
        assert torch.allclose(field[5].scores, whole[5].scores, atol=1e-12)
        assert torch.allclose(other.scores, whole.scores, atol=1e-12)


def test_the_share_that_is_renewed_is_what_has_changed_most(network):
    def after(**how):
        session, blank = network.open((0,)), Canvas.blank((5, 6, 7), 9)
        network.look([LookRequest(session, Look(blank))])
        canvas = blank.fill({4: 9, 8: 2})
        (field,) = network.look([LookRequest(session, Look(canvas, (5,), **how))])
        exact = network.look([LookRequest(None, Look(canvas, (5,)))])[0]
        session.close()
        return float((exact[5].p * (exact[5].p / field[5].p).log()).nansum())

    old, some, most = (after(fresh=frozenset(), renew=share) for share in (0.0, 0.25, 1.0))
    assert most < some < old / 2  # a quarter of eight is the two that were written
    values, before = torch.eye(4), torch.eye(4)
    before[2], before[1] = -before[2], before[1] + before[0]
    assert staying([CacheRefresh((1, 2, 3), 1)], values, before) == [0, 2]
    assert staying([CacheRefresh((0, 1), 1), CacheRefresh((2, 3), 1)], values, before) == [1, 2]


def test_how_far_off_each_cache_is(network, record_property):
    for view in (look, CachedPrefix(), CachedDual(), Delayed(), Interval(4, 3), Windowed(2, 4, 3)):
        gaps, rows = [], 0
        for ask, field in walk(network, view, 3, (5, 6, 7, 8)):
            exact = network.look([LookRequest(None, Look(ask.canvas, ask.at))])[0]
            gaps += (float((exact[i].p * (exact[i].p / field[i].p).log()).nansum()) for i in field)
            rows += field.rows
        name, gap = getattr(view, "__name__", type(view).__name__), sum(gaps) / len(gaps)
        record_property(f"mean KL to no cache, {name}", gap)
        print(f"{name}: mean KL {gap:.2e} nats, {rows} rows")
        assert (rows == 60 and gap < 1e-12) if view is look else (rows < 60 and 1e-9 < gap < 0.2)


SPECS = ["confident:threshold=0.2", "cached_prefix:threshold=0.2,block=4", "cached_dual:threshold=0.2,block=4"]
SPECS += ["delayed:threshold=0.2,block=8", "interval:answer=3,threshold=0.2", "windowed:near=3,far=5,threshold=0.2"]


def test_requests_with_caches_of_all_kinds_write_the_same_in_a_batch_as_alone(network):
    def written(specs):
        engine = Engine({"target": network})
        texts = [(5, 6, 7 + n) for n in range(len(specs))]
        stop = Stop(most=12)
        jobs = [engine.submit(method(s), t, Philox(3), stop=stop, room=16) for s, t in zip(specs, texts, strict=True)]
        engine.run()
        assert network.slots.in_use == 0
        return [job.result().tokens for job in jobs]

    together = written(SPECS)
    assert all(len(tokens) == 12 for tokens in together)
    assert not any(63 in tokens for tokens in together)
    for n, spec in enumerate(SPECS):
        alone = written([*SPECS[:n], spec])[n] if n % 2 else written([spec] * (n + 1))[n]
        assert alone == together[n], spec


def test_a_method_that_reads_is_refused_by_a_model_that_only_fills(network):
    engine = Engine({"target": network})
    job = engine.submit(method("plain"), (5, 6), Philox(0), stop=Stop(most=3))
    engine.run()
    with pytest.raises(BadRequest, match="only fills holes"):
        job.result()


def test_with_fixed_shapes_a_kept_block_is_the_same_bits_as_none(one_thread):
    class Blocked(Random):
        shape = replace(Random.shape, filling=DiffusionSpec("block", "shifted", 63))

    def made():
        network = Llama.load(Blocked(), torch.float32, linear=padded(dense, 8), planner=PerTokenPlanner)
        return BlockDiffusionModel(network, Blocked.shape.filling)

    model, text = made(), (5, 6, 7)
    session = model.open(text)
    for _ in range(3):
        at = Look(Canvas.blank(text, 6).fill({len(text) + 2: 9}))
        kept, anew = model.look([LookRequest(session, at)])[0], made().look([LookRequest(None, at)])[0]
        assert torch.equal(kept.scores, anew.scores)
        text += tuple(range(len(text), len(text) + 6))
    assert kept.rows < anew.rows
