"""Laws that nothing open can change: every way to look says which they are, and rules then count them as certain."""

import pytest
import torch
from deep import Deep

from unspool.core.canvas import Canvas, Field
from unspool.loops.unmasker import look
from unspool.models.shape import DiffusionSpec
from unspool.rules.unmask.context import Context
from unspool.rules.unmask.credited import Credited
from unspool.rules.unmask.end_token import Endless
from unspool.rules.unmask.guided import Guided
from unspool.rules.unmask.renoise import Unchanged
from unspool.rules.unmask.softened import Softened
from unspool.runtime.diffusion.block_diffusion import BlockDiffusionModel
from unspool.runtime.engine.contracts import LookRequest

CANVAS = Canvas.blank((1, 2), 3)
PLACES = (2, 3, 4)


def seen(view, *answers):
    """What a view makes of these answers to its looks."""
    asking = view(CANVAS, PLACES)
    next(asking)
    for answer in answers[:-1]:
        asking.send(answer)
    with pytest.raises(StopIteration) as done:
        asking.send(answers[-1])
    return done.value.value


def field(seed, *final):
    torch.manual_seed(seed)
    return Field.of(PLACES, torch.randn(3, 4, dtype=torch.float64), 5, final)


def named(view):
    return type(view).__name__


@pytest.mark.parametrize("view", [Credited(), Endless(frozenset({3})), Softened(looks=0), Unchanged(look)], ids=named)
def test_one_look_keeps_what_is_final(view):
    found = seen(view, field(0, 2))
    assert found.final == {2}
    assert found.peaks[2].p == 1 > found.peaks[3].p


def test_credit_is_for_what_may_still_change():
    view = Credited(weight=5.0).begin()
    first, then = seen(view, field(0)), field(1, 2)
    found = seen(view, then)
    assert not torch.equal(first.scores, field(0).scores)
    assert torch.equal(found[2].scores, then[2].scores)  # its own best guess of before is forgotten
    assert not torch.equal(found[3].scores, then[3].scores)


@pytest.mark.parametrize("view", [Guided(1.0), Context(2.0, 0.5)], ids=named)
def test_a_guided_law_is_final_where_both_looks_are(view):
    assert seen(view, field(0, 2), field(1)).final == frozenset()
    assert seen(view, field(0, 2, 3), field(1, 3, 4)).final == {3}


def test_a_look_that_is_not_needed_says_the_same_again():
    view = Unchanged(look).begin()
    seen(view, field(0, 2))
    with pytest.raises(StopIteration) as done:
        next(view(CANVAS, (2, 3)))
    assert done.value.value.final == {2}


def test_credit_leaves_the_first_place_of_a_shifted_window_to_the_text():
    model = BlockDiffusionModel(Deep(), DiffusionSpec("block", "shifted", 3))
    asking = Credited()(CANVAS, PLACES)
    (plain,) = model.look([LookRequest(None, next(asking))])
    with pytest.raises(StopIteration) as done:
        asking.send(plain)
    found = done.value.value
    assert found.final == plain.final == {2}
    assert torch.equal(found[2].scores, plain[2].scores)
    assert not torch.equal(found[3].scores, plain[3].scores)
