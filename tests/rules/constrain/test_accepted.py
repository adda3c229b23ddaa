"""The first of some ranked tokens that a constraint allows, of many texts at once: what their masks say of it."""

from __future__ import annotations

import random

import pytest
from test_constrain import AB

from unspool.core.warp.mask import Mask
from unspool.rules.constrain import choices, cursor, grammar, regex
from unspool.rules.constrain.constraint import Constrained, over

pytest.importorskip("llguidance")


@pytest.mark.parametrize("tired", [0.0, 9.0])
@pytest.mark.parametrize("seed", range(3))
def test_accepted_tokens_are_those_that_masks_allow(monkeypatch, seed, tired):
    """However many tokens go by between two masks, and whichever kinds of constraints stand beside each other."""
    monkeypatch.setattr(cursor, "TIRED", tired)
    dice = random.Random(seed)
    forms = [
        regex(r"\(a(b|\(\))*\)"),
        grammar('start: "(" start ")" | "a" | "b"'),
        choices("ab", "a(b)"),
        regex("(ab?[(]?){2,9}"),
        regex("(b?[(]abaab[)])+"),  # its forced text could be spelt in several ways
    ]
    warps = [Constrained(form.fit(AB)) for form in forms for _ in range(2)]
    states = [warp.start(()) for warp in warps]
    for _ in range(12):
        ranked = [dice.sample(range(-2, AB.size), 4) for _ in warps]
        asked = list(zip(warps, states, strict=True))
        found = Constrained.accept_all(asked, ranked)
        wanted = Mask.accept_all.__func__(Constrained, asked, ranked)
        assert [token for token, _ in found] == [token for token, _ in wanted]
        for warp, state in asked:
            allowed = state.mask().nonzero().flatten().tolist()
            assert warp.only(state) in (-1, allowed[0])
            assert warp.only(state) < 0 or len(allowed) == 1
        for row, (warp, state, (token, after)) in enumerate(zip(warps, states, found, strict=True)):
            if token < 0:
                assert after is state
                allowed = state.mask().nonzero().flatten().tolist()
                states[row] = warp.step(state, dice.choice(allowed))
            else:
                assert after.mask().tolist() == warp.step(state, token).mask().tolist()
                states[row] = after


def test_a_text_is_over_only_where_it_has_ended():
    warp = Constrained(choices("ab").fit(AB))
    state = warp.start(())
    assert not warp.over(state)
    assert warp.over(over(AB))
    assert not warp.over(state.step(AB.size - 1).step(AB.size - 1))
