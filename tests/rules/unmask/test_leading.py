"""leading: left to right, as many as are sure one after the other."""

from __future__ import annotations

import pytest
from canvases import Scripted, same, table, told

from unspool.core.errors import BadRequest
from unspool.rules.decode import Denoise
from unspool.rules.unmask import Confident, FixedBlocks, Leading


def test_it_fills_the_first_hole_and_the_sure_ones_right_behind_it():
    model = Scripted(
        {1: (1, 0.2), 2: (2, 0.9), 3: (3, 0.75), 4: (4, 0.3), 5: (0, 0.99)},
        {4: (4, 0.3), 5: (0, 0.5)},
        {5: (0, 0.4)},
    )
    tokens, looks, canvases = told(Denoise(Leading(0.7), 5), model)
    assert canvases[0].holes == [4, 5]  # the first however unsure; the last waits, for there is one before it
    assert (tokens, looks) == ((1, 2, 3, 4, 0), 3)


def test_a_hole_behind_what_stands_already_waits():
    model = Scripted({1: (1, 0.9), 3: (2, 0.9)})
    canvas = Denoise(Leading(0.5), frame=(1, (3,), 1))
    tokens, looks, canvases = told(canvas, model)
    assert canvases[0].holes == [3]
    assert (tokens, looks) == ((1, 3, 2), 2)


@pytest.mark.parametrize("seed", range(3))
def test_where_nothing_is_sure_enough_it_reads_left_to_right(seed):
    same(Denoise(Leading(2.0), 4), Denoise(Confident(2.0), 4, FixedBlocks(1)), seed)


def test_a_threshold_that_is_no_number_is_refused():
    with pytest.raises(BadRequest, match="leading:threshold is nan"):
        Leading(float("nan"))
    told(Denoise(Leading(), 3), table())
