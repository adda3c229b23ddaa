"""The truth that claims are held against: plain decoding, written without any of the machinery that is being proved."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..asks import Done
from ..chance import At, Chance, Role
from ..run.table import Table
from ..stop import Stop, Tail
from ..warp.warp import Warp


def law_of_text(table: Table, prompt: tuple[int, ...], warp: Warp, stop: Stop) -> dict[Done, float]:
    """The exact joint law of whole texts: the product of the warped conditionals up to the first stop."""
    law: defaultdict[Done, float] = defaultdict(float)

    def visit(tokens: tuple[int, ...], state: Any, tail: Tail, mass: float) -> None:
        for token, p in enumerate(warp(state, table.law(prompt + tokens)).spread(table.law(prompt)).tolist()):
            if p == 0:
                continue
            _, reason, after, trim = stop.cut(tail, (token,))
            if reason:
                law[Done((*tokens, token), reason, trim)] += mass * p
            else:
                visit((*tokens, token), warp.step(state, token), after, mass * p)

    visit((), warp.start(prompt), stop.start(), 1.0)
    return dict(law)


def text_of_seed(table: Table, prompt: tuple[int, ...], warp: Warp, stop: Stop, chance: Chance) -> Done:
    """The text that plain decoding draws, one PICK per position."""
    tokens: tuple[int, ...] = ()
    state, tail = warp.start(prompt), stop.start()
    while True:
        law = warp(state, table.law(prompt + tokens))
        token = chance.choose(law, At(len(prompt) + len(tokens), Role.PICK))
        tokens, state = (*tokens, token), warp.step(state, token)
        _, reason, tail, trim = stop.cut(tail, (token,))
        if reason:
            return Done(tokens, reason, trim)
