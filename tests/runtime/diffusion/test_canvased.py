"""Looks on networks: every law comes from exactly what its layout lets it see, in any company and after any history."""

from __future__ import annotations

import pytest
import torch
from contracts import exercise
from deep import BLOCKS, FILLINGS, FULL, VOCAB, Deep, same, text_law
from hypothesis import given, settings
from hypothesis import strategies as st

from unspool.core.asks import Look, Soft
from unspool.core.canvas import HOLE, Canvas, Status
from unspool.core.errors import BadRequest, OutOfRoom
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, Tree
from unspool.models.shape import DiffusionSpec
from unspool.runtime.diffusion.block_diffusion import BlockDiffusionModel
from unspool.runtime.diffusion.full_diffusion import FullDiffusionModel
from unspool.runtime.engine import trials
from unspool.runtime.engine.contracts import Causal, Infill, LookRequest, ScoreRequest
from unspool.runtime.network.network import unpaused


@st.composite
def canvases(draw, text: tuple[int, ...]):
    """A canvas that begins with a text: some of what follows is filled, and the window is anywhere."""
    size = draw(st.integers(1, 6))
    canvas = Canvas.blank(text, size)
    fill = draw(st.dictionaries(st.integers(len(text), len(text) + size - 1), st.integers(0, VOCAB - 2), max_size=size))
    canvas = canvas.fill(fill, Status.DRAFT) if fill else canvas
    low = draw(st.integers(len(text), len(canvas) - 1))
    return canvas.within(low, draw(st.integers(low + 1, len(canvas))))


@st.composite
def looks(draw, text: tuple[int, ...]):
    """A look at such a canvas: at holes, at any places, along an order, with soft holes, veiled places, or trials."""
    canvas = draw(canvases(text))
    kind = draw(st.sampled_from(["holes", "some", "along", "next", "soft", "veiled", "trials"]))
    if kind == "veiled":
        canvas = canvas.masked(draw(st.sets(st.integers(0, len(canvas) - 1))))
    places = list(range(canvas.window[0], canvas.window[1]))
    if kind == "some":
        return Look(canvas, tuple(draw(st.lists(st.sampled_from(places), unique=True, min_size=1))))
    filled = [i for i in range(len(text), canvas.window[1]) if canvas.tokens[i] != HOLE]
    if kind == "along" and filled:
        return Look(canvas, along=tuple(draw(st.permutations(filled))[: draw(st.integers(1, len(filled)))]))
    if kind == "next":  # drafted tokens that simply come next
        canvas = Canvas.blank(text, len(canvas) - len(text))
        drafted = range(len(text), len(text) + draw(st.integers(1, len(canvas) - len(text))))
        return Look(canvas.fill(dict.fromkeys(drafted, draw(st.integers(0, VOCAB - 2)))), along=tuple(drafted))
    if kind == "trials" and len(canvas.holes) > 1:
        tried, *rest = draw(st.permutations(canvas.holes))
        return Look(canvas, tuple(rest), trials=tuple({tried: token} for token in range(draw(st.integers(1, 3)))))
    soft = {i: Soft(Law.of([1.0, 2.0, 3.0, 0.0]), 0.5) for i in canvas.holes if kind == "soft"}
    return Look(canvas, soft=soft)


class Pausing(Deep):
    """The same, which pauses before and after its work."""

    def stages(self, batch):
        yield
        outputs = self.forward(batch)
        yield
        return outputs


def paused(data, model, ask, meanwhile):
    """The answer to a look between whose stages others are answered; None if it was broken off."""
    stages = model.looking(ask)
    try:
        for _ in range(data.draw(st.integers(0, 3))):
            next(stages)
            meanwhile()
        if data.draw(st.booleans()):
            return stages.close()
        return unpaused(stages)
    except StopIteration as end:
        return end.value


