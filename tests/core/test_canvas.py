"""Canvases: what may change, what may not, and that every position keeps its own record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unspool.core.canvas import HOLE, Canvas, Status

G, H, D, F = Status


def test_a_blank_canvas_is_the_prompt_and_holes():
    canvas = Canvas.blank((5, 6), 3)
    assert canvas == Canvas((5, 6, HOLE, HOLE, HOLE), (G, G, H, H, H), (-1,) * 5, (2, 5))
    assert canvas.holes == [2, 3, 4]
    assert len(canvas) == 5
    assert Canvas.blank((), 4, shape=(2, 2)).shape == (2, 2)


def test_filling_is_one_step_and_is_remembered():
    blank = Canvas.blank((5,), 3)
    first = blank.fill({3: 9})
    second = first.fill({1: 7, 2: 8}, Status.DRAFT)
    assert second.tokens == (5, 7, 8, 9)
    assert second.status == (G, D, D, F)
    assert second.filled == (-1, 1, 1, 0)
    assert (first.step, second.step) == (1, 2)
    assert first.holes == [1, 2]
    assert blank.holes == [1, 2, 3]  # the old canvas is as it was


@pytest.mark.parametrize(("position", "why"), [(0, "given"), (1, "fixed"), (-1, "outside"), (4, "outside")])
def test_what_is_given_fixed_or_not_there_cannot_be_filled(position, why):
    canvas = Canvas.blank((5,), 3).fill({1: 7})
    with pytest.raises(ValueError, match=why):
        canvas.fill({position: 3})


def test_a_draft_can_be_revised_and_masked_again():
    canvas = Canvas.blank((5,), 3).fill({1: 7, 2: 8}, Status.DRAFT)
    revised = canvas.fill({1: 6})
    assert revised.tokens == (5, 6, 8, HOLE)
    assert revised.filled == (-1, 1, 0, -1)
    masked = revised.remask([2])
    assert masked.tokens == (5, 6, HOLE, HOLE)
    assert masked.status == (G, F, H, H)
    assert masked.filled == (-1, 1, -1, -1)
    assert masked.step == revised.step


@pytest.mark.parametrize(
    ("position", "why"), [(0, "given"), (1, "fixed"), (2, "hole"), (-1, "outside"), (9, "outside")]
)
def test_only_drafts_can_be_masked_again(position, why):
    canvas = Canvas.blank((5,), 3).fill({1: 7}).fill({3: 7}, Status.DRAFT)
    with pytest.raises(ValueError, match=why):
        canvas.remask([position])


@given(st.integers(2, 5), st.integers(1, 3))
def test_new_holes_push_what_follows(at, holes):
    canvas = Canvas.blank((5, 6), 3).fill({2: 7, 3: 8, 4: 9})
    wider = canvas.insert(at, holes)
    kept = [i for i in range(len(wider)) if not at <= i < at + holes]
    assert tuple(wider.tokens[i] for i in kept) == canvas.tokens
    assert tuple(wider.status[i] for i in kept) == canvas.status
    assert tuple(wider.filled[i] for i in kept) == canvas.filled
    assert wider.holes == list(range(at, at + holes))
    assert wider.window == (2, 5 + holes)


@pytest.mark.parametrize("at", [0, 1, 6])
def test_holes_go_where_the_decoder_works(at):
    with pytest.raises(ValueError, match="window"):
        Canvas.blank((5, 6), 3).insert(at)


def test_an_extension_moves_the_window():
    canvas = Canvas.blank((5,), 2).fill({1: 7})
    longer = canvas.extend(3)
    assert longer.tokens == (5, 7, HOLE, HOLE, HOLE, HOLE)
    assert longer.window == (3, 6)
    assert longer.holes == [3, 4, 5]  # the hole left behind is not worked on
    assert longer.filled == (-1, 0, -1, -1, -1, -1)
    assert longer.step == canvas.step


@given(st.permutations(range(2, 7)), st.lists(st.integers(0, 9), min_size=5, max_size=5))
def test_the_order_of_filling_shows_in_the_record_and_not_in_the_text(order, tokens):
    canvas = Canvas.blank((1, 2), 5)
    for i in order:
        canvas = canvas.fill({i: tokens[i - 2]})
    assert canvas.tokens == (1, 2, *tokens)
    assert [canvas.filled[i] for i in order] == [0, 1, 2, 3, 4]
    assert canvas.holes == []