@given(st.data(), st.sampled_from(FILLINGS), st.sampled_from([0, 2]))
@settings(max_examples=100, deadline=None)
def test_looks_and_scores_of_any_history_equal_those_from_nothing(data, filling, shelf):
    network = Pausing()
    model = BlockDiffusionModel(network, filling, shelf)
    live, tokens = [], st.integers(0, VOCAB - 2)
    for _ in range(8):
        act = data.draw(st.sampled_from(["open", "look", "look", "look", "pause", "score", "keep", "fork", "close"]))
        if act == "open" or not live:
            text = tuple(data.draw(st.lists(tokens, min_size=1, max_size=4)))
            live.append([model.open(text), text])
            continue
        if act == "close":
            live.pop(data.draw(st.integers(0, len(live) - 1)))[0].close()
            continue
        company = [each for each in live if data.draw(st.booleans())] or live[:1]
        if act == "fork":
            live += [[session.fork(), text] for session, text in company]
        elif act == "look":
            asked = [LookRequest(session, data.draw(looks(text))) for session, text in company]
            asked += [
                LookRequest(session if data.draw(st.booleans()) else None, data.draw(looks(text)))
                for session, text in company[:1]
            ]
            before = network.forwards
            for ask, field in zip(asked, model.look(asked), strict=True):
                if ask.look.places:
                    same(field, ask.look, filling)
            assert network.forwards - before <= 2
        elif act == "pause":
            (session, text), others = company[0], [each for each in live if each is not company[0]]
            ask, between = LookRequest(session, data.draw(looks(text))), data.draw(st.booleans())

            def meanwhile(others=others if between else ()):
                for other, own in others:
                    assert torch.equal(model.score([ScoreRequest(other, NOTHING)])[0].leaf[0].scores, text_law(own))

            field = paused(data, model, ask, meanwhile)
            if field is not None and ask.look.places:
                same(field, ask.look, filling)
        else:
            for each in company:
                tree = Tree.chain([Drawn(x, Law.point(x)) for x in data.draw(st.lists(tokens, max_size=3))])
                (scores,) = model.score([ScoreRequest(each[0], tree)])
                assert torch.equal(scores.leaf[0].scores, text_law(each[1]))
                for n in range(len(tree)):
                    assert torch.equal(scores.after[n].scores, text_law(each[1] + tree.tokens(tree.path(n))))
                if act == "keep" and len(tree):
                    node, extra = data.draw(st.integers(0, len(tree) - 1)), data.draw(st.none() | tokens)
                    each[0].keep(tree, (node,), (extra,))
                    each[1] += tree.tokens(tree.path(node)) + (() if extra is None else (extra,))
    for session, _ in live:
        session.close()
    model.forget()
    assert network.slots.in_use == 0


@given(st.data(), st.sampled_from(FILLINGS))
@settings(max_examples=30, deadline=None)
def test_a_model_that_fills_holes_is_a_causal_model_like_any_other(data, filling):
    model = BlockDiffusionModel(Deep(), filling)
    assert isinstance(model, Causal)
    assert isinstance(model, Infill)
    exercise(data, model, text_law)


@given(st.data(), st.sampled_from(FULL))
@settings(max_examples=40, deadline=None)
def test_a_full_network_sees_all_of_the_canvas_every_time(data, filling):
    network = Deep()
    model = FullDiffusionModel(network, filling)
    sessions = [model.open((0,)), model.open((1,)), None]
    for _ in range(4):
        asked = [LookRequest(session, data.draw(looks((1, 2)))) for session in sessions]
        for ask, field in zip(asked, model.look(asked), strict=True):
            if ask.look.places:
                same(field, ask.look, filling)
    for session in sessions[:2]:
        session.fork().close()
        session.close()
        session.close()
    assert network.slots.in_use == 0


@given(st.data(), st.sampled_from(BLOCKS))
@settings(max_examples=30, deadline=None)
def test_whole_blocks_are_kept_and_nothing_is_read_from_left_to_right(data, filling):
    network = Deep()
    model = BlockDiffusionModel(network, filling, prefix_cache=1)
    sessions = [model.open((0,)), model.open((1, 2)), None]
    for _ in range(5):
        text = tuple(data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=7)))
        asked = [LookRequest(session, data.draw(looks(text))) for session in sessions]
        for ask, field in zip(asked, model.look(asked), strict=True):
            if ask.look.places:
                same(field, ask.look, filling)
    assert model.owed(sessions[0]) == 0
    with pytest.raises(BadRequest, match="only fills holes"):
        model.score([ScoreRequest(sessions[0], NOTHING)])
    for session in sessions[:2]:
        session.close()
    model.forget()
    assert network.slots.in_use == 0


def blocks(model, session, text: tuple[int, ...], size: int, count: int):
    """Fill block after block, one look for each place."""
    canvas = Canvas.blank(text, size * count)
    for block in range(count):
        low = len(text) + block * size
        for place in range(low, low + size):
            sheet = canvas.within(low, low + size)
            (field,) = model.look([LookRequest(session, Look(sheet))])
            yield sheet, field
            canvas = canvas.fill({place: int(field[place].scores[: VOCAB - 1].argmax())})


@pytest.mark.parametrize("filling", FILLINGS[:2], ids=str)
def test_a_finished_block_is_read_with_the_first_look_of_the_next(filling):
    network = Deep()
    model = BlockDiffusionModel(network, filling)
    session = model.open((1, 2, 0))
    rows = [field.rows for _, field in blocks(model, session, (1, 2, 0), 4, 3)]
    assert rows == [7, 4, 4, 4, 8, 4, 4, 4, 8, 4, 4, 4]  # the prompt, then each finished block, once
    assert network.forwards == len(rows)
    assert network.slots.in_use == 3 + 8


def test_a_causal_window_keeps_what_is_filled_without_a_gap():
    network = Deep()
    filling = DiffusionSpec("causal", "aligned", 3)
    model = BlockDiffusionModel(network, filling)
    rows = [field.rows for _, field in blocks(model, model.open((1, 2)), (1, 2), 4, 1)]
    assert rows == [6, 1 + 3, 1 + 2, 1 + 1]  # what was filled last, and the holes


@pytest.mark.parametrize("reading", ["aligned", "shifted"])
def test_drafts_that_come_next_are_verified_in_one_forward_over_them_and_a_hole_each(reading):
    """ASSD's density in one forward: a token and a hole for each place, not a copy of the window."""
    network = Deep()
    model = BlockDiffusionModel(network, DiffusionSpec("causal", reading, 3))
    session = model.open((1, 2))
    model.look([LookRequest(session, Look(Canvas.blank((1, 2), 6)))])
    before = network.forwards
    look = Look(Canvas.blank((1, 2), 6).fill({2: 0, 3: 1, 4: 2, 5: 0}), along=(2, 3, 4, 5))
    (field,) = model.look([LookRequest(session, look)])
    same(field, look, model.filling)
    assert network.forwards == before + 1
    assert field.rows == (3 + 4 if reading == "aligned" else 4)  # shifted, the text's last law is not kept by a look


def test_trials_of_a_canvas_are_told_by_one_forward():
    for model in (BlockDiffusionModel(Deep(), FILLINGS[0]), FullDiffusionModel(Deep(), FULL[0])):
        session = model.open((1, 2))
        look = Look(Canvas.blank((1, 2), 4), (2, 4, 5), trials=({3: 0}, {3: 1}, {3: 2}))
        (field,) = model.look([LookRequest(session, look)])
        same(field, look, model.filling)
        assert model.network.forwards == 1
        parts = field.parted(6)
        assert [list(part) for part in parts] == [[2, 4, 5]] * 3
        assert sum(part.rows for part in parts) == field.rows
        assert not torch.equal(parts[0][5].scores, parts[1][5].scores)
        session.close()
        assert model.slots.in_use == 0


@pytest.mark.parametrize("together", [1024, 12, 1])
def test_trials_that_do_not_fit_together_are_told_by_several_forwards(monkeypatch, together):
    monkeypatch.setattr(trials, "TOGETHER", together)
    model = BlockDiffusionModel(Deep(), FILLINGS[0])
    look = Look(Canvas.blank((1, 2), 4), (2, 4, 5), trials=({3: 0}, {3: 1}, {3: 2}))
    other = Look(Canvas.blank((1, 2), 4))
    fields = trials.looked(model, [LookRequest(model.open((1, 2)), each) for each in (look, other)])
    for each, field in zip((look, other), fields, strict=True):
        same(field, each, model.filling)
    assert model.network.forwards == {1024: 1, 12: 2, 1: 3}[together]


def test_a_window_of_one_place_is_plain_decoding():
    model = BlockDiffusionModel(Deep(), DiffusionSpec("causal", "shifted", 3))
    text = (1, 2)
    session = model.open(text)
    for sheet, field in blocks(model, session, text, 1, 5):
        (place,) = field
        assert torch.equal(field[place].scores, text_law(sheet.tokens[:place]))


def test_looks_and_scores_of_a_session_compute_nothing_twice():
    network = Deep()
    model = BlockDiffusionModel(network, DiffusionSpec("block", "shifted", 3))
    session = model.open((1, 2, 0))
    model.look([LookRequest(session, Look(Canvas.blank((1, 2, 0), 4)))])
    assert network.computed == 3 + 4
    (scores,) = model.score([ScoreRequest(session, NOTHING)])
    assert (scores.rows, network.computed) == (0, 7)
    session.keep(NOTHING, (~0,), (2,))
    model.score([ScoreRequest(session, NOTHING)])
    assert network.computed == 8
    model.look([LookRequest(session, Look(Canvas.blank((1, 2, 0, 2), 4)))])
    assert network.computed == 12  # the window alone
    session.close()
    again = model.open((1, 2, 0, 2, 1))
    model.look([LookRequest(again, Look(Canvas.blank((1, 2, 0, 2, 1), 1)))])
    assert network.computed == 12 + 5  # without a shelf all is gone; one place is told by the text alone


def test_a_closed_canvas_is_found_on_the_shelf():
    network = Deep()
    model = BlockDiffusionModel(network, DiffusionSpec("block", "shifted", 3), prefix_cache=1)
    session = model.open((1, 2))
    list(blocks(model, session, (1, 2), 2, 3))
    text = tuple(model._pages[session].tokens)
    assert len(text) == 6
    session.close()
    assert network.slots.in_use == 6
    (scores,) = model.score([ScoreRequest(model.open((*text, 1)), NOTHING)])
    assert scores.rows == 1


def test_a_canvas_is_found_by_its_owner_alone():
    network = Deep(room=200)
    model = BlockDiffusionModel(network, DiffusionSpec("block", "shifted", 3), prefix_cache=4)
    text, rows = (1, 2, 0, 1, 1, 2), []
    for owner in ("anna", "bert", "", "anna", "bert"):
        session = model.open(text, owner)
        (field,) = model.look([LookRequest(session, Look(Canvas.blank(text, 2)))])
        rows.append(field.rows)
        session.close()
    assert rows[0] == rows[1] == rows[2] > rows[3] == rows[4]


@pytest.mark.parametrize("first", ["bert", ""])
def test_what_a_canvas_has_read_behind_its_prompt_is_found_by_its_owner_alone(first):
    model = BlockDiffusionModel(Deep(room=200), DiffusionSpec("block", "shifted", 3), prefix_cache=4)
    text, rows = (1, 2, 0, 1, 1, 2), []
    for owner in (first, "anna", "anna"):
        session = model.open(text[:2], owner)
        (field,) = model.look([LookRequest(session, Look(Canvas.blank(text, 2)))])
        rows.append(field.rows)
        session.close()
    assert rows[0] == rows[1] > rows[2]


@pytest.mark.parametrize("filling", [*FILLINGS, *FULL], ids=str)
def test_a_forward_that_fails_takes_nothing_and_the_next_goes_on(filling):
    network = Deep(room=16)
    model = (FullDiffusionModel if filling.layout == "full" else BlockDiffusionModel)(network, filling)
    session, look = model.open((1, 2)), Look(Canvas.blank((1, 2), 4))
    network.fails = True
    with pytest.raises(RuntimeError):
        model.look([LookRequest(session, look)])
    assert network.slots.in_use == 0
    network.fails = False
    same(model.look([LookRequest(session, look)])[0], look, filling)
    held = network.slots.in_use
    with pytest.raises(OutOfRoom):
        model.look([LookRequest(session, look), LookRequest(None, Look(Canvas.blank((1, 2), 40)))])
    assert network.slots.in_use == held
    same(model.look([LookRequest(session, look)])[0], look, filling)
    session.close()
    assert network.slots.in_use == 0


def test_a_full_network_refuses_to_read_from_left_to_right():
    model = FullDiffusionModel(Deep(), FULL[0])
    with pytest.raises(BadRequest, match="only fills holes"):
        model.score([ScoreRequest(model.open((1,)), NOTHING)])
